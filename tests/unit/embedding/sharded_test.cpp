#include "embedding/sharded.h"

#include <torch/torch.h>

#include <catch2/catch.hpp>
#include <map>

#include "../dist/ranks.h"
#include "core/error.h"
#include "embedding/initialize.h"
#include "reference.h"

using namespace trainer;
using namespace trainer::embedding;
using at::Tensor;
using spec::Pooling;
using spec::Sharding;
using spec::TableOptimizerType;

namespace {

constexpr double kLr = 0.1;
constexpr int64_t kSteps = 5;
constexpr uint64_t kSeed = 11;

TableConfig table(const std::string& name, int64_t rows, int64_t dim, std::vector<int64_t> features,
                  Pooling pooling = Pooling::kSum) {
  TableConfig t;
  t.name = name;
  t.rows = rows;
  t.dim = dim;
  t.features = std::move(features);
  t.pooling = pooling;
  return t;
}

// Features and tables in different orders, one table of two features, one with fewer rows than ranks, one that is pooled by
// the mean, one whose columns are no multiple of 4.
std::vector<TableConfig> model() {
  return {table("shared", 50, 16, {0, 3}), table("mean", 23, 8, {4}, Pooling::kMean),
          table("tiny", 3, 12, {1}), table("odd", 101, 17, {2})};
}

TablesConfig reference_config(const std::vector<TableConfig>& tables, const TableOptimizer& optimizer) {
  TablesConfig config;
  config.optimizer = optimizer;
  for (size_t t = 0; t < tables.size(); ++t) {
    config.tables.push_back({tables[t].name, tables[t].rows, tables[t].dim});
    for (const int64_t f : tables[t].features) {
      config.feature_tables.resize(std::max(config.feature_tables.size(), static_cast<size_t>(f) + 1));
      config.feature_tables[static_cast<size_t>(f)] = static_cast<int64_t>(t);
    }
  }
  return config;
}

// Samples [begin, end) of a lookup.
data::Records part(const Lookup& all, int64_t num_features, int64_t begin, int64_t end) {
  std::vector<Tensor> ids, weights, lengths;
  const Tensor all_lengths = all.offsets.diff();
  for (int64_t f = 0; f < num_features; ++f) {
    const int64_t first = f * all.batch + begin, last = f * all.batch + end;
    const int64_t from = all.offsets[first].item<int64_t>(), to = all.offsets[last].item<int64_t>();
    ids.push_back(all.ids.slice(0, from, to));
    if (all.weights.defined()) weights.push_back(all.weights.slice(0, from, to));
    lengths.push_back(all_lengths.slice(0, first, last));
  }
  data::Records records;
  records.ids = at::cat(ids);
  if (!weights.empty()) records.weights = at::cat(weights);
  records.offsets = at::cat({at::zeros({1}, at::kLong), at::cat(lengths).cumsum(0)});
  return records;
}

struct Case {
  std::vector<TableConfig> tables = model();
  TableOptimizer optimizer;
  spec::GradientCompression compression = spec::GradientCompression::kNone;
  bool weighted = false;
  bool prefetched = false;
  int64_t batch = 13, micro_batches = 2;
};

// One step's micro-batches of all samples, and what multiplies their pooled columns in the loss.
struct Step {
  std::vector<Lookup> lookups;
  std::vector<Tensor> factors;
};
std::vector<Step> make_steps(const Case& c) {
  at::manual_seed(7);
  const TablesConfig config = reference_config(c.tables, c.optimizer);
  std::vector<Step> steps(kSteps);
  for (Step& step : steps) {
    for (int64_t m = 0; m < c.micro_batches; ++m) {
      step.lookups.push_back(reference::random_lookup(config, c.batch, 4, c.weighted));
      int64_t columns = 0;
      for (const int64_t t : config.feature_tables) columns += config.tables[static_cast<size_t>(t)].dim;
      step.factors.push_back(at::randn({c.batch, columns}));
    }
  }
  return steps;
}

struct Result {
  std::vector<Tensor> pooled;                        // of each micro-batch, all samples
  std::map<std::string, Tensor> tensors;             // whole tables and states
  std::vector<std::map<std::string, Tensor>> ranks;  // what each holds
};

// The loss is the sum of pooled * (factor + pooled / 2): the gradient is factor + pooled, on which an error in either goes on.
Result expect(const Case& c) {
  const TablesConfig config = reference_config(c.tables, c.optimizer);
  std::vector<reference::State> states;
  for (const TableConfig& t : c.tables) {
    const Tensor weight = at::empty({t.rows, t.dim});
    initialize(weight, t.name, kSeed, t.rows, 0, 0);
    const Tensor by_row = at::zeros({t.rows}, at::kDouble), whole = at::zeros({t.rows, t.dim}, at::kDouble);
    const bool rowwise = c.optimizer.type == TableOptimizerType::kRowwiseAdagrad;
    states.push_back({weight.to(at::kDouble), rowwise ? by_row : whole, whole, whole});
  }
  Result result;
  int64_t number = 0;
  for (const Step& step : make_steps(c)) {
    std::vector<Tensor> gradients;
    std::vector<Tensor> weights;
    for (const auto& s : states) weights.push_back(s.weight);
    for (size_t m = 0; m < step.lookups.size(); ++m) {
      const Lookup& lookup = step.lookups[m];
      std::vector<Tensor> inverse;
      for (size_t f = 0; f < config.feature_tables.size(); ++f) {
        const TableConfig& t = c.tables[static_cast<size_t>(config.feature_tables[f])];
        Tensor lengths = lookup.offsets.diff().narrow(0, static_cast<int64_t>(f) * c.batch, c.batch);
        lengths = t.pooling == Pooling::kMean ? lengths.clamp_min(1) : at::ones_like(lengths);
        inverse.push_back(lengths.to(at::kDouble).reciprocal().unsqueeze(1).expand({c.batch, t.dim}));
      }
      const Tensor scale = at::cat(inverse, 1);
      const Tensor pooled = reference::pooled(config, lookup, weights) * scale;
      result.pooled.push_back(pooled);
      gradients.push_back((step.factors[m] + pooled) * scale);
    }
    const auto dense = reference::gradients(config, step.lookups, gradients);
    ++number;
    for (size_t t = 0; t < states.size(); ++t)
      states[t] = reference::update(states[t], dense[t], c.optimizer, kLr, number);
  }
  for (size_t t = 0; t < states.size(); ++t) {
    const std::string name = "embeddings." + c.tables[t].name;
    result.tensors[name + ".weight"] = states[t].weight;
    result.tensors[name + ".sum"] = states[t].sum;
    result.tensors[name + ".exp_avg"] = states[t].exp_avg;
    result.tensors[name + ".exp_avg_sq"] = states[t].exp_avg_sq;
  }
  return result;
}

// Where each rank's samples begin: uneven, and none on some ranks.
std::vector<int64_t> bounds(int64_t ranks, int64_t batch, int64_t micro_batch) {
  if (ranks == 1) return {0, batch};
  if (ranks == 2)
    return micro_batch % 2 == 0 ? std::vector<int64_t>{0, 5, batch} : std::vector<int64_t>{0, 0, batch};
  if (ranks == 3) return {0, 0, 3, batch};
  return {0, 0, 3, batch - 1, batch};
}

EmbeddingPlan plan_of(const std::vector<TableConfig>& tables, int64_t ranks) {
  EmbeddingPlanOptions options;
  options.world_size = ranks;
  options.global_batch = 13;
  return plan_embeddings(tables, options);
}

void train(const Case& c, dist::Communicator& communicator, const std::vector<Step>& steps, Result& result) {
  ShardedOptions options;
  options.optimizer = c.optimizer;
  options.compression = c.compression;
  options.seed = kSeed;
  ShardedEmbedding embedding(c.tables, plan_of(c.tables, communicator.size()), options, communicator,
                             at::kCPU);
  std::vector<std::pair<data::Records, Tensor>> batches;
  for (const Step& step : steps) {
    for (size_t m = 0; m < step.lookups.size(); ++m) {
      const auto b = bounds(communicator.size(), c.batch, static_cast<int64_t>(m));
      const auto begin = b[static_cast<size_t>(communicator.rank())],
                 end = b[static_cast<size_t>(communicator.rank()) + 1];
      batches.emplace_back(part(step.lookups[m], 5, begin, end), step.factors[m].slice(0, begin, end));
    }
  }
  const Tensor lr = at::full({}, kLr), one = at::ones({}), zero = at::zeros({});
  for (size_t i = 0; i < batches.size(); ++i) {
    const auto& [records, factor] = batches[i];
    embedding.start(records, factor.size(0));
    const Tensor pooled = embedding.finish();
    if (c.prefetched && i + 1 < batches.size())
      embedding.prefetch(batches[i + 1].first, batches[i + 1].second.size(0));
    const Tensor all = communicator.all_gather_rows(pooled.detach());
    if (communicator.rank() == 0) result.pooled.push_back(all);
    (pooled * (factor + pooled / 2)).sum().backward();
    if ((i + 1) % static_cast<size_t>(c.micro_batches) == 0) {
      const float flag = embedding.gradient_flag().item<float>();
      if (flag != 0) throw std::runtime_error("flag");
      embedding.step(lr, one, zero);
    }
  }
  auto& held = result.ranks[static_cast<size_t>(communicator.rank())];
  for (const tensors::Slice& s : embedding.slices()) {
    held[s.name + (s.is_copy ? " copy" : "")] = s.tensor.clone();
    const Tensor mine = at::zeros(s.shape, s.tensor.options());
    if (s.is_copy) continue;
    Tensor block = mine;
    if (s.tensor.dim() >= 1) block = block.narrow(0, s.row_begin, s.tensor.size(0));
    if (s.tensor.dim() == 2) block = block.narrow(1, s.col_begin, s.tensor.size(1));
    block.copy_(s.tensor);
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    Tensor& whole = result.tensors[s.name];
    whole = whole.defined() ? whole + mine : mine;
  }
}

Result run(const Case& c, int64_t ranks) {
  Result result;
  result.ranks.resize(static_cast<size_t>(ranks));
  const std::vector<Step> steps = make_steps(c);
  if (ranks == 1) {
    train(c, *dist::make_single_process(), steps, result);
  } else {
    const auto errors = test::run_ranks(
        ranks, [&](dist::Communicator& communicator) { train(c, communicator, steps, result); });
    CHECK(errors == std::vector<std::string>(static_cast<size_t>(ranks)));
  }
  return result;
}

void compare(const Case& c, int64_t ranks, double tolerance) {
  const Result expected = expect(c), got = run(c, ranks);
  REQUIRE(got.pooled.size() == expected.pooled.size());
  for (size_t i = 0; i < expected.pooled.size(); ++i)
    CHECK(reference::difference(got.pooled[i], expected.pooled[i]) < tolerance);
  for (const auto& [name, tensor] : got.tensors) {
    if (name.ends_with(".step")) continue;
    INFO(name);
    REQUIRE(expected.tensors.count(name) == 1);
    REQUIRE(tensor.sizes() == expected.tensors.at(name).sizes());
    CHECK(reference::difference(tensor, expected.tensors.at(name)) < tolerance);
  }
  for (const TableConfig& t : c.tables) CHECK(got.tensors.count("embeddings." + t.name + ".weight") == 1);
  // What several ranks hold is the same on all, to the bit.
  for (const auto& rank : got.ranks) {
    for (const auto& [name, tensor] : rank) {
      if (!name.ends_with(" copy")) continue;
      const std::string whole = name.substr(0, name.size() - 5);
      CHECK(tensor.equal(got.tensors.at(whole)));
    }
  }
}

// fp32 sums of up to 30 numbers, in a gradient of relative error 30 * 2^-24, five times into steps of lr.
constexpr double kTolerance = 1e-5;

}  // namespace

