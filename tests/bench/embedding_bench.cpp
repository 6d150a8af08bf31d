// Time of a lookup and of an optimizer step of embedding tables, by our kernels, by FBGEMM and by ATen:
//   embedding_bench TABLES ROWS DIM [THREADS [ROUNDS [DTYPE]]]
// Batch 2,048, one id a bag, Zipf ids scattered over the rows; row-wise Adagrad. Medians of rounds in turn. With one
// thread it is CPU time, which other processes disturb less.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "embedding/backends.h"
#include "embedding/tables.h"

using namespace trainer;
using namespace trainer::embedding;
using at::Tensor;

namespace {

constexpr int64_t kBatch = 2048, kBatches = 8;

clockid_t clock_id = CLOCK_MONOTONIC;

double now_ms() {
  timespec t{};
  clock_gettime(clock_id, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

// Ids below `rows` of probability 1 / (rank + 1)^1.05 about, ranks scattered by a multiplication.
Tensor zipf(int64_t count, int64_t rows) {
  const double s = 1.05, most = std::pow(static_cast<double>(rows), 1 - s);
  const Tensor u = at::rand({count}, at::kDouble);
  const Tensor rank = (u * (most - 1) + 1).pow(1 / (1 - s)).floor().to(at::kLong).clamp(1, rows) - 1;
  return (rank * 7919 + 13) % rows;
}

struct Times {
  std::vector<double> forward, step;
};
double median(std::vector<double>& v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t tables = argc > 1 ? std::atoll(argv[1]) : 26, rows = argc > 2 ? std::atoll(argv[2]) : 100000;
  const int64_t dim = argc > 3 ? std::atoll(argv[3]) : 16;
  at::set_num_threads(argc > 4 ? std::atoi(argv[4]) : 2);
  if (at::get_num_threads() == 1) clock_id = CLOCK_THREAD_CPUTIME_ID;
  const int rounds = argc > 5 ? std::atoi(argv[5]) : 30;
  const std::string dtype = argc > 6 ? argv[6] : "fp32";
  TablesConfig config;
  config.optimizer.stochastic_rounding = argc > 7;
  for (int64_t t = 0; t < tables; ++t) {
    config.tables.push_back({fmt::format("t{}", t), rows, dim,
                             dtype == "fp16"   ? spec::TableDtype::kFp16
                             : dtype == "bf16" ? spec::TableDtype::kBf16
                                               : spec::TableDtype::kFp32});
    config.feature_tables.push_back(t);
  }
  std::vector<Lookup> lookups;
  for (int64_t i = 0; i < kBatches; ++i) {
    lookups.push_back({zipf(kBatch * tables, rows), at::arange(kBatch * tables + 1), {}, kBatch});
  }
  const Tensor lr = at::scalar_tensor(0.01), one = at::ones({}), zero = at::zeros({});
  const Tensor gradient = at::randn({kBatch, tables * dim}) * 0.01;
  struct Contender {
    std::string name;
    std::unique_ptr<Tables> tables;
    Times times;
  };
  std::vector<Contender> contenders;
  contenders.push_back({"native", make_native_tables(config), {}});
  if (fbgemm_fault(config, at::kCPU).empty())
    contenders.push_back({"fbgemm", make_fbgemm_tables(config, at::kCPU, {}), {}});
  for (Contender& c : contenders) {
    for (int64_t t = 0; t < tables; ++t) c.tables->weight(t).uniform_(-0.01, 0.01);
  }
  for (int round = -2; round < rounds; ++round) {
    const Lookup& lookup = lookups[static_cast<size_t>((round + 2) % kBatches)];
    for (Contender& c : contenders) {
      const double begin = now_ms();
      const Tensor out = c.tables->forward(lookup);
      const double middle = now_ms();
      c.tables->step(std::span(&lookup, 1), std::span(&gradient, 1), lr, one, zero, nullptr);
      const double end = now_ms();
      if (round < 0) continue;
      c.times.forward.push_back(middle - begin);
      c.times.step.push_back(end - middle);
    }
  }
  std::printf("%lld tables x %lld x %lld, %s, %d threads\n", static_cast<long long>(tables),
              static_cast<long long>(rows), static_cast<long long>(dim), dtype.c_str(),
              at::get_num_threads());
  for (Contender& c : contenders) {
    std::printf("  %-8s forward %8.3f ms, step %8.3f ms\n", c.name.c_str(), median(c.times.forward),
                median(c.times.step));
  }
}
