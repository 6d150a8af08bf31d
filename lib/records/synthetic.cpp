#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "core/format.h"
#include "core/log.h"
#include "core/parallel_for.h"
#include "records/output_directory.h"
#include "records/prepare.h"
#include "records/record_file.h"
#include "records/stopped.h"
#include "spec/enums.h"

namespace trainer::records {
namespace {

namespace fs = std::filesystem;
using spec::FileFormat;

constexpr int64_t kPiece = 8192;  // rows that a thread makes at once
constexpr size_t kCriteoDense = 13, kCriteoSparse = 26;

// The map of the rows: the number of an id is its row.
FeatureMap map_of(const ClickModelOptions& model) {
  spec::Features features;
  FeatureInfo info;
  features.label = "label";
  features.ids = spec::IdMapping::kIdentity;
  features.dense_transform = spec::DenseTransform::kLog;
  for (int64_t d = 1; d <= model.num_dense; ++d) features.dense.push_back(fmt::format("I{}", d));
  info.dense = features.dense;
  for (size_t f = 0; f < model.cardinalities.size(); ++f) {
    const std::string name = fmt::format("C{}", f + 1);
    features.sparse.push_back(name);
    info.sparse.push_back({name, static_cast<int64_t>(f)});
    info.tables.push_back({name, model.cardinalities[f]});
  }
  return FeatureMap::given(std::move(features), std::move(info));
}

// Rows of one file, as bytes of its format.
class RowWriter {
 public:
  virtual ~RowWriter() = default;
  // Appends; several threads call it, each with its own bytes.
  virtual void encode(const ClickRow& row, EncodedRows& to) const = 0;
  virtual void add(EncodedRows&& rows) = 0;
  virtual void finish() = 0;
};

template <class T>
void append(const T& value, std::string& to) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

class RecordsWriter final : public RowWriter {
 public:
  RecordsWriter(const fs::path& path, const FeatureMap& map)
      : map_(map), layout_(map.layout(true)), file_(path, layout_) {}
  void encode(const ClickRow& row, EncodedRows& to) const override {
    for (const int64_t id : row.ids)
      layout_.id_bytes == 4 ? append(static_cast<int32_t>(id), to.rows) : append(id, to.rows);
    append(row.click ? 1.0F : 0.0F, to.rows);
    for (const int64_t count : row.counts)
      append(static_cast<float>(std::log1p(static_cast<double>(count))), to.rows);
    ++to.num_rows;
  }
  void add(EncodedRows&& rows) override { file_.add(std::move(rows)); }
  void finish() override { file_.finish(map_, "synthetic-ctr"); }

 private:
  const FeatureMap& map_;
  RowLayout layout_;
  RecordFileWriter file_;
};

// Criteo's columns between tabs with hexadecimal ids, or CSV with a header and decimal ones.
class TextWriter final : public RowWriter {
 public:
  TextWriter(const fs::path& path, const FeatureMap& map, bool csv)
      : path_(path.string()),
        csv_(csv),
        fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (!fd_.is_open()) fail<DataError>("{}: cannot create: {}", path_, std::strerror(errno));
    if (!csv) return;
    std::string header = "label";
    for (const std::string& name : map.info().dense) header += "," + name;
    for (const SparseFeature& feature : map.info().sparse) header += "," + feature.name;
    write(header + "\n");
  }
  void encode(const ClickRow& row, EncodedRows& to) const override {
    auto out = std::back_inserter(to.rows);
    const char separator = csv_ ? ',' : '\t';
    *out++ = row.click ? '1' : '0';
    for (const int64_t count : row.counts) fmt::format_to(out, "{}{}", separator, count);
    for (const int64_t id : row.ids)
      csv_ ? fmt::format_to(out, ",{}", id) : fmt::format_to(out, "\t{:08x}", id);
    *out++ = '\n';
    ++to.num_rows;
  }
  void add(EncodedRows&& rows) override { write(rows.rows); }
  void finish() override {
    if (::fsync(fd_.get()) != 0) fail<DataError>("{}: cannot write: {}", path_, std::strerror(errno));
  }

 private:
  void write(std::string_view bytes) {
    if (!write_all(fd_.get(), bytes)) fail<DataError>("{}: cannot write: {}", path_, std::strerror(errno));
  }
  std::string path_;
  bool csv_;
  Descriptor fd_;
};

void check(const SyntheticOptions& options) {
  const ClickModelOptions& model = options.model;
  if (options.rows < 1) fail<SpecError>("--rows: got {}; expected 1 or more", options.rows);
  if (options.validation_rows < 0)
    fail<SpecError>("--validation-rows: got {}; expected 0 or more", options.validation_rows);
  if (model.num_dense < 0 || model.num_dense + static_cast<int64_t>(model.cardinalities.size()) == 0)
    fail<SpecError>("--dense: got {} and no sparse features; expected a feature", model.num_dense);
  for (const int64_t n : model.cardinalities) {
    if (n < 1) fail<SpecError>("--cardinality: got {}; expected 1 or more", n);
  }
  if (!(model.zipf >= 0)) fail<SpecError>("--zipf: got {}; expected 0 or more", model.zipf);
  if (!(model.click_rate > 0 && model.click_rate < 1))
    fail<SpecError>("--click-rate: got {}; expected a number between 0 and 1", model.click_rate);
  if (!(model.signal >= 0)) fail<SpecError>("--signal: got {}; expected 0 or more", model.signal);
  if (options.format == FileFormat::kCriteo &&
      (model.num_dense != kCriteoDense || model.cardinalities.size() != kCriteoSparse)) {
    fail<SpecError>(
        "--format: got criteo with {} dense and {} sparse features; expected 13 and 26, or records or csv",
        model.num_dense, model.cardinalities.size());
  }
}

class Synthesis {
 public:
  Synthesis(const SyntheticOptions& options, const std::atomic<bool>& stop)
      : options_(options), stop_(stop), model_(options.model), map_(map_of(options.model)) {}

