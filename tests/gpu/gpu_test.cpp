// What only a GPU can show: the CUDA path against the CPU's, which the other tests hold against PyTorch.
// Without a GPU the program says so and exits with 77, which ctest reports as skipped.

#define CATCH_CONFIG_RUNNER
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "../temporary_directory.h"
#include "../unit/tokens/token_part.h"
#include "data/token_windows.h"
#include "dist/communicator.h"
#include "dist/cuda_plugin.h"
#include "hardware/cuda_devices.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "optim/optimizer.h"
#include "optim/step_control.h"
#include "train/trainer.h"

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

data::Batch batch_on(const c10::Device& device) {
  data::Batch batch;
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

TEST_CASE("every backend of attention that can be used gives math's result, and the fastest is preferred") {
  const kernels::AttentionShape shape{
      .heads = 4, .kv_heads = 2, .head_dim = 64, .is_causal = true, .dropout = 0, .dtype = at::kBFloat16};
  const c10::Device device(c10::kCUDA, 0);
  for (const bool equal_lengths : {true, false}) {
    const std::vector<int32_t> lengths = equal_lengths ? std::vector{256, 256} : std::vector{256, 17, 1, 130};
    std::vector<int32_t> starts = {0};
    for (const int32_t length : lengths) starts.push_back(starts.back() + length);
    const at::Tensor cu_seqlens = at::tensor(starts, at::kInt).to(device);
    const at::Tensor qkv = random({starts.back(), 8 * 64}).to(device, at::kBFloat16);
    const at::Tensor weight = random({starts.back(), 4 * 64}).to(device, at::kBFloat16);
    const auto run = [&](at::SDPBackend backend) {
      const kernels::OnlyBackend only(backend);
      const at::Tensor leaf = qkv.detach().requires_grad_();
      const at::Tensor y = kernels::causal_attention(leaf, cu_seqlens, lengths, 4, 2, {}, {});
      y.backward(weight);
      return std::make_pair(y.detach().to(at::kFloat), leaf.grad().to(at::kFloat));
    };
    const auto times = kernels::time_backends(
        {}, shape, equal_lengths, 1,
        [&](at::SDPBackend backend) { return kernels::time_attention(backend, shape, lengths, device); },
        [](std::vector<double>&) {});
    std::printf("attention, %s lengths: %s\n", equal_lengths ? "equal" : "different",
                kernels::describe(times).c_str());
    const auto [y, gradient] = run(at::SDPBackend::math);
    size_t usable = 0;
    for (; usable < times.size() && std::isfinite(times[usable].seconds); ++usable) {
      INFO(kernels::to_string(times[usable].backend));
      CHECK(times[0].seconds <= kernels::kTie * times[usable].seconds);
      const auto [y_of_it, gradient_of_it] = run(times[usable].backend);
      CHECK(max_difference(y, y_of_it) < 5e-2);
      CHECK(max_difference(gradient, gradient_of_it) < 2e-1);
    }
    CHECK(usable >= 1);
    kernels::prefer_backends(times, device);
    CHECK((kernels::backend_order()[0] == times[0].backend));
    const at::Tensor preferred = kernels::causal_attention(qkv, cu_seqlens, lengths, 4, 2, {}, {});
    CHECK(max_difference(y, preferred) < 5e-2);
  }
}

namespace {

// Forbids all that makes the host wait for the device in the steps from the third on (the first ones set up
// libraries) up to the last, which logs.
class NoWaits : public dist::GradientSync {
 public:
  NoWaits(dist::GradientSync& inner, int64_t steps) : inner_(inner), steps_(steps) {}
  ~NoWaits() override { dist::forbid_cuda_waits(false); }
  void before_forward(bool last) override { inner_.before_forward(last); }
  double backward(const at::Tensor& loss, bool last) override { return inner_.backward(loss, last); }
  std::vector<at::Tensor> gradients() override { return inner_.gradients(); }
  void zero_grad() override {  // begins a step
    ++step_;
    dist::forbid_cuda_waits(step_ > 2 && step_ < steps_);
    inner_.zero_grad();
  }

 private:
  dist::GradientSync& inner_;
  int64_t steps_, step_ = 0;
};

// The training loop itself, with a language model on made tokens. Returns the steps done.
int64_t train_gpt(Job job, const c10::Device& device) {
  constexpr int64_t kSteps = 8;
  const TemporaryDirectory directory;
  job.cuda = true;
  job.output_dir = directory.path;
  job.evaluation_every = -1;
  spec::JobSpec& spec = job.spec;
  spec.model.type = spec::ModelType::kGpt;
  spec.model.init = spec::ModelInit::kRandom;
  spec.model.gpt.layers = 2, spec.model.gpt.heads = 2, spec.model.gpt.hidden_size = 128;
  spec.model.gpt.vocab_size = 100;
  spec.data.max_length = 64;
  spec.train.batch_size = 4, spec.train.gradient_accumulation = 2, spec.train.steps = kSteps;
  spec.logging.every_steps = 1000, spec.logging.progress = spec::Progress::kNone;
  spec.checkpoint.save_final = false;

  std::vector<int32_t> ids(4000);
  std::vector<int64_t> documents;
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>(i * i % 97);
    if (i % 45 == 0) documents.push_back(static_cast<int64_t>(i));
  }
  const auto stream = std::make_shared<const tokens::TokenStream>(
      std::vector{token_part("made", std::move(ids), std::move(documents))});
  const auto windows = std::make_shared<const data::TokenWindows>(
      stream, data::WindowOptions{.length = 64, .vocab_size = 100, .documents = spec.data.documents});

  const c10::OptionalDeviceGuard guard(device);
  const auto model = model::make_model(job).model;
  model->to(device);
  std::vector<std::pair<std::string, at::Tensor>> named;
  optim::ParameterGroup group{"decay", 0.1, {}, {}};
  for (const auto& item : model->named_parameters()) {
    named.emplace_back(item.key(), item.value());
    group.names.push_back(item.key());
    group.parameters.push_back(item.value());
  }
  const auto alone = dist::make_single_process();
  data::Loader loader(windows, data::LoaderOptions::for_training(job));
  const auto gradients = dist::make_gradient_sync(*alone, spec.parallel, named, model->buffers(), {});
  NoWaits no_waits(*gradients, kSteps);
  train::Ema ema(named, 0.9);
  const auto optimizer = optim::make_optimizer(spec.optimizer, {group});
  optim::StepControl step_control(spec.train, spec.schedule, spec.optimizer.lr, kSteps, device);
  report::ProgressPage progress;
  train::Trainer trainer({job,
                          device,
                          *alone,
                          *model,
                          loader,
                          nullptr,
                          no_waits,
                          *optimizer,
                          step_control,
                          ema,
                          progress,
                          kSteps,
                          1,
                          {},
                          {}});
  trainer.run();
  return progress.step;
}

}  // namespace

