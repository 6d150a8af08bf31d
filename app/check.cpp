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
  DataSize size = train::data_size(data, data.train->size(), loader.total_steps(job.spec.train));
  if (job.spec.model.type != spec::ModelType::kRecommender) {
    for (const int32_t length : data.train->lengths(machine.cores)) size.mean_tokens += length;
    size.mean_tokens /= static_cast<double>(size.samples);
  }
  const std::string warning = model::check_weights(job, data.info).warning(job.spec.model.type);
  // Not as a line of the log, which may be lost: main() fails without it.
  fmt::print("{}\n", describe(job, estimate(job, size), size, hardware::describe(machine)));
  if (!warning.empty()) log_warning("{}", warning);
  return 0;
}

}  // namespace trainer::app
