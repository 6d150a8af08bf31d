#include "train/reporter.h"

#include <ATen/ATen.h>

#include <cmath>

#include "core/clock.h"
#include "hardware/cuda_devices.h"

namespace trainer::train {
namespace {

// Peak FLOP/s of this job's devices together, taken to be all alike: of GPUs from a table, empty for one that it does not
// know; of CPUs as measured here.
std::optional<double> job_peak_flops(const Job& job, const c10::Device& device) {
  std::optional<double> peak;
  if (device.is_cuda()) {
    const auto gpus = hardware::cuda_devices();
    const auto index = static_cast<size_t>(device.index());
    if (index < gpus.size()) {
      peak = metrics::peak_flops(gpus[index].name, job.spec.train.precision, job.spec.train.tf32);
    }
  } else if (job.world.is_main()) {
    peak = metrics::measured_cpu_peak_flops(job.spec.train.precision);
  }
  if (peak) *peak *= static_cast<double>(job.world.size);
  return peak;
}

}  // namespace

Reporter::Reporter(const Job& job, const c10::Device& device, dist::Communicator& communicator,
                   report::ProgressPage& progress, Requests& requests, int64_t total_steps,
                   double total_epochs)
    : device_(device),
      communicator_(communicator),
      progress_(progress),
      requests_(requests),
      every_(job.spec.logging.every_steps),
      total_steps_(total_steps),
      is_main_(job.world.is_main()),
      records_path_(job.output_dir / "metrics.jsonl"),
      peak_flops_(job_peak_flops(job, device)),
      console_(job.spec.logging.progress, {total_steps, total_epochs}, job.world.is_main()),
      phases_(&progress),
      begin_s_(monotonic_s()),
      loss_sum_(at::zeros({}, at::dtype(at::kDouble).device(device))) {}

void Reporter::begin() {
  if (is_main_) records_.emplace(records_path_, records_bytes_);
}

tensors::NamedTensors Reporter::state() {
  elapsed_before_s_ = elapsed_s();
  begin_s_ = monotonic_s();
  if (records_) records_bytes_ = records_->size_bytes();
  using tensors::view_of;
  return {{"steps", view_of(steps_)},
          {"num_targets", view_of(num_targets_)},
          {"samples", view_of(total_work_.samples)},
          {"tokens", view_of(total_work_.tokens)},
          {"flops", view_of(total_work_.flops)},
          {"first_loss", view_of(first_loss_)},
          {"last_loss", view_of(record_.loss)},
          {"epoch", view_of(record_.epoch)},
          {"skipped_steps", view_of(record_.skipped_steps)},
          {"interval_begin_s", view_of(interval_begin_s_)},
          {"elapsed_s", view_of(elapsed_before_s_)},
          {"phases_ns", phases_.state()},
          {"records_bytes", view_of(records_bytes_)}};
}

tensors::NamedTensors Reporter::rank_sums() {
  using tensors::view_of;
  return {{"loss_sum", loss_sum_},
          {"samples", view_of(work_.samples)},
          {"tokens", view_of(work_.tokens)},
          {"flops", view_of(work_.flops)}};
}

void Reporter::add(const at::Tensor& loss_sum, const data::Batch& batch, double flops) {
  loss_sum_ += loss_sum;
  work_ += {static_cast<double>(batch.num_samples()), static_cast<double>(batch.num_tokens()), flops};
}

void Reporter::end_step(int64_t step, double epoch, const optim::StepResult& result, int64_t num_targets,
                        int64_t skipped_steps, bool log) {
  ++steps_;
  num_targets_ += num_targets;
  if (!log) {
    console_.tick(step);
    return;
  }
  const Votes votes = requests_.votes();
  at::Tensor sums =
      at::tensor({work_.samples, work_.tokens, work_.flops, votes.save, votes.stop}, at::kDouble).to(device_);
  sums = at::cat({sums, loss_sum_.view(1)});
  progress_.begin(report::Phase::kSync);  // here a rank waits that is ahead of the others
  communicator_.all_reduce_sum(sums);
  const at::Tensor scalars = at::stack({result.grad_norm, result.lr, result.loss_scale}).to(at::kDouble);
  const at::Tensor values = at::cat({sums, scalars}).cpu();
  const double* v = values.const_data_ptr<double>();

  phases_.start(metrics::Phase::kLog);  // so far: on CUDA the line above waited for the device
  const metrics::Work work{v[0], v[1], v[2]};
  total_work_ += work;
  requests_.count({v[3], v[4]});
  const double training_s = phases_.training_seconds();
  record_.step = step;
  record_.epoch = epoch;
  record_.time_s = elapsed_s();
  record_.loss = v[5] / static_cast<double>(num_targets_);
  record_.grad_norm = v[6];
  record_.lr = v[7];
  record_.loss_scale = v[8];
  record_.rates = work.per_second(training_s - interval_begin_s_);
  record_.mfu = mfu(record_.rates.flops);
  record_.memory_bytes = metrics::peak_memory_bytes(device_);
  record_.skipped_steps = skipped_steps;
  if (std::isnan(first_loss_)) first_loss_ = record_.loss;
  console_.step(record_);
  if (records_) records_->write(record_);

  interval_begin_s_ = training_s;
  work_ = {};
  num_targets_ = 0;
  loss_sum_.zero_();
}

void Reporter::evaluation(metrics::EvaluationRecord record) {
  console_.evaluation(record);
  if (records_) records_->write(record);
}

void Reporter::finish(const metrics::EvaluationRecord& last, const metrics::EvaluationRecord& best) {
  phases_.stop();
  metrics::SummaryRecord summary;
  summary.steps = steps_;
  summary.epochs = record_.epoch;
  summary.time_s = elapsed_s();
  summary.rates = total_work_.per_second(phases_.training_seconds());
  summary.mfu = mfu(summary.rates.flops);
  summary.memory_bytes = metrics::peak_memory_bytes(device_);
  summary.skipped_steps = record_.skipped_steps;
  summary.phases = phases_;
  summary.last = last;
  summary.best = best;
  console_.finish(summary);
  if (records_) records_->write(summary);
}

double Reporter::mfu(double flops_per_s) const {
  return peak_flops_ ? flops_per_s / *peak_flops_ : metrics::kNotMeasured;
}

}  // namespace trainer::train
