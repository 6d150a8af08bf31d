// Tables to Parquet by Arrow C++: a row group for each part.

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/writer.h>
#include <parquet/exception.h>

#include <algorithm>
#include <type_traits>

#include "core/error.h"
#include "tokens/parquet/plugin.h"

namespace trainer::tokens {
namespace {

template <class T>
using Builder = std::conditional_t<
    std::is_same_v<T, int64_t>, arrow::Int64Builder,
    std::conditional_t<std::is_same_v<T, float>, arrow::FloatBuilder, arrow::StringBuilder>>;

class ParquetTable final : public TableWriter {
 public:
  explicit ParquetTable(std::string path) : path_(std::move(path)) {
    auto opened = arrow::io::FileOutputStream::Open(path_);
    check(opened.status());
    file_ = *opened;
  }

  void write(const Table& rows) override {
    try {
      arrow::FieldVector fields;
      arrow::ArrayVector columns;
      for (const Column& column : rows) {
        columns.push_back(std::visit([this](const auto& values) { return array(values); }, column.values));
        fields.push_back(arrow::field(column.name, columns.back()->type(), /*nullable=*/false));
      }
      const auto schema = arrow::schema(fields);
      if (writer_ == nullptr) {
        parquet::WriterProperties::Builder properties;
        if (arrow::util::Codec::IsAvailable(arrow::Compression::SNAPPY)) {
          properties.compression(parquet::Compression::SNAPPY);
        }
        auto made = parquet::arrow::FileWriter::Open(*schema, arrow::default_memory_pool(), file_,
                                                     properties.build());
        check(made.status());
        writer_ = std::move(*made);
      }
      const int64_t n = columns.at(0)->length();
      check(writer_->WriteTable(*arrow::Table::Make(schema, columns, n), std::max<int64_t>(n, 1)));
    } catch (const parquet::ParquetException& error) {
      fail_of(error.what());
    }
  }

  void finish() override {
    try {
      if (writer_ != nullptr) check(writer_->Close());
      check(file_->Close());
    } catch (const parquet::ParquetException& error) {
      fail_of(error.what());
    }
  }

 private:
  [[noreturn]] void fail_of(std::string_view what) const {
    fail<CheckpointError>("{}: cannot be written as Parquet: {}", path_, what);
  }
  void check(const arrow::Status& status) const {
    if (!status.ok()) fail_of(status.message());
  }
  template <class T>
  std::shared_ptr<arrow::Array> array(const std::vector<T>& values) const {
    Builder<T> builder;
    check(builder.AppendValues(values));
    std::shared_ptr<arrow::Array> made;
    check(builder.Finish(&made));
    return made;
  }

  std::string path_;
  std::shared_ptr<arrow::io::FileOutputStream> file_;
  std::unique_ptr<parquet::arrow::FileWriter> writer_;
};

}  // namespace
}  // namespace trainer::tokens

extern "C" void trainer_create_parquet(const std::string& file,
                                       std::unique_ptr<trainer::tokens::TableWriter>& table) {
  table = std::make_unique<trainer::tokens::ParquetTable>(file);
}
static_assert(std::is_same_v<decltype(trainer_create_parquet), trainer::tokens::CreateParquet>);
