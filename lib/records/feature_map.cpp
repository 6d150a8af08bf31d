#include "records/feature_map.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>

#include "core/clock.h"
#include "core/error.h"
#include "core/format.h"
#include "core/log.h"
#include "core/parallel_for.h"
#include "records/columns.h"
#include "records/fields.h"
#include "records/fingerprint.h"
#include "records/row_encoder.h"
#include "spec/enums.h"

namespace trainer::records {
namespace {

// Says how far it is, when it takes long.
class Progress {
 public:
  Progress(const RecordReader& reader, const char* what) : reader_(reader), what_(what) {}
  void at(int64_t part) {
    constexpr double kEvery = 5;  // seconds
    if (monotonic_s() - said_s_ < kEvery) return;
    said_s_ = monotonic_s();
    const double share = static_cast<double>(part + 1) / static_cast<double>(reader_.num_parts());
    const double rate = share * static_cast<double>(reader_.size_bytes()) / (said_s_ - begin_s_);
    log_info("{}: {} {:.0f} %, {}/s, {} left", reader_.path(), what_, 100 * share,
             binary_bytes(static_cast<int64_t>(rate)), duration((said_s_ - begin_s_) / share * (1 - share)));
  }

 private:
  const RecordReader& reader_;
  const char* what_;
  double begin_s_ = monotonic_s(), said_s_ = begin_s_;
};

// Occurrences of the ids of each table, in a whole file.
std::vector<IdCounts> count_ids(const RecordReader& reader, const spec::Features& features,
                                const FeatureInfo& info, int64_t num_threads) {
  std::vector<int64_t> columns;
  for (const SparseFeature& feature : info.sparse)
    columns.push_back(find_column(reader.columns(), "data.features.sparse", feature.name));
  std::vector<IdCounts> all(info.tables.size());
  std::mutex mutex;
  Progress progress(reader, "counting ids");
  // A thread's own, added to all when it has grown to this or there is no more to count.
  using Counts = std::vector<IdCounts>;
  const auto merge = [&](Counts& own) {
    for (size_t t = 0; t < own.size(); ++t) all[t].merge(own[t]);
    own = Counts(all.size());
  };
  std::vector<std::unique_ptr<Counts>> owned;
  parallel_for(reader.num_parts(), 1, num_threads, [&]() -> LoopBody {
    const std::lock_guard lock(mutex);
    owned.push_back(std::make_unique<Counts>(all.size()));
    return [&, own = owned.back().get()](int64_t begin, int64_t) {
      reader.read(begin, columns, [&](int64_t, std::span<const std::string_view> fields) {
        for (size_t f = 0; f < fields.size(); ++f) {
          IdCounts& counts = (*own)[static_cast<size_t>(info.sparse[f].table)];
          if (info.multi_hot) {
            for_each_item(features, fields[f],
                          [&](std::string_view id, std::string_view) { counts.add(id); });
          } else if (!fields[f].empty()) {
            counts.add(fields[f]);
          }
        }
      });
      const std::lock_guard lock_progress(mutex);
      progress.at(begin);
    };
  });
  for (const auto& own : owned) merge(*own);
  return all;
}

void warn_out_of_range(const RecordReader& reader, const FeatureInfo& info, spec::OutOfRange rule,
                       const std::vector<int64_t>& counts) {
  std::vector<std::string> named;
  int64_t total = 0;
  for (size_t f = 0; f < counts.size(); ++f) {
    total += counts[f];
    if (counts[f] > 0) named.push_back(fmt::format("{}: {}", info.sparse[f].name, grouped(counts[f])));
  }
  if (total == 0) return;
  log_warning("{}: {} id{} out of range {} {} ({})", reader.path(), grouped(total), total == 1 ? "" : "s",
              total == 1 ? "is" : "are", rule == spec::OutOfRange::kWrap ? "wrapped" : "left out",
              fmt::join(named, ", "));
}

}  // namespace

FeatureMap FeatureMap::fit(const RecordReader& train, const spec::Features& features,
                           const spec::Recommender& model, int64_t num_threads) {
  FeatureMap map;
  map.features_ = resolve_columns(train.columns(), features);
  map.info_ = make_tables(map.features_, model);
  map.hexadecimal_ = train.hexadecimal_ids();
  FieldColumns(train, map.features_, true);  // all are there
  if (features.ids != spec::IdMapping::kVocabulary) {
    for (const TableInfo& table : map.info_.tables) {
      if (table.rows > 0) continue;
      fail<SpecError>(
          "model.recommender.tables.{}.rows: got none, and data.features.ids is {}; expected how many rows "
          "the table "
          "has\nhint: model.recommender.rows says it of all tables",
          table.name, spec::to_string(features.ids));
    }
    return map;
  }
  const std::vector<IdCounts> counts = count_ids(train, map.features_, map.info_, num_threads);
  map.vocabularies_.resize(counts.size());
  parallel_for(static_cast<int64_t>(counts.size()), 1, num_threads, [&](int64_t t, int64_t) {
    TableInfo& table = map.info_.tables[static_cast<size_t>(t)];
    const int64_t most = table.rows > 0 ? table.rows - 1 : INT64_MAX;
    auto& vocabulary = map.vocabularies_[static_cast<size_t>(t)];
    vocabulary = Vocabulary(counts[static_cast<size_t>(t)], map.features_.min_count, most);
    table.rows = vocabulary.rows();
  });
  return map;
}

FeatureMap FeatureMap::given(spec::Features features, FeatureInfo info) {
  FeatureMap map;
  map.features_ = std::move(features);
  map.info_ = std::move(info);
  return map;
}

const Vocabulary* FeatureMap::vocabulary(int64_t table) const {
  return vocabularies_.empty() ? nullptr : &vocabularies_[static_cast<size_t>(table)];
}

RowLayout FeatureMap::layout(bool labels) const {
  RowLayout layout;
  layout.num_dense = static_cast<int64_t>(info_.dense.size());
  layout.num_sparse = static_cast<int64_t>(info_.sparse.size());
  layout.labels = labels;
  layout.groups = info_.groups;
  layout.ragged = info_.multi_hot;
  layout.weighted = info_.weighted;
  for (const TableInfo& table : info_.tables) {
    if (table.rows > INT32_MAX) layout.id_bytes = 8;
  }
  return layout;
}

RowLayout FeatureMap::encode(const RecordReader& reader, bool labels_required, int64_t num_threads,
                             RowSink& sink) const {
  const FieldColumns fields(reader, features_, labels_required);
  const RowLayout layout = this->layout(fields.labels);
  std::vector<int64_t> out_of_range(info_.sparse.size());
  Progress progress(reader, "encoding");
  // Some parts at once, then to the sink in their order.
  const int64_t at_once = 4 * num_threads;
  for (int64_t first = 0; first < reader.num_parts(); first += at_once) {
    std::vector<EncodedRows> encoded(static_cast<size_t>(std::min(at_once, reader.num_parts() - first)));
    parallel_for(static_cast<int64_t>(encoded.size()), 1, num_threads, [&](int64_t i, int64_t) {
      RowEncoder encoder(*this, layout, reader, first + i, encoded[static_cast<size_t>(i)]);
      reader.read(first + i, fields.columns,
                  [&](int64_t row, std::span<const std::string_view> texts) { encoder.add(row, texts); });
    });
    for (EncodedRows& rows : encoded) {
      for (size_t f = 0; f < out_of_range.size(); ++f) out_of_range[f] += rows.out_of_range[f];
      sink.add(std::move(rows));
    }
    progress.at(std::min(first + at_once, reader.num_parts()));
  }
  warn_out_of_range(reader, info_, features_.out_of_range, out_of_range);
  return layout;
}

}  // namespace trainer::records
