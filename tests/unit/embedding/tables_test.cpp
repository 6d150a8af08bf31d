#include "embedding/tables.h"

#include <ATen/Parallel.h>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "embedding/fbgemm_library.h"
#include "embedding/storage.h"
#include "reference.h"
#include "temporary_directory.h"

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
    {"composed", [](TablesConfig config) { return make_composed_tables(std::move(config), at::kCPU); }},
    {"fbgemm", [](TablesConfig config) { return make_fbgemm_tables(std::move(config), at::kCPU, {}); }},
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
             bool weighted, int64_t lookups_per_step = 1, double tolerance = 1e-6) {
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
      CHECK(difference(out, expected) < tolerance);
      gradients_of.push_back(at::randn_like(out) * 0.3);
    }
    const double lr = 0.1 / static_cast<double>(step), scale = 4;
    const auto gradient = gradients(config, lookups, gradients_of);
    for (Tensor& g : gradients_of) g = g * scale;
    tables->step(lookups, gradients_of, at::scalar_tensor(lr), at::scalar_tensor(scale), kZero, nullptr);
    for (size_t t = 0; t < config.tables.size(); ++t) {
      INFO(backend.name << ", table " << config.tables[t].name << ", step " << step);
      const State expected = update(before[t], gradient[t], config.optimizer, static_cast<float>(lr), step);
      const State got = state_of(*tables, static_cast<int64_t>(t));
      Tensor error = (got.weight - expected.weight).abs() - rounding(expected.weight, config.tables[t].dtype);
      // FBGEMM rounds the change to fp16 too, on a CPU.
      if (config.tables[t].dtype == TableDtype::kFp16 && std::string(backend.name) == "fbgemm") {
        error -= (expected.weight - before[t].weight).abs() * std::exp2(-11.0);
      }
      if (error.numel() > 0) CHECK(error.max().item<double>() < tolerance);
      const Tensor untouched = ~gradient[t].touched;
      CHECK((got.weight.masked_select(untouched) == before[t].weight.masked_select(untouched))
                .all()
                .item<bool>());
      if (got.sum.defined()) CHECK(difference(got.sum, expected.sum) < tolerance);
      if (got.exp_avg.defined()) {
        CHECK(difference(got.exp_avg, expected.exp_avg) < tolerance);
        CHECK(difference(got.exp_avg_sq, expected.exp_avg_sq) < tolerance);
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

// Whether FBGEMM has it on a CPU; what it says where not is tested below.
bool can(const Backend& backend, const TablesConfig& config) {
  return std::string(backend.name) != "fbgemm" || fbgemm_fault(config, at::kCPU).empty();
}

std::vector<Tensor> everything(Tables& tables, size_t count) {
  std::vector<Tensor> all;
  for (size_t t = 0; t < count; ++t) {
    all.push_back(tables.weight(static_cast<int64_t>(t)).clone());
    for (const auto& [name, tensor] : tables.state(static_cast<int64_t>(t))) all.push_back(tensor.clone());
  }
  return all;
}
bool equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Tensor& x, const Tensor& y) { return at::equal(x, y); });
}

}  // namespace

TEST_CASE("Tables equal dense PyTorch tables under every optimizer") {
  torch::manual_seed(1);
  for (const Backend& backend : kBackends) {
    for (const TableOptimizerType type : kOptimizers) {
      INFO("optimizer " << static_cast<int>(type));
      const TablesConfig config = some_tables(type);
      if (!can(backend, config)) continue;
      compare(backend, config, 9, 4, false);
      compare(backend, config, 9, 4, true);
      compare(backend, config, 9, 4, true, 3);
    }
  }
}

TEST_CASE("Weight decay is in a table's gradient, Adam's beside it") {
  torch::manual_seed(2);
  for (const Backend& backend : kBackends) {
    for (const TableOptimizerType type : kOptimizers) {
      TablesConfig config = some_tables(type);
      config.optimizer.weight_decay = 0.03;
      if (can(backend, config)) compare(backend, config, 9, 4, true, 2);
    }
  }
}

