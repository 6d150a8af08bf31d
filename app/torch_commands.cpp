// Entry of libtrainer_torch.so: the commands that need LibTorch.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>

#include "check.h"
#include "core/error.h"
#include "generate.h"
#include "report/crash.h"
#include "report/progress.h"
#include "report/worker_error.h"
#include "report_error.h"
#include "spec/load.h"
#include "torch_library.h"
#include "train/worker.h"

namespace trainer::app {
namespace {

// One rank of a job. Ends the process itself: static destructors of the libraries may wait for what is gone.
[[noreturn]] void run_worker_and_exit(const TorchCommand& command) {
  ::unsetenv("TRAINER_WORKER");  // programs that this worker starts are no workers
  const report::Progress progress = report::Progress::from_environment();
  report::report_crashes(progress.page());
  int code = 0;
  try {
    code = static_cast<int>(train::run_worker(spec::load(command.job_path, command.overrides), command.world,
                                              command.task, progress.page()));
  } catch (const std::exception& error) {
    const int64_t step = progress.page().step;
    code = report::report_worker_error(error, step > 0 ? std::optional(step) : std::nullopt);
  }
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace
}  // namespace trainer::app

extern "C" int trainer_torch_main(const trainer::app::TorchCommand* command) noexcept {
  try {
    if (command->name == "worker") trainer::app::run_worker_and_exit(*command);
    return trainer::app::check(*command);
  } catch (...) {
    return trainer::app::report_error();
  }
}

extern "C" int trainer_checkpoint_main(const trainer::app::CheckpointRequest* request) noexcept {
  try {
    return trainer::app::run_checkpoint(*request);
  } catch (...) {
    return trainer::app::report_error();
  }
}

extern "C" int trainer_generate_main(const trainer::app::GenerateRequest* request) noexcept {
  try {
    return trainer::app::generate(*request);
  } catch (...) {
    return trainer::app::report_error();
  }
}
