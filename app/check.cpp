// trainer check: what a job resolves to, from its spec and data; nothing is trained.

#include "check.h"

#include "core/log.h"
#include "data/loader.h"
#include "data/text_classification.h"
#include "hardware/machine.h"
#include "job/bert_config.h"
#include "job/estimate.h"
#include "spec/load.h"
#include "text/wordpiece.h"

namespace trainer::app {

int check(const TorchCommand& command) {
  const hardware::Machine machine = hardware::detect();
  const Job job = resolve(spec::load(command.job_path, command.overrides), command.world,
                          static_cast<int64_t>(machine.gpus.size()));
  check_files(job);

  const auto tokenizer =
      std::make_shared<const text::WordPiece>(text::WordPiece::load(job.spec.model.pretrained));
  load_bert_config(job, tokenizer->vocab_size());
  const auto samples = data::open_text_classification(job, job.spec.data.train, tokenizer);
  if (!job.spec.data.validation.path.empty())
    data::open_text_classification(job, job.spec.data.validation, tokenizer);
  const data::Loader loader(samples, data::LoaderOptions::for_training(job));
  double tokens = 0;
  for (const int32_t length : samples->lengths(machine.cores)) tokens += length;
  const DataSize size{.samples = samples->size(),
                      .mean_tokens = tokens / static_cast<double>(samples->size()),
                      .steps = loader.total_steps(job.spec.train)};
  log_info("{}", describe(job, estimate(job, size), size, hardware::describe(machine)));
  return 0;
}

}  // namespace trainer::app