TEST_CASE("Tables of fp16 and bf16 are updated in fp32 and rounded to nearest") {
  torch::manual_seed(3);
  for (const Backend& backend : kBackends) {
    for (const TableDtype dtype : {TableDtype::kFp16, TableDtype::kBf16}) {
      for (const TableOptimizerType type : kOptimizers) {
        TablesConfig config = some_tables(type, dtype);
        config.tables[0].dtype = TableDtype::kFp32;
        if (can(backend, config)) compare(backend, config, 9, 4, true, 2);
      }
    }
  }
}

TEST_CASE("Tables take columns of any number, features of one table, long bags and many ids") {
  torch::manual_seed(4);
  for (const Backend& backend : kBackends) {
    TablesConfig config{{{"t", 40, 7}}, {0, 0, 0}, {}};
    for (const int64_t dim : {1, 3, 8, 17, 33, 64, 65, 200}) {
      config.tables[0].dim = dim;
      compare(backend, config, 5, 3, true, 2);
    }
    // Several parts and radix sort, then bags of 10,000 ids. fp32 sums of thousands of terms are off by more.
    const TablesConfig many{{{"t", 100000, 4}, {"u", 3, 4}}, {0, 1}, {}};
    compare(backend, many, 3000, 20, false, 1, 3e-5);
    compare(backend, {{{"t", 5000, 4}}, {0}, {}}, 3, 10000, true, 1, 1e-4);
  }
}

TEST_CASE("Batches, tables, bags and steps may be empty") {
  for (const Backend& backend : kBackends) {
    const TablesConfig config{{{"a", 0, 4}, {"b", 5, 8}, {"unused", 7, 4}}, {0, 1}, {}};
    compare(backend, config, 4, 2, false);
    compare(backend, config, 0, 2, false, 1);
    compare(backend, config, 4, 0, true);
    const auto tables = backend.make(config);
    fill(*tables, config);
    const auto before = everything(*tables, 3);
    tables->step({}, {}, kOne, kOne, kZero, nullptr);
    CHECK(equal(before, everything(*tables, 3)));
    const auto none = backend.make({{}, {}, {}});
    CHECK(none->forward({at::empty({0}, at::kLong), at::zeros({1}, at::kLong), {}, 3}).sizes() ==
          at::IntArrayRef{3, 0});
    CHECK(none->state_bytes() == 0);
  }
}

TEST_CASE("A step with inf or NaN changes nothing") {
  for (const Backend& backend : kBackends) {
    for (const TableOptimizerType type : kOptimizers) {
      const TablesConfig config = some_tables(type);
      if (!can(backend, config)) continue;
      const auto tables = backend.make(config);
      fill(*tables, config);
      const auto before = everything(*tables, 4);
      const Lookup lookup = random_lookup(config, 6, 3, false);
      const Tensor gradient = at::full_like(tables->forward(lookup), NAN);
      tables->step(std::span(&lookup, 1), std::span(&gradient, 1), kOne, kOne, kOne, nullptr);
      CHECK(equal(before, everything(*tables, 4)));
    }
  }
}

TEST_CASE("Tables are the same to the bit for any number of threads") {
  const int threads = at::get_num_threads();
  for (const bool weighted : {false, true}) {
    std::vector<Tensor> results[2];
    for (const int count : {1, 2}) {
      at::set_num_threads(count);
      torch::manual_seed(5);
      const TablesConfig config{
          {{"a", 5000, 16}, {"b", 30, 8, TableDtype::kBf16}, {"c", 200000, 4}}, {0, 1, 2, 0}, {}};
      const auto tables = make_native_tables(config);
      fill(*tables, config);
      std::vector<Lookup> lookups;
      std::vector<Tensor> gradients;
      for (int i = 0; i < 2; ++i) {
        lookups.push_back(random_lookup(config, 4000, 6, weighted));
        const Tensor out = tables->forward(lookups.back());
        results[count - 1].push_back(out);
        gradients.push_back(at::randn_like(out));
      }
      tables->step(lookups, gradients, kOne, kOne, kZero, nullptr);
      for (const Tensor& tensor : everything(*tables, 3)) results[count - 1].push_back(tensor);
    }
    CHECK(equal(results[0], results[1]));
  }
  at::set_num_threads(threads);
}

