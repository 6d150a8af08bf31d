#include "records/prepare.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/format.h"
#include "core/log.h"
#include "records/output_directory.h"
#include "records/record_file.h"
#include "records/stopped.h"

namespace trainer::records {
namespace {

namespace fs = std::filesystem;

// A reader that can be told to stop.
class StoppableReader final : public RecordReader {
 public:
  StoppableReader(std::unique_ptr<RecordReader> reader, const std::atomic<bool>& stop)
      : reader_(std::move(reader)), stop_(stop) {}

  const Columns& columns() const override { return reader_->columns(); }
  int64_t size_bytes() const override { return reader_->size_bytes(); }
  bool hexadecimal_ids() const override { return reader_->hexadecimal_ids(); }
  int64_t num_parts() const override { return reader_->num_parts(); }
  void read(int64_t part, std::span<const int64_t> columns, const VisitRow& visit) const override {
    if (stop_) throw Stopped();
    reader_->read(part, columns, visit);
  }
  std::string where(int64_t part, int64_t row) const override { return reader_->where(part, row); }

 private:
  std::unique_ptr<RecordReader> reader_;
  const std::atomic<bool>& stop_;
};

StoppableReader open(const spec::DataSource& source, const std::atomic<bool>& stop) {
  if (is_record_file(source)) fail<DataError>("{}: is prepared already", source.path);
  return {open_reader(source), stop};
}

void write(const RecordReader& reader, const FeatureMap& map, const fs::path& file, int64_t num_threads) {
  const double begin_s = monotonic_s();
  RecordFileWriter writer(file, map.layout(true));
  map.encode(reader, true, num_threads, writer);
  writer.finish(map, reader.path());
  const double seconds = monotonic_s() - begin_s;
  log_info("{}: {} rows in {}, {} rows/s", reader.path(), grouped(writer.num_rows()), short_duration(seconds),
           grouped(static_cast<int64_t>(static_cast<double>(writer.num_rows()) / seconds)));
}

}  // namespace

bool prepare(const PrepareOptions& options, const std::atomic<bool>& stop) {
  try {
    std::vector<std::string> inputs = {options.data.train.path};
    const bool validates = !options.data.validation.path.empty();
    if (validates) inputs.push_back(options.data.validation.path);
    const StoppableReader train = open(options.data.train, stop);
    OutputDirectory output(options.output, options.force, inputs);
    const FeatureMap map = FeatureMap::fit(train, options.data.features, options.model, options.num_threads);
    write(train, map, output.partial() / "train.records", options.num_threads);
    if (validates) {
      write(open(options.data.validation, stop), map, output.partial() / "validation.records",
            options.num_threads);
    }
    map.save(output.partial());
    output.commit();
    int64_t num_table_rows = 0;
    for (const TableInfo& table : map.info().tables) num_table_rows += table.rows;
    // The result, which main() fails without.
    fmt::print("{}: {} dense, {} sparse features; {} tables of {} rows in all\n", output.path().string(),
               map.info().dense.size(), map.info().sparse.size(), map.info().tables.size(),
               grouped(num_table_rows));
    return true;
  } catch (const Stopped&) {
    return false;
  } catch (const fs::filesystem_error& error) {
    fail<DataError>("{}", error.what());
  }
}

}  // namespace trainer::records
