// Parquet by Arrow C++: the strings of one column, record batch by record batch.

#include <arrow/api.h>
#include <fmt/ranges.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>

#include "core/error.h"
#include "tokens/parquet/plugin.h"

namespace trainer::tokens {
namespace {

constexpr int64_t kRows = 1024;  // of a record batch

class Parquet final : public DocumentReader {
 public:
  Parquet(std::string path, const std::string& field) : path_(std::move(path)), field_(field) {
    try {
      parquet::arrow::FileReaderBuilder builder;
      check(builder.OpenFile(path_, /*memory_map=*/true));
      parquet::ArrowReaderProperties properties;
      properties.set_batch_size(kRows);
      check(builder.properties(properties)->Build(&file_));
      std::shared_ptr<arrow::Schema> schema;
      check(file_->GetSchema(&schema));
      const int column = schema->GetFieldIndex(field);
      if (column < 0) {
        fail<DataError>("{}: has no column \"{}\"; it has {}", path_, field,
                        fmt::join(schema->field_names(), ", "));
      }
      const std::shared_ptr<arrow::DataType>& type = schema->field(column)->type();
      const bool is_dictionary = type->id() == arrow::Type::DICTIONARY;
      const arrow::Type::type id =
          is_dictionary ? static_cast<const arrow::DictionaryType&>(*type).value_type()->id() : type->id();
      if (!arrow::is_base_binary_like(id)) {
        fail<DataError>("{}: column \"{}\": got {}; expected strings", path_, field, type->ToString());
      }
      // Columns of the file are the leaves of the schema: a nested one before this has several.
      const auto* descriptor = file_->parquet_reader()->metadata()->schema();
      const std::vector<int> leaves = {descriptor->ColumnIndex(field)};
      std::vector<int> groups(static_cast<size_t>(file_->num_row_groups()));
      for (size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int>(i);
      auto made = file_->GetRecordBatchReader(groups, leaves);
      check(made.status());
      batches_ = std::move(*made);
      for (const int group : groups) {
        column_bytes_ += file_->parquet_reader()
                             ->metadata()
                             ->RowGroup(group)
                             ->ColumnChunk(leaves[0])
                             ->total_compressed_size();
      }
      num_rows_ = file_->parquet_reader()->metadata()->num_rows();
    } catch (const parquet::ParquetException& error) {
      fail_of(error.what());
    }
  }

  DocumentBatch next(int64_t num_bytes, int64_t /*num_threads*/) override {
    DocumentBatch batch;
    try {
      for (int64_t bytes = 0; bytes < num_bytes;) {
        std::shared_ptr<arrow::RecordBatch> rows;
        check(batches_->ReadNext(&rows));
        if (rows == nullptr) break;
        std::shared_ptr<arrow::Array> column = rows->column(0);
        if (column->type_id() == arrow::Type::DICTIONARY) {
          const auto& dictionary = static_cast<const arrow::DictionaryArray&>(*column);
          for (int64_t i = 0; i < column->length(); ++i) {
            add(*dictionary.dictionary(), column->IsNull(i) ? -1 : dictionary.GetValueIndex(i), batch, bytes);
          }
        } else {
          for (int64_t i = 0; i < column->length(); ++i)
            add(*column, column->IsNull(i) ? -1 : i, batch, bytes);
        }
      }
    } catch (const parquet::ParquetException& error) {
      fail_of(error.what());
    }
    // Of the column's share, by rows: the file's other columns are not read.
    batch.bytes_read = num_rows_ == 0
                           ? 0
                           : static_cast<int64_t>(static_cast<double>(column_bytes_) *
                                                  static_cast<double>(row_) / static_cast<double>(num_rows_));
    return batch;
  }

 private:
  [[noreturn]] void fail_of(std::string_view what) const {
    fail<DataError>("{}: cannot be read as Parquet: {}", path_, what);
  }
  void check(const arrow::Status& status) const {
    if (!status.ok()) fail_of(status.message());
  }

  // Entry i of strings, -1: null.
  void add(const arrow::Array& strings, int64_t i, DocumentBatch& batch, int64_t& bytes) {
    ++row_;
    if (i < 0 || strings.IsNull(i)) {
      fail<DataError>("{}: row {}: {}: got null; expected a string", path_, row_, field_);
    }
    const bool is_large = arrow::is_large_binary_like(strings.type_id());
    const std::string_view text = is_large ? static_cast<const arrow::LargeBinaryArray&>(strings).GetView(i)
                                           : static_cast<const arrow::BinaryArray&>(strings).GetView(i);
    batch.texts.emplace_back(text);
    batch.places.push_back(row_);
    bytes += static_cast<int64_t>(text.size());
  }

  std::string path_, field_;
  std::unique_ptr<parquet::arrow::FileReader> file_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  int64_t row_ = 0, num_rows_ = 0, column_bytes_ = 0;
};

}  // namespace
}  // namespace trainer::tokens

extern "C" void trainer_open_parquet(const std::string& file, const std::string& field,
                                     std::unique_ptr<trainer::tokens::DocumentReader>& reader) {
  reader = std::make_unique<trainer::tokens::Parquet>(file, field);
}
static_assert(std::is_same_v<decltype(trainer_open_parquet), trainer::tokens::OpenParquet>);