TEST_CASE(
    "every plan of 1, 2 and 4 ranks pools and trains as whole fp64 tables do, with uneven and empty "
    "batches") {
  for (const int64_t ranks : {1, 2, 4}) {
    for (const Sharding sharding :
         {Sharding::kAuto, Sharding::kTable, Sharding::kRow, Sharding::kColumn, Sharding::kData}) {
      INFO(ranks << " ranks, sharding " << static_cast<int>(sharding));
      Case c;
      for (TableConfig& t : c.tables) t.sharding = sharding;
      compare(c, ranks, kTolerance);
    }
  }
}

TEST_CASE(
    "four strategies mixed in one model, of weighted bags and with ids sent ahead, for every optimizer") {
  for (const auto type : {TableOptimizerType::kRowwiseAdagrad, TableOptimizerType::kAdagrad,
                          TableOptimizerType::kSgd, TableOptimizerType::kAdam}) {
    Case c;
    c.optimizer.type = type;
    c.optimizer.weight_decay = 0.01;
    c.weighted = true;
    c.prefetched = true;
    c.tables[0].sharding = Sharding::kColumn;
    c.tables[1].sharding = Sharding::kData;
    c.tables[2].sharding = Sharding::kTable;
    c.tables[3].sharding = Sharding::kRow;
    for (const int64_t ranks : {1, 2, 3}) {
      INFO(ranks << " ranks, optimizer " << static_cast<int>(type));
      compare(c, ranks, kTolerance);
    }
  }
}
