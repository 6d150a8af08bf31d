#include "train/trainer.h"

#include <ATen/ATen.h>

#include "checkpoint/resume.h"
#include "checkpoint/save.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "embedding/sharded.h"
#include "spec/enums.h"
#include "spec/load.h"
#include "train/autocast.h"
#include "train/output.h"

namespace trainer::train {

using metrics::Phase;
using report::Request;

Trainer::Trainer(const Parts& parts)
    : p_(parts),
      feed_(parts.loader, parts.device),
      requests_(parts.progress, parts.communicator, parts.device),
      reporter_(parts.job, parts.device, parts.communicator, parts.progress, requests_, parts.total_steps,
                parts.total_epochs),
      skipped_(parts.job.spec.train, parts.device, parts.job.world.is_main()),
      best_(parts.job),
      tables_(parts.model.embeddings()),
      table_lr_(
          parts.job.spec.model.recommender.embedding_optimizer.lr.value_or(parts.job.spec.optimizer.lr) /
          parts.job.spec.optimizer.lr) {}

bool Trainer::run() {
  p_.model.train();
  if (p_.resume_from) resume(*p_.resume_from);
  reporter_.begin();
  // Of a step that was saved before it was evaluated.
  if (step_ > 0 && evaluation_due() && best_.last().step != step_) evaluate();
  while (step_ < p_.total_steps && !best_.out_of_patience()) {
    train_step();
    if (const Request request = requests_.after_step(step_); request != Request::kNone) {
      meet(request);
      if (request == Request::kStop) return false;
    }
    if (evaluation_due()) evaluate();
    if (checkpoint_due()) checkpoint();
  }
  finish();
  return true;
}

checkpoint::State Trainer::state() {
  using tensors::view_of;
  checkpoint::State state{.model = p_.model,
                          .device = p_.device,
                          .optimizer = p_.optimizer.state(),
                          .ema = p_.ema.state(),
                          .progress = {{"loop.step", view_of(step_)},
                                       {"loop.epoch", view_of(epoch_)},
                                       {"loop.data_epoch", view_of(data_epoch_)},
                                       {"loop.data_position", view_of(data_position_)},
                                       {"loop.at_end_of_epoch", view_of(at_end_of_epoch_)},
                                       {"loop.num_skipped", view_of(num_skipped_)}},
                          .evaluations = {},
                          .rank_sums = reporter_.rank_sums(),
                          .tables = tables_ != nullptr ? tables_->slices() : std::vector<tensors::Slice>()};
  tensors::append(state.progress, "step_control", p_.step_control.state());
  tensors::append(state.progress, "skipped", skipped_.state());
  tensors::append(state.progress, "reporter", reporter_.state());
  tensors::append(state.evaluations, "evaluation", best_.state());
  return state;
}

void Trainer::resume(const std::filesystem::path& from) {
  reporter_.phases().start(Phase::kCheckpoint);
  checkpoint::load(from, state(), p_.communicator);
  p_.loader.seek(data_epoch_, data_position_);
  saved_step_ = step_;
}

void Trainer::finish() {
  if (step_ < p_.total_steps && p_.job.world.is_main()) {
    log_info("stopped early at step {} of {}: {} was no better in {} evaluations", step_, p_.total_steps,
             spec::to_string(*p_.job.spec.evaluation.best), p_.job.spec.evaluation.early_stop_patience);
  }
  if (p_.job.spec.checkpoint.save_final) {
    save("final");
  }
  reporter_.finish(best_.last(), best_.best());
  if (p_.job.spec.train.require_loss_decrease && !(reporter_.last_loss() < reporter_.first_loss())) {
    fail<NumericError>(
        "the loss did not fall: {:.6g} at the first log line, {:.6g} at the last; the job demands it "
        "(train.require_loss_decrease); hint: it takes two log lines to tell, see logging.every_steps",
        reporter_.first_loss(), reporter_.last_loss());
  }
}

// One optimizer step: micro-batches forward and backward, gradients summed over ranks during the last
// backward; then unscale, clip, test for inf and NaN, update. See design §4: loss is the sum over the global
// batch by its global number of targets.
void Trainer::train_step() {
  metrics::PhaseTimes& phases = reporter_.phases();
  phases.start(Phase::kOptimizer);
  p_.gradient_sync.zero_grad();
  data::MicroBatch micro;
  int64_t num_targets = 0;
  do {
    phases.start(Phase::kDataWait);
    micro = feed_.next();
    const bool last = micro.last_of_step;
    num_targets = micro.step_targets;

    phases.start(Phase::kForward);
    p_.gradient_sync.before_forward(last);
    at::Tensor loss_sum;
    {
      const Autocast autocast(p_.device.type(), p_.job.spec.train.precision);
      loss_sum = p_.model.forward(micro.batch).loss_sum;
    }
    const at::Tensor scaled_loss = loss_sum * p_.step_control.loss_factor(num_targets);

    phases.start(Phase::kBackward);
    phases.move(Phase::kBackward, Phase::kSync, p_.gradient_sync.backward(scaled_loss, last));
    feed_.prefetch();
    reporter_.add(loss_sum.detach(), micro.batch, 3 * p_.model.forward_flops(micro.batch));
  } while (!micro.last_of_step);

  phases.start(Phase::kOptimizer);
  std::vector<at::Tensor> gradients = p_.gradient_sync.gradients();
  if (tables_ != nullptr) gradients.push_back(tables_->gradient_flag());
  const optim::StepResult result = p_.step_control.prepare(gradients);
  const at::Tensor skipped = skipped_.add(result.found_inf);
  p_.optimizer.step(result.lr, result.grad_scale, skipped);
  if (tables_ != nullptr) tables_->step(result.lr * table_lr_, result.grad_scale, skipped);
  p_.ema.update(skipped);

  phases.start(Phase::kLog);
  p_.progress.end_step(++step_, phases.busy_ns());
  at_end_of_epoch_ = micro.last_of_epoch;
  data_epoch_ = micro.epoch;
  data_position_ = micro.position;
  epoch_ = static_cast<double>(micro.epoch) +
           static_cast<double>(micro.position) / static_cast<double>(p_.loader.num_samples());
  const bool log = reporter_.is_due(step_) || evaluation_due();
  // Reading the count waits for the device: on a CPU every step, else only where the log line waits anyway.
  if (log || p_.device.is_cpu()) num_skipped_ = skipped_.check(step_, result.loss_scale);
  reporter_.end_step(step_, epoch_, result, num_targets, num_skipped_, log);
}

void Trainer::save(const std::string& name) {
  reporter_.phases().start(Phase::kCheckpoint);
  const Ema::Applied mean(p_.ema);
  save_model(p_.job.output_dir / name, p_.model, p_.communicator);
}

bool Trainer::checkpoint_due() const {
  const int64_t every = p_.job.spec.checkpoint.every_steps;
  return every > 0 && step_ % every == 0 && saved_step_ != step_;
}

void Trainer::checkpoint() {
  reporter_.phases().start(Phase::kCheckpoint);
  if (p_.job.world.is_main() && fingerprint_.empty()) fingerprint_ = p_.data_fingerprint();
  checkpoint::Manifest manifest;
  manifest.step = step_;
  manifest.total_steps = p_.total_steps;
  manifest.epoch = epoch_;
  manifest.unix_s = unix_time_s();
  manifest.data_fingerprint = fingerprint_;
  manifest.job = spec::to_yaml(p_.job.spec);
  checkpoint::save(checkpoint::directory_of(p_.job.output_dir), state(), std::move(manifest),
                   p_.job.spec.checkpoint.keep_last, p_.communicator);
  saved_step_ = step_;
}

// At the same step on all ranks. Whoever asks by hand for a checkpoint gets one; before a stop the job's own word counts.
void Trainer::meet(Request request) {
  const bool stop = request == Request::kStop;
  const spec::Checkpoint& options = p_.job.spec.checkpoint;
  const bool save = !stop || options.save_final || options.every_steps > 0;
  if (save) checkpoint();
  requests_.done(step_);
  if (stop) reporter_.finish(best_.last(), best_.best());
  if (!p_.job.world.is_main()) return;
  const std::string saved =
      (checkpoint::directory_of(p_.job.output_dir) / checkpoint::directory_name(step_)).string();
  if (!stop) {
    log_info("step {}: saved in {}, as requested", step_, saved);
  } else if (save) {
    log_info("preempted at step {}: saved in {}, from where --resume auto goes on; exit {}", step_, saved,
             static_cast<int>(ExitCode::kPreempted));
  } else {
    log_info("preempted at step {}: nothing saved (checkpoint.save_final is false), exit {}", step_,
             static_cast<int>(ExitCode::kPreempted));
  }
}

bool Trainer::evaluation_due() const {
  if (p_.evaluator == nullptr || p_.job.evaluation_every < 0) return false;
  if (step_ == p_.total_steps) return true;
  return p_.job.evaluation_every == 0 ? at_end_of_epoch_ : step_ % p_.job.evaluation_every == 0;
}

void Trainer::evaluate() {
  reporter_.phases().start(Phase::kEvaluation);
  metrics::EvaluationRecord record;
  record.step = step_;
  record.epoch = epoch_;
  const double begin_s = monotonic_s();
  {
    const Ema::Applied mean(p_.ema);
    record.found = p_.evaluator->run(p_.model);
  }
  record.seconds = monotonic_s() - begin_s;
  record.time_s = reporter_.elapsed_s();
  record.samples = p_.evaluator->num_samples();
  record.best = best_.consider(record);
  reporter_.evaluation(record);
  if (record.best && p_.job.spec.checkpoint.save_best) save("best");
}

}  // namespace trainer::train
