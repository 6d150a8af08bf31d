// What only a GPU can show: the CUDA path against the CPU's, which the other tests hold against PyTorch.
// Without a GPU the program says so and exits with 77, which ctest reports as skipped.

#define CATCH_CONFIG_RUNNER
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "dist/cuda_plugin.h"
#include "hardware/cuda_devices.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "optim/step_control.h"

namespace {

using namespace trainer;  // NOLINT: a test

std::string test_data() {
  const char* dir = std::getenv("TRAINER_TEST_DATA");  // a bundle's
  return dir != nullptr ? dir : TEST_DATA;
}

double max_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.cpu().to(at::kDouble) - b.cpu().to(at::kDouble)).abs().max().item<double>();
}

at::Tensor random(at::IntArrayRef shape) {
  static at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  return at::randn(shape, generator);
}

data::TextBatch batch_on(const c10::Device& device) {
  data::TextBatch batch;
  batch.seqlens = {17, 1, 40};
  const std::vector<int32_t> starts = {0, 17, 18, 58};
  batch.cu_seqlens = at::tensor(starts, at::kInt).to(device);
  batch.input_ids = (at::arange(58) % 50 + 5).to(device);
  batch.token_type_ids = at::zeros({58}, at::kLong).to(device);
  batch.position_ids = at::cat({at::arange(17), at::arange(1), at::arange(40)}).to(device);
  batch.row_keys = (at::arange(58) * 7919 + 13).to(device);
  batch.labels = at::tensor(std::vector<int64_t>{0, 1, 1}, at::kLong).to(device);
  return batch;
}

}  // namespace

TEST_CASE("dropout draws the CPU's masks") {
  const at::Tensor x = random({37, 300}), keys = at::arange(37) * 7919 + 13;
  const kernels::Dropout on_cpu{0.1, keys, 5}, on_gpu{0.1, keys.cuda(), 5};
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor want = kernels::dropout(x.to(type), on_cpu);
    CHECK(at::equal((want != 0), (kernels::dropout(x.to(type).cuda(), on_gpu) != 0).cpu()));
    CHECK(max_difference(want, kernels::dropout(x.to(type).cuda(), on_gpu)) < 1e-2);
  }
}

TEST_CASE("packed attention equals the CPU's, forward and backward") {
  const std::vector<int32_t> lengths = {17, 1, 40};
  const at::Tensor starts = at::tensor(std::vector<int32_t>{0, 17, 18, 58}, at::kInt);
  const at::Tensor base = random({58, 3 * 64}), weight = random({58, 64});
  const auto run = [&](const at::Tensor& qkv, const at::Tensor& cu) {
    const at::Tensor leaf = qkv.detach().requires_grad_();
    const at::Tensor y = kernels::varlen_attention(leaf, cu, lengths, 2, {});
    (y.to(at::kFloat) * weight.to(y.device())).sum().backward();
    return std::make_pair(y.detach(), leaf.grad());
  };
  const auto [y, gradient] = run(base, starts);
  const auto [y_fp32, gradient_fp32] = run(base.cuda(), starts.cuda());
  CHECK(max_difference(y, y_fp32) < 1e-4);
  CHECK(max_difference(gradient, gradient_fp32) < 1e-3);
  const auto [y_bf16, gradient_bf16] = run(base.cuda().to(at::kBFloat16), starts.cuda());  // flash attention
  CHECK(max_difference(y, y_bf16) < 5e-2);
  CHECK(max_difference(gradient, gradient_bf16) < 2e-1);
}

TEST_CASE("a model gives the CPU's logits, loss and gradients in fp32, and near them in bf16") {
  Job job;
  job.spec.model.pretrained = test_data() + "/tiny_bert";
  job.spec.model.init = spec::ModelInit::kRandom;
  job.spec.data.max_length = 64;
  const auto run = [&](const c10::Device& device, spec::Precision precision) {
    Job with = job;
    with.spec.train.precision = precision;
    with.cuda = device.is_cuda();
    const auto model = model::make_model(with).model;
    model->to(device);
    model->train();
    model::Output output = model->forward(batch_on(device));
    output.loss_sum.backward();
    double norm = 0;
    for (const at::Tensor& p : model->parameters()) norm += p.grad().norm().item<double>();
    return std::make_tuple(output.logits.detach().cpu(), output.loss_sum.item<double>(), norm);
  };
  const auto [logits, loss, norm] = run(c10::kCPU, spec::Precision::kFp32);
  const auto [logits_gpu, loss_gpu, norm_gpu] = run({c10::kCUDA, 0}, spec::Precision::kFp32);
  CHECK(max_difference(logits, logits_gpu) < 1e-4);
  CHECK(loss_gpu == Approx(loss).epsilon(1e-4));
  CHECK(norm_gpu == Approx(norm).epsilon(1e-3));
  const auto [logits_bf16, loss_bf16, norm_bf16] = run({c10::kCUDA, 0}, spec::Precision::kBf16);
  CHECK(loss_bf16 == Approx(loss).epsilon(0.1));
}

int main(int argc, char** argv) {
  if (hardware::cuda_device_count() == 0) {
    std::puts("skipped: no GPU on this machine");
    return 77;
  }
  dist::load_cuda_plugin();
  return Catch::Session().run(argc, argv);
}