TEST_CASE("Stochastic rounding takes a neighbour by bits of place and step, right on average") {
  torch::manual_seed(6);
  for (const TableDtype dtype : {TableDtype::kFp16, TableDtype::kBf16}) {
    const int64_t rows = 400, dim = 200;
    // The second one has a block of the first one's rows and columns.
    const TablesConfig whole{
        {{"t", rows, dim, dtype}}, {0}, {.type = TableOptimizerType::kSgd, .seed = 0x123456789ABCDEFULL}};
    const TablesConfig block{{{"t", 100, 60, dtype, 300, 124}}, {0}, whole.optimizer};
    const auto native = make_native_tables(whole), composed = make_composed_tables(whole, at::kCPU);
    const auto shard = make_native_tables(block);
    const Tensor start =
        at::cat({at::randn({rows / 2, dim}), at::randn({rows / 2, dim}) * 1e-5}).to(scalar_type(dtype));
    for (Tables* tables : {native.get(), composed.get()}) tables->weight(0).copy_(start);
    shard->weight(0).copy_(start.narrow(0, 300, 100).narrow(1, 124, 60));
    for (int step = 0; step < 2; ++step) {
      const auto lookup = [](int64_t count) {
        return Lookup{at::arange(count), at::arange(count + 1), {}, count};
      };
      const Lookup all = lookup(rows), some = lookup(100);
      const Tensor before = native->weight(0).to(at::kFloat, false, true);
      const Tensor gradient = at::randn({rows, dim}) * before.abs().clamp_min(1e-6) * 0.01;
      const Tensor part = gradient.narrow(0, 300, 100).narrow(1, 124, 60).contiguous();
      native->step(std::span(&all, 1), std::span(&gradient, 1), kOne, kOne, kZero, nullptr);
      composed->step(std::span(&all, 1), std::span(&gradient, 1), kOne, kOne, kZero, nullptr);
      shard->step(std::span(&some, 1), std::span(&part, 1), kOne, kOne, kZero, nullptr);
      CHECK(at::equal(native->weight(0), composed->weight(0)));
      CHECK(at::equal(native->weight(0).narrow(0, 300, 100).narrow(1, 124, 60), shard->weight(0)));
      // Off by less than a whole distance of neighbours, and by none on average: 80,000 draws of variance below 1/4.
      const Tensor exact = (before - gradient).to(at::kDouble);
      const double lowest = dtype == TableDtype::kFp16 ? -14 : -126,
                   bits = dtype == TableDtype::kFp16 ? 10 : 7;
      const Tensor distance = at::exp2(exact.abs().log2().floor().clamp_min(lowest) - bits);
      const Tensor off = (native->weight(0).to(at::kDouble) - exact) / distance;
      CHECK(off.abs().max().item<double>() < 1 + 1e-9);
      CHECK(off.abs().mean().item<double>() > 0.2);
      CHECK(std::abs(off.mean().item<double>()) < 5 * 0.5 / std::sqrt(static_cast<double>(rows * dim)));
    }
    CHECK(native->state(0).back().second.item<int64_t>() == 2);
  }
}

