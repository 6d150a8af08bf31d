// trainer check: what a job resolves to, from its spec and data; nothing is trained.

#include "check.h"

#include "core/log.h"
#include "data/text_classification.h"
#include "hardware/machine.h"
#include "job/estimate.h"
#include "launch/plan.h"
#include "spec/load.h"
#include "text/wordpiece.h"

namespace trainer::app {

int check(const TorchCommand& command) {
  spec::JobSpec spec = spec::load(command.job_path, command.overrides);
  launch::apply_environment(spec.launch);
  const hardware::Machine machine = hardware::detect();
  const launch::WorkerPlan plan = launch::plan_workers(spec.launch, spec.hardware, machine, {}, "");
  const Job job = resolve(spec, launch::planned_world(plan), static_cast<int64_t>(machine.gpus.size()));
  check_files(job);

  const auto tokenizer =
      std::make_shared<const text::WordPiece>(text::WordPiece::load(job.spec.model.pretrained));
  const auto samples = data::open_text_classification(job, job.spec.data.train, tokenizer);
  double tokens = 0;
  for (const int32_t length : samples->lengths(machine.cores)) tokens += length;
  const DataSize size{samples->size(), tokens / static_cast<double>(std::max<int64_t>(samples->size(), 1))};
  if (!job.spec.data.validation.path.empty()) {
    data::open_text_classification(job, job.spec.data.validation, tokenizer);
  }
  log_info("{}", describe(job, estimate(job, size), size));
  return 0;
}

}  // namespace trainer::app
