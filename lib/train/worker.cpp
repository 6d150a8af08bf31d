#include "train/worker.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>

#include "checkpoint/resume.h"
#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/mix64.h"
#include "dist/cuda_plugin.h"
#include "hardware/cuda_devices.h"
#include "hardware/machine.h"
#include "job/estimate.h"
#include "job/job.h"
#include "kernels/cpu_memory.h"
#include "spec/load.h"
#include "train/attention.h"
#include "train/ema.h"
#include "train/job_data.h"
#include "train/output.h"
#include "train/saved_model.h"
#include "train/torch_error.h"
#include "train/trainer.h"

namespace trainer::train {
namespace {

// Whether the launcher that started this process hosts the TCPStore, as torchrun does; else rank 0 does.
bool agent_hosts_store() {
  const char* value = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  return value != nullptr && std::string_view(value) == "True";
}

c10::Device use_device(const Job& job) {
  if (job.spec.hardware.threads_per_worker > 0) {
    at::set_num_threads(static_cast<int>(job.spec.hardware.threads_per_worker));
  }
  if (!job.cuda) {
    kernels::cache_cpu_memory();
    return c10::Device(c10::kCPU);
  }
  dist::load_cuda_plugin();
  at::globalContext().setAllowTF32CuBLAS(job.spec.train.tf32);
  at::globalContext().setAllowTF32CuDNN(job.spec.train.tf32);
  // Modulo: a scheduler may show each task only its own GPUs.
  const c10::Device device(
      c10::kCUDA, static_cast<c10::DeviceIndex>(job.world.local_rank % hardware::cuda_device_count()));
  // For what draws from LibTorch's generator (dropout in attention): another stream on every rank.
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(
      mix64(mix64(static_cast<uint64_t>(job.spec.job.seed)) + static_cast<uint64_t>(job.world.rank)));
  return device;
}

// Decayed parameters and those spared, in the model's order.
std::vector<optim::ParameterGroup> parameter_groups(const model::Model& model,
                                                    const spec::Optimizer& options) {
  std::vector<optim::ParameterGroup> groups(2);
  groups[0] = {"decay", options.weight_decay, {}, {}};
  groups[1] = {"no_decay", 0.0, {}, {}};
  for (const auto& item : model.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    const bool spared = !options.decay_bias_and_norm && model.is_bias_or_norm(item.key());
    optim::ParameterGroup& group = groups[spared ? 1 : 0];
    group.names.push_back(item.key());
    group.parameters.push_back(item.value());
  }
  return groups;
}

std::vector<std::pair<std::string, at::Tensor>> trainable(const model::Model& model) {
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  for (const auto& item : model.named_parameters()) {
    if (item.value().requires_grad()) parameters.emplace_back(item.key(), item.value());
  }
  return parameters;
}

// What a run is, before it begins: the resolved job, what the weights did not fit, and what kind of data it
// is.
void print_header(const Job& job, const model::LoadReport& report, const DataSize& size) {
  log_info("{}", describe(job, estimate(job, size), size, hardware::describe(hardware::detect())));
  const auto list = [](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) log_info("{} ({}): {}", what, names.size(), fmt::join(names, ", "));
  };
  list("new weights, not in the files", report.newly_initialized);
  list("weights in the files that the model does not use", report.unused);
  const std::string warning =
      job.spec.model.init == spec::ModelInit::kPretrained ? report.warning(job.spec.model.type) : "";
  if (!warning.empty()) log_warning("{}", warning);
  // Made data says so: a file SOURCE beside it, whose first line is for people.
  const auto source = std::filesystem::path(job.spec.data.train.path).parent_path() / "SOURCE";
  if (std::filesystem::is_regular_file(source)) {
    const std::string text = read_file(source);
    log_info("data: {}", text.substr(0, text.find('\n')));
  }
}

bool run(const Job& job, const Task& task, report::ProgressPage& progress) {
  const c10::Device device = use_device(job);
  const c10::OptionalDeviceGuard guard(device);
  progress.begin(report::Phase::kJoining);
  const auto communicator =
      job.world.size > 1 ? dist::join(job, agent_hosts_store()) : dist::make_single_process();

  progress.begin(report::Phase::kLoading);
  const JobData data = open_job_data(job, /*needs_labels=*/task.kind != Task::Kind::kPredict);
  auto [model, report] = model::make_model(job, data.info, *communicator);
  model->to(device);
  if (task.kind != Task::Kind::kTrain) {
    check_saved_model(job, report);
    if (const auto shape = model->attention_shape(); shape && device.is_cuda()) {
      choose_attention(job, *shape, device, *communicator);
    }
    const SavedModelParts parts{job, task, data, device, *communicator, progress, *model};
    task.kind == Task::Kind::kEvaluate ? evaluate(parts) : predict(parts);
    progress.begin(report::Phase::kFinishing);
    return true;
  }

  data::Loader loader(data.train, data::LoaderOptions::for_training(job));
  std::optional<Evaluator> evaluator;
  if (data.validation) evaluator.emplace(job, data, device, *communicator, progress);
  const int64_t total_steps = loader.total_steps(job.spec.train);
  // With a fraction when the job counts steps.
  const double total_epochs =
      static_cast<double>(total_steps) / static_cast<double>(std::max<int64_t>(loader.num_steps(0), 1));
  const auto fingerprint = [&] { return fmt::format("{:016x}", data.train->fingerprint()); };
  const auto resume_from = checkpoint::find(job, is_restarted(), fingerprint, *communicator);
  if (job.world.is_main()) {
    print_header(job, report, data_size(data, loader.num_samples(), total_steps));
    prepare_output(job.output_dir, resume_from, is_restarted());
    write_file_atomic(job.output_dir / "job.yaml", spec::to_yaml(job.spec));
  }

  if (const auto attention = model->attention_shape(); attention && device.is_cuda()) {
    choose_attention(job, *attention, device, *communicator);
  }

  const auto gradient_sync =
      dist::make_gradient_sync(*communicator, job.spec.parallel, trainable(*model), model->buffers(),
                               [&] { progress.begin(report::Phase::kSync); });
  const auto optimizer =
      optim::make_optimizer(job.spec.optimizer, parameter_groups(*model, job.spec.optimizer));
  optim::StepControl step_control(job.spec.train, job.spec.schedule, job.spec.optimizer.lr, total_steps,
                                  device);

  Ema ema(trainable(*model), job.spec.train.ema_decay);

  Trainer trainer({job, device, *communicator, *model, loader, evaluator ? &*evaluator : nullptr,
                   *gradient_sync, *optimizer, step_control, ema, progress, total_steps, total_epochs,
                   fingerprint, resume_from});
  const bool finished = trainer.run();
  progress.begin(report::Phase::kFinishing);
  return finished;
}

}  // namespace

ExitCode run_worker(const spec::JobSpec& spec, const World& world, Task task,
                    report::ProgressPage& progress) {
  const bool trains = task.kind == Task::Kind::kTrain;
  const Job job = resolve(trains ? spec : for_saved_model(spec, task), world, hardware::cuda_device_count());
  if (world.is_main()) {
    check_output(task);
    std::error_code error;
    std::filesystem::create_directories(job.output_dir, error);
    if (error) fail<SpecError>("job.output_dir: {}: {}", job.output_dir.string(), error.message());
  }
  try {
    return run(job, task, progress) ? ExitCode::kOk : ExitCode::kPreempted;
  } catch (const c10::Error& error) {
    fail_as_ours(error, "lower train.batch_size (and raise train.gradient_accumulation), or train in bf16");
  }
}

}  // namespace trainer::train