TEST_CASE("Shards of columns under row-wise Adagrad take the mean over all columns") {
  torch::manual_seed(7);
  for (const Backend& backend : kBackends) {
    if (std::string(backend.name) == "fbgemm") continue;
    // Ranks' tables: columns [0, 8) and [8, 20) of "t", and a table of rank 1's own.
    const TablesConfig whole{{{"t", 20000, 20}}, {0}, {.weight_decay = 0.01}};
    const TablesConfig left{{{"t", 20000, 8}}, {0}, whole.optimizer};
    const TablesConfig right{
        {{"u", 9, 4}, {"t", 20000, 12, TableDtype::kFp32, 0, 8}}, {0, 1}, whole.optimizer};
    const auto all = backend.make(whole), first = backend.make(left), second = backend.make(right);
    fill(*all, whole);
    first->weight(0).copy_(all->weight(0).narrow(1, 0, 8));
    second->weight(1).copy_(all->weight(0).narrow(1, 8, 12));
    for (int step = 0; step < 2; ++step) {
      const Lookup lookup = random_lookup(whole, 2000, 20, true);  // several parts
      Lookup both = lookup;
      both.offsets = at::cat({at::zeros({2000}, at::kLong), lookup.offsets});  // empty bags of "u"
      const Tensor gradient = at::randn({2000, 20}), left_gradient = gradient.narrow(1, 0, 8).contiguous();
      const Tensor right_gradient = at::cat({at::randn({2000, 4}), gradient.narrow(1, 8, 12)}, 1);
      // The second rank's sums are found by a step that is then repeated.
      Tensor of_right, of_left;
      const auto second_state = everything(*second, 2);
      const RowSums find{{1}, {20}, [&](std::span<Tensor> sums) { of_right = sums[0].clone(); }};
      second->step(std::span(&both, 1), std::span(&right_gradient, 1), kOne, kOne, kZero, &find);
      second->weight(1).copy_(second_state[2]);
      second->state(1)[0].second.copy_(second_state[3]);
      const RowSums add_right{{0}, {20}, [&](std::span<Tensor> sums) {
                                of_left = sums[0].clone();
                                REQUIRE(of_left.sizes() == of_right.sizes());
                                sums[0].add_(of_right);
                              }};
      first->step(std::span(&lookup, 1), std::span(&left_gradient, 1), kOne, kOne, kZero, &add_right);
      const RowSums add_left{{1}, {20}, [&](std::span<Tensor> sums) { sums[0].add_(of_left); }};
      second->step(std::span(&both, 1), std::span(&right_gradient, 1), kOne, kOne, kZero, &add_left);
      all->step(std::span(&lookup, 1), std::span(&gradient, 1), kOne, kOne, kZero, nullptr);
      CHECK(difference(at::cat({first->weight(0), second->weight(1)}, 1), all->weight(0)) < 1e-6);
      CHECK(difference(first->state(0)[0].second, all->state(0)[0].second) < 1e-6);
      CHECK(at::equal(first->state(0)[0].second, second->state(1)[0].second));
    }
  }
}

TEST_CASE("Tables begin at zero, name their state and give their own memory") {
  for (const Backend& backend : kBackends) {
    for (const auto& [type, names, bytes] :
         {std::tuple(TableOptimizerType::kRowwiseAdagrad, "sum ", 50 * 4),
          std::tuple(TableOptimizerType::kAdagrad, "sum ", 50 * 16 * 4),
          std::tuple(TableOptimizerType::kSgd, "", 0),
          std::tuple(TableOptimizerType::kAdam, "exp_avg exp_avg_sq step ", 2 * 50 * 16 * 4 + 8)}) {
      const TablesConfig config{{{"a", 50, 16}}, {0}, {.type = type}};
      if (!can(backend, config)) continue;
      const auto tables = backend.make(config);
      std::string got;
      for (const auto& [name, tensor] : tables->state(0)) got += name + " ";
      CHECK(got == names);
      CHECK(tables->state_bytes() == bytes);
      for (const Tensor& tensor : everything(*tables, 1)) CHECK(tensor.eq(0).all().item<bool>());
      tables->weight(0).fill_(2);
      CHECK(tables->weight(0).eq(2).all().item<bool>());
      CHECK(tables->forward({at::tensor({3L}), at::tensor({0L, 1L}), {}, 1}).eq(2).all().item<bool>());
    }
  }
}

TEST_CASE("A large table is zero and aligned to huge pages") {
  const Tensor table = zeros({1 << 20, 16}, at::kFloat, at::kCPU);
  CHECK(reinterpret_cast<uintptr_t>(table.data_ptr()) % (2 << 20) == 0);
  CHECK(table.narrow(0, 1 << 19, 10).eq(0).all().item<bool>());
}

TEST_CASE("Lookups in a row are one lookup of all samples") {
  torch::manual_seed(8);
  const TablesConfig config = some_tables(TableOptimizerType::kSgd);
  const auto tables = make_composed_tables(config, at::kCPU);
  fill(*tables, config);
  std::vector<Lookup> lookups{random_lookup(config, 3, 2, true), random_lookup(config, 0, 2, false),
                              random_lookup(config, 4, 3, false)};
  std::vector<Tensor> expected;
  for (const Lookup& lookup : lookups) expected.push_back(tables->forward(lookup));
  const Lookup all = concat_lookups(lookups, 5);
  CHECK(all.batch == 7);
  CHECK(difference(tables->forward(all), at::cat(expected)) < 1e-6);
  CHECK(concat_lookups(std::span(lookups).first(1), 5).ids.is_same(lookups[0].ids));
}

