#pragma once

#include <string>
#include <vector>

#include "checkpoint.h"
#include "generate.h"
#include "job/task.h"
#include "job/world.h"
#include "records/prepare.h"
#include "tokens/prepare.h"

// The one boundary between the executable and the libraries that need LibTorch, or ICU alone (prepare). No exception crosses it (see
// report_error.h).

namespace trainer::app {

struct TorchCommand {
  std::string name;  // "worker" or "check"
  std::string job_path;
  std::vector<std::string> overrides;  // --set
  World world;                         // this worker's; of check: the planned rank 0's
  Task task = {};                      // of a worker
};

// Runs the command in libtrainer_torch.so, loaded now; returns the exit code, its errors are printed. Throws an
// installation error where it cannot be loaded.
int run_torch_command(const TorchCommand& command);
int run_generate(const GenerateRequest& request);              // as run_torch_command()
int run_checkpoint_command(const CheckpointRequest& request);  // as run_torch_command()

// Serves the job's TCPStore on the listening socket whose descriptor TRAINER_STORE_FD names, until it is killed: the
// hidden command `trainer __store`, which an agent runs. Throws trainer::Error.
int serve_store();

// Run tokens::prepare(), records::prepare() and prepare_synthetic() in libtrainer_prepare.so; as run_torch_command().
int run_prepare(const tokens::PrepareOptions& options);
int run_prepare(const records::PrepareOptions& options);
int run_prepare(const records::SyntheticOptions& options);

}  // namespace trainer::app

// What libtrainer_torch.so, libtrainer_store.so and libtrainer_prepare.so export; the exit code.
extern "C" int trainer_torch_main(const trainer::app::TorchCommand* command) noexcept;
extern "C" int trainer_generate_main(const trainer::app::GenerateRequest* request) noexcept;
extern "C" int trainer_checkpoint_main(const trainer::app::CheckpointRequest* request) noexcept;
extern "C" int trainer_store_main(int listening_fd) noexcept;
extern "C" int trainer_prepare_main(const trainer::tokens::PrepareOptions* options) noexcept;
extern "C" int trainer_prepare_records_main(const trainer::records::PrepareOptions* options) noexcept;
extern "C" int trainer_prepare_synthetic_main(const trainer::records::SyntheticOptions* options) noexcept;
