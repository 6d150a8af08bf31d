// trainer check: what a job resolves to, from its spec and data; nothing is trained.

#include "check.h"

#include <fmt/format.h>

#include "core/log.h"
#include "data/loader.h"
#include "hardware/machine.h"
#include "job/estimate.h"
#include "model/model.h"
#include "spec/load.h"
#include "train/job_data.h"

namespace trainer::app {

int check(const TorchCommand& command) {
  const hardware::Machine machine = hardware::detect();
  const Job job = resolve(spec::load(command.job_path, command.overrides), command.world,
                          static_cast<int64_t>(machine.gpus.size()));
  check_files(job);

  const train::JobData data = train::open_job_data(job);
  const data::Loader loader(data.train, data::LoaderOptions::for_training(job));
  double tokens = 0;
  for (const int32_t length : data.train->lengths(machine.cores)) tokens += length;
  const DataSize size{.samples = data.train->size(),
                      .mean_tokens = tokens / static_cast<double>(data.train->size()),
                      .steps = loader.total_steps(job.spec.train),
                      .tokenizer_vocab_size = data.tokenizer.vocab_size};
  const std::string warning = model::check_weights(job, data.tokenizer).warning(job.spec.model.type);
  // Not as a line of the log, which may be lost: main() fails without it.
  fmt::print("{}\n", describe(job, estimate(job, size), size, hardware::describe(machine)));
  if (!warning.empty()) log_warning("{}", warning);
  return 0;
}

}  // namespace trainer::app