TEST_CASE("make_tables gives the backend that is asked for, and says what it cannot do") {
  using Catch::Contains;
  using spec::EmbeddingBackend;
  const std::vector<Table> one{{"clicks", 10, 4}};
  const auto make = [&](EmbeddingBackend backend, const std::vector<Table>& tables,
                        TableOptimizer optimizer = {}) {
    return make_tables(backend, tables, {0}, optimizer, at::kCPU)->backend();
  };
  CHECK(make(EmbeddingBackend::kAuto, one) == "native");
  CHECK(make(EmbeddingBackend::kNative, one) == "native");
  CHECK(make(EmbeddingBackend::kFbgemm, one) == "fbgemm");
  CHECK_THROWS_WITH(make(EmbeddingBackend::kNative, {{"clicks", -1, 4}}),
                    "embedding table clicks: -1 rows of 4 columns; expected at least 0 rows and 1 column");
  CHECK_THROWS_WITH(make_tables(EmbeddingBackend::kNative, one, {1}, {}, at::kCPU),
                    "embedding feature of table 1: there are 1");
  CHECK_THROWS_WITH(make(EmbeddingBackend::kFbgemm, one, {.type = TableOptimizerType::kAdam}),
                    "model.recommender.embedding_backend: fbgemm has no Adam on a CPU");
  CHECK_THROWS_WITH(make(EmbeddingBackend::kFbgemm, one, {.weight_decay = 0.1}),
                    Contains("fbgemm has no weight decay for rowwise_adagrad on a CPU"));
  CHECK_THROWS_WITH(make(EmbeddingBackend::kFbgemm, {{"clicks", 10, 4, TableDtype::kBf16}}),
                    Contains("fbgemm has no bf16 tables; table clicks is one"));
  CHECK_THROWS_WITH(
      make(EmbeddingBackend::kFbgemm, {{"clicks", 10, 4, TableDtype::kFp16}}),
      Contains("fbgemm has no stochastic rounding on a CPU") && Contains("stochastic_rounding: false"));
  const TablesConfig on_gpu{{{"clicks", 10, 6}}, {0}, {.type = TableOptimizerType::kSgd}};
  CHECK_THAT(fbgemm_fault(on_gpu, at::kCUDA),
             Contains("fbgemm needs columns in fours on a GPU; table clicks has 6"));
  const auto fbgemm = make_tables(EmbeddingBackend::kFbgemm, one, {0}, {}, at::kCPU);
  const RowSums sums{{0}, {8}, nullptr};
  CHECK_THROWS_WITH(fbgemm->step({}, {}, kOne, kOne, kZero, &sums), Contains("sharded by columns"));
  const Lookup huge{at::empty({0}, at::kLong),
                    at::zeros({1}, at::kLong).expand({(int64_t{1} << 31) + 1}),
                    {},
                    int64_t{1} << 31};
  CHECK_THROWS_WITH(
      fbgemm->forward(huge),
      "embedding tables: fbgemm takes 2147483647 samples at a time of 1 features; got 2147483648");
}

TEST_CASE("A missing FBGEMM is named with the way to get it") {
  using Catch::Contains;
  CHECK_THAT(load_fbgemm(at::kCPU, {"/nowhere/fbgemm_gpu"}),
             Contains("there is no package fbgemm_gpu; looked for\n  /nowhere/fbgemm_gpu") &&
                 Contains("hint: pip install --no-deps fbgemm-gpu-cpu==1.6.0") && Contains("TRAINER_FBGEMM"));
  const TemporaryDirectory directory;
  directory.write("fbgemm_gpu_py.so", "not a library");
  CHECK_THAT(load_fbgemm(at::kCPU, {directory.path}),
             Contains("it does not load: ") && Contains("LibTorch's"));
  CHECK(load_fbgemm(at::kCPU).empty());
  CHECK_THAT(load_fbgemm(at::kCUDA),
             Contains("the package has no operators for cuda") && Contains("fbgemm-gpu=="));
}