TEST_CASE("steps that are not logged never make the host wait for the device") {
  const at::Tensor one = at::ones({}, at::kCUDA);
  dist::forbid_cuda_waits(true);
  CHECK_THROWS(one.item<float>());
  dist::forbid_cuda_waits(false);

  Job job;
  job.spec.train.precision = spec::Precision::kBf16;
  CHECK(train_gpt(job, {c10::kCUDA, 0}) == 8);  // GPT-2's form, sequences of one length
  job.spec.model.hidden_dropout = job.spec.model.attention_dropout = 0.1;
  job.spec.train.precision = spec::Precision::kFp16;
  CHECK(train_gpt(job, {c10::kCUDA, 0}) == 8);
  job.spec.train.precision = spec::Precision::kBf16;
  job.spec.data.documents = spec::Documents::kSeparate;
  job.spec.train.recompute = spec::Recompute::kBlock;
  spec::Gpt& llama = job.spec.model.gpt;
  llama.kv_heads = 1, llama.norm = spec::Norm::kRms, llama.positions = spec::Positions::kRope;
  llama.activation = spec::Activation::kSwiglu, llama.bias = false, llama.tie_embeddings = false;
  CHECK(train_gpt(job, {c10::kCUDA, 0}) == 8);
}

int main(int argc, char** argv) {
  if (hardware::cuda_device_count() == 0) {
    std::puts("skipped: no GPU on this machine");
    return 77;
  }
  dist::load_cuda_plugin();
  return Catch::Session().run(argc, argv);
}
