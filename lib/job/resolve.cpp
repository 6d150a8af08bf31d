#include <charconv>
#include <string>
#include <utility>

#include "job/job.h"
#include "spec/enums.h"
#include "spec/fault.h"

namespace trainer {

Job resolve(spec::JobSpec spec, const World& world, int64_t cuda_devices) {
  using spec::BackendChoice;
  using spec::DeviceChoice;
  Job job;
  job.world = world;
  if (!spec.train.epochs && !spec.train.steps) spec.train.epochs = 3;
  if (spec.evaluation.batch_size == 0) spec.evaluation.batch_size = spec.train.batch_size;
  if (spec.job.output_dir.empty()) spec.job.output_dir = "runs/" + spec.job.name;
  job.cuda = spec.hardware.device == DeviceChoice::kCuda ||
             (spec.hardware.device == DeviceChoice::kAuto && cuda_devices > 0);
  job.backend = world.size == 1                                 ? "none"
                : spec.hardware.backend != BackendChoice::kAuto ? to_string(spec.hardware.backend)
                : job.cuda                                      ? "nccl"
                                                                : "gloo";
  job.output_dir = spec.job.output_dir;
  if (spec.train.batch_tokens == 0) {
    job.global_batch = spec.train.batch_size * spec.train.gradient_accumulation * world.size;
  }
  const std::string& every = spec.evaluation.every;
  if (spec.data.validation.path.empty() || every == "never") {
    job.evaluation_every = -1;
  } else if (every != "epoch") {
    std::from_chars(every.data(), every.data() + every.size(), job.evaluation_every);
  }
  job.spec = std::move(spec);
  return job;
}

}  // namespace trainer
