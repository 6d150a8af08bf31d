#include "train/trainer.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "core/log.h"
#include "spec/enums.h"
#include "train/autocast.h"

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
      best_(parts.job) {}

bool Trainer::run() {
  p_.model.train();
  while (step_ < p_.total_steps && !best_.out_of_patience()) {
    train_step();
    if (const Request request = requests_.after_step(step_); request != Request::kNone) {
      meet(request);
      if (request == Request::kStop) return false;
    }
    if (evaluation_due()) evaluate();
  }
  finish();
  return true;
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
  const optim::StepResult result = p_.step_control.prepare(p_.gradient_sync.gradients());
  const at::Tensor skipped = skipped_.add(result.found_inf);
  p_.optimizer.step(result.lr, result.grad_scale, skipped);
  p_.ema.update(skipped);

  phases.start(Phase::kLog);
  p_.progress.end_step(++step_, phases.busy_ns());
  at_end_of_epoch_ = micro.last_of_epoch;
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
  save_model(p_.job, p_.model, name);
}

// At the same step on all ranks. Whoever asks by hand for a save gets one; before a stop the job's own word counts.
void Trainer::meet(Request request) {
  const bool stop = request == Request::kStop;
  const std::string name = fmt::format("step_{}", step_);
  const bool save = !stop || p_.job.spec.checkpoint.save_final;
  if (save) this->save(name);
  requests_.done(step_);
  if (stop) reporter_.finish(best_.last(), best_.best());
  if (!p_.job.world.is_main()) return;
  const std::string saved = fmt::format("model saved in {}", (p_.job.output_dir / name).string());
  if (stop) {
    log_info("preempted at step {}: {}, exit {}", step_,
             save ? saved : "nothing saved (checkpoint.save_final is false)",
             static_cast<int>(ExitCode::kPreempted));
  } else {
    log_info("step {}: {}, as requested", step_, saved);
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