  void run() {
    OutputDirectory output(options_.output, options_.force, {});
    write(output.partial() / ("train" + extension()), 0, options_.rows, nullptr);
    nlohmann::ordered_json truth = describe();
    BestScores best;
    if (options_.validation_rows > 0) {
      Validation validation;
      validation.probabilities.resize(static_cast<size_t>(options_.validation_rows));
      validation.clicks.resize(validation.probabilities.size());
      write(output.partial() / ("validation" + extension()), 1, options_.validation_rows, &validation);
      best = best_scores(validation.probabilities, validation.clicks);
      truth["validation"] = {{"rows", options_.validation_rows},
                             {"auc", best.auc},
                             {"log_loss", best.log_loss},
                             {"normalized_entropy", best.normalized_entropy}};
    }
    if (options_.format == FileFormat::kRecords) map_.save(output.partial());
    write_file_atomic(output.partial() / kTruthFile, truth.dump(2) + "\n");
    output.commit();
    // The result, which main() fails without.
    fmt::print("{}: {} rows", output.path().string(), grouped(options_.rows));
    if (options_.validation_rows > 0) {
      fmt::print(
          "; validation {} rows, the best that any model can expect there: AUC {:.4f}, log loss {:.4f}",
          grouped(options_.validation_rows), best.auc, best.log_loss);
    }
    fmt::print("\n");
  }

 private:
  struct Validation {
    std::vector<double> probabilities;
    std::vector<uint8_t> clicks;
  };

  std::string extension() const {
    return options_.format == FileFormat::kRecords  ? ".records"
           : options_.format == FileFormat::kCriteo ? ".tsv"
                                                    : ".csv";
  }

  nlohmann::ordered_json describe() const {
    const ClickModelOptions& model = options_.model;
    return {{"format", "trainer synthetic-ctr"},
            {"rows", options_.rows},
            {"dense", model.num_dense},
            {"cardinalities", model.cardinalities},
            {"zipf", model.zipf},
            {"head", model.head},
            {"pairs", model.pairs},
            {"click_rate", model.click_rate},
            {"signal", model.signal},
            {"seed", model.seed}};
  }

  void write(const fs::path& path, uint64_t stream, int64_t num_rows, Validation* validation) {
    const bool records = options_.format == FileFormat::kRecords;
    std::unique_ptr<RowWriter> writer;
    if (records) {
      writer = std::make_unique<RecordsWriter>(path, map_);
    } else {
      writer = std::make_unique<TextWriter>(path, map_, options_.format == FileFormat::kCsv);
    }
    const double begin_s = monotonic_s();
    double said_s = begin_s;
    const int64_t at_once = 8 * options_.num_threads * kPiece;
    for (int64_t first = 0; first < num_rows; first += at_once) {
      if (stop_) throw Stopped();
      const int64_t n = std::min(at_once, num_rows - first);
      std::vector<EncodedRows> pieces(static_cast<size_t>((n + kPiece - 1) / kPiece));
      parallel_for(n, kPiece, options_.num_threads, [&](int64_t begin, int64_t end) {
        ClickRow row;
        EncodedRows& piece = pieces[static_cast<size_t>(begin / kPiece)];
        for (int64_t i = begin; i < end; ++i) {
          model_.row(stream, first + i, row);
          writer->encode(row, piece);
          if (validation == nullptr) continue;
          validation->probabilities[static_cast<size_t>(first + i)] = row.probability;
          validation->clicks[static_cast<size_t>(first + i)] = row.click ? 1 : 0;
        }
      });
      for (EncodedRows& piece : pieces) writer->add(std::move(piece));
      constexpr double kEvery = 5;  // seconds
      if (monotonic_s() - said_s < kEvery) continue;
      said_s = monotonic_s();
      const double share = static_cast<double>(first + n) / static_cast<double>(num_rows);
      log_info("{:.0f} %, {} rows, {} left", 100 * share, grouped(first + n),
               duration((said_s - begin_s) / share * (1 - share)));
    }
    writer->finish();
  }

  const SyntheticOptions& options_;
  const std::atomic<bool>& stop_;
  ClickModel model_;
  FeatureMap map_;
};

}  // namespace

bool prepare_synthetic(const SyntheticOptions& options, const std::atomic<bool>& stop) {
  try {
    check(options);
    Synthesis(options, stop).run();
    return true;
  } catch (const Stopped&) {
    return false;
  } catch (const fs::filesystem_error& error) {
    fail<DataError>("{}", error.what());
  }
}

}  // namespace trainer::records
