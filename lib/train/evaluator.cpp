#include "train/evaluator.h"

#include "data/loader.h"
#include "metrics/evaluation.h"
#include "train/autocast.h"
#include "train/device_feed.h"

namespace trainer::train {

metrics::Evaluation Evaluator::run(model::Model& model) const {
  data::Loader loader(data_.validation, data::LoaderOptions::for_evaluation(job_));
  DeviceFeed feed(loader, device_);
  const auto metrics = make_evaluation_metrics(job_, data_, device_);
  const at::NoGradGuard no_grad;
  const Autocast autocast(device_.type(), job_.spec.train.precision);
  model.eval();
  for (int64_t left = loader.num_steps(0); left > 0; --left) {
    progress_.beat();
    const data::MicroBatch micro = feed.next();
    const model::Output output = model.forward(micro.batch);
    metrics->add({output.logits, micro.batch.labels, micro.batch.records.groups, output.loss_sum});
    if (left > 1) feed.prefetch();
  }
  model.train();
  progress_.begin(report::Phase::kSync);
  communicator_.all_reduce_sum(metrics->counts());
  const at::Tensor rows = communicator_.all_gather_rows(metrics->rows());
  progress_.begin(report::Phase::kEvaluation);
  return metrics->compute(rows);
}

}  // namespace trainer::train
