#pragma once

#include <memory>
#include <string>

#include "checkpoint/resume.h"
#include "checkpoint/save.h"
#include "core/error.h"
#include "model/model.h"
#include "spec/load.h"
#include "temporary_directory.h"
#include "tensors/safetensors.h"

namespace trainer::test {

namespace fs = std::filesystem;

// Two parameters; saved under their names.
class TwoWeights : public model::Model {
 public:
  TwoWeights() {
    a_ = register_parameter("a", at::zeros({2, 3}));
    b_ = register_parameter("b", at::zeros({4}));
  }
  model::Output forward(const data::Batch&) override { return {}; }
  double forward_flops(const data::Batch&) const override { return 0; }
  std::optional<kernels::AttentionShape> attention_shape() const override { return std::nullopt; }
  bool is_bias_or_norm(const std::string&) const override { return false; }
  void save_pretrained(const fs::path& directory) const override {
    tensors::write_safetensors(directory / "model.safetensors", {{"a", a_}, {"b", b_}});
  }
  void load_pretrained(const fs::path& directory) override {
    const tensors::SafetensorsFile file(directory / "model.safetensors");
    a_.data().copy_(file.tensor("a"));
    b_.data().copy_(file.tensor("b"));
  }
  at::Tensor a_, b_;
};

// One rank's training, of made-up numbers.
struct Training {
  TwoWeights model;
  at::Tensor momentum = at::zeros({2, 3}), mean = at::zeros({4});
  int64_t step = 0;
  double best = 0, own_sum = 0;
  at::Tensor table;  // this rank's rows of a table of kRows
  static constexpr int64_t kRows = 7;
  int64_t row_begin;

  Training(int64_t rank, int64_t size) {
    const int64_t block = (kRows + size - 1) / size;
    row_begin = std::min(kRows, rank * block);
    table = at::zeros({std::min(kRows, row_begin + block) - row_begin, 2});
  }
  // As it is at a step of a run, the same numbers whatever the number of ranks.
  void advance(int64_t to, int64_t rank) {
    const at::NoGradGuard no_grad;
    step = to;
    best = 0.5 / static_cast<double>(to);
    own_sum = static_cast<double>(rank + 1);
    model.a_.fill_(1.0 * static_cast<double>(to));
    model.b_.fill_(2.0 * static_cast<double>(to));
    momentum.fill_(3.0 * static_cast<double>(to));
    mean.fill_(4.0 * static_cast<double>(to));
    table.copy_(at::arange(2 * kRows, at::kFloat).view({kRows, 2}).narrow(0, row_begin, table.size(0)) +
                static_cast<double>(to));
  }
  checkpoint::State state() {
    return {.model = model,
            .device = c10::kCPU,
            .optimizer = {{"a.momentum_buffer", momentum}},
            .ema = {{"b", mean}},
            .progress = {{"loop.step", tensors::view_of(step)}},
            .evaluations = {{"evaluation.best.loss", tensors::view_of(best)}},
            .rank_sums = {{"loss_sum", tensors::view_of(own_sum)}},
            .tables = {{"C1.weight", {kRows, 2}, row_begin, 0, table}}};
  }
};

inline Job job_in(const fs::path& output_dir, const std::string& resume = "restarts", int64_t size = 1) {
  Job job;
  job.output_dir = output_dir;
  job.world.size = size;
  job.spec.checkpoint.resume = resume;
  return job;
}

inline void save(Training& training, const fs::path& directory, dist::Communicator& communicator,
                 int64_t keep_last = 0) {
  checkpoint::Manifest manifest;
  manifest.step = training.step;
  manifest.total_steps = 100;
  manifest.epoch = 0.25;
  manifest.data_fingerprint = "f00d";
  manifest.job = spec::to_yaml(spec::JobSpec());
  checkpoint::save(directory, training.state(), manifest, keep_last, communicator);
}

}  // namespace trainer::test
