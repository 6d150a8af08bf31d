#include "embedding/tables.h"

#include <ATen/Parallel.h>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "reference.h"

using namespace trainer;
using namespace trainer::embedding;
using namespace trainer::embedding::reference;
using at::Tensor;
using spec::TableDtype;
using spec::TableOptimizerType;

namespace {

const Tensor kOne = at::ones({}), kZero = at::zeros({});

struct Backend {
  const char* name;
  std::unique_ptr<Tables> (*make)(TablesConfig);
};
const Backend kBackends[] = {
    {"native", [](TablesConfig config) { return make_native_tables(std::move(config)); }},
};

void fill(Tables& tables, const TablesConfig& config) {
  for (size_t t = 0; t < config.tables.size(); ++t) {
    tables.weight(static_cast<int64_t>(t))
        .copy_(at::randn({config.tables[t].rows, config.tables[t].dim}) * 0.1);
  }
}

// Half the distance of neighbours in a dtype, at most, around these numbers.
Tensor rounding(const Tensor& x, TableDtype dtype) {
  if (dtype == TableDtype::kFp32) return at::zeros_like(x);
  const double bits = dtype == TableDtype::kFp16 ? 11 : 8;
  return at::exp2(x.abs().clamp_min(std::exp2(-14.0)).log2().floor() - bits);
}

// Three steps of `backend`, each from where the one before ended, against the reference.
void compare(const Backend& backend, const TablesConfig& config, int64_t batch, int64_t max_length,
             bool weighted, int64_t lookups_per_step = 1) {
  const auto tables = backend.make(config);
  fill(*tables, config);
  for (int64_t step = 1; step <= 3; ++step) {
    std::vector<Lookup> lookups;
    std::vector<Tensor> gradients_of;
    std::vector<State> before;
    std::vector<Tensor> weights;
    for (size_t t = 0; t < config.tables.size(); ++t) {
      before.push_back(state_of(*tables, static_cast<int64_t>(t)));
      weights.push_back(before.back().weight);
    }
    for (int64_t i = 0; i < lookups_per_step; ++i) {
      lookups.push_back(random_lookup(config, batch + i, max_length, weighted));
      const Tensor out = tables->forward(lookups.back());
      const Tensor expected = pooled(config, lookups.back(), weights);
      REQUIRE(out.scalar_type() == at::kFloat);
      REQUIRE(out.sizes() == expected.sizes());
      CHECK(difference(out, expected) < 1e-6);
      gradients_of.push_back(at::randn_like(out) * 0.3);
    }
    const double lr = 0.1 / static_cast<double>(step), scale = 4;
    const auto gradient = gradients(config, lookups, gradients_of);
    for (Tensor& g : gradients_of) g = g * scale;
    tables->step(lookups, gradients_of, at::tensor(lr, at::kFloat), at::tensor(scale, at::kFloat), kZero,
                 nullptr);
    for (size_t t = 0; t < config.tables.size(); ++t) {
      INFO(backend.name << ", table " << config.tables[t].name << ", step " << step);
      const State expected = update(before[t], gradient[t], config.optimizer, static_cast<float>(lr), step);
      const State got = state_of(*tables, static_cast<int64_t>(t));
      const Tensor error =
          (got.weight - expected.weight).abs() - rounding(expected.weight, config.tables[t].dtype);
      if (error.numel() > 0) CHECK(error.max().item<double>() < 1e-6);
      const Tensor untouched = ~gradient[t].touched;
      CHECK((got.weight.masked_select(untouched) == before[t].weight.masked_select(untouched))
                .all()
                .item<bool>());
      if (got.sum.defined()) CHECK(difference(got.sum, expected.sum) < 1e-6);
      if (got.exp_avg.defined()) {
        CHECK(difference(got.exp_avg, expected.exp_avg) < 1e-6);
        CHECK(difference(got.exp_avg_sq, expected.exp_avg_sq) < 1e-6);
      }
    }
  }
}

// Tables of several dims, one of them shared by two features that are not neighbours.
TablesConfig some_tables(TableOptimizerType type, TableDtype dtype = TableDtype::kFp32) {
  return {{{"a", 50, 16, dtype}, {"b", 7, 4, dtype}, {"c", 300, 132, dtype}, {"d", 3, 20, dtype}},
          {0, 1, 2, 0, 3},
          {.type = type, .stochastic_rounding = false}};
}

constexpr TableOptimizerType kOptimizers[] = {TableOptimizerType::kRowwiseAdagrad,
                                              TableOptimizerType::kAdagrad, TableOptimizerType::kSgd,
                                              TableOptimizerType::kAdam};

}  // namespace

TEST_CASE("Tables equal dense PyTorch tables under every optimizer") {
  torch::manual_seed(1);
  for (const Backend& backend : kBackends) {
    for (const TableOptimizerType type : kOptimizers) {
      INFO("optimizer " << static_cast<int>(type));
      compare(backend, some_tables(type), 9, 4, false);
      compare(backend, some_tables(type), 9, 4, true);
      compare(backend, some_tables(type), 9, 4, true, 3);
    }
  }
}
