// trainer checkpoint: what is saved, and whether it is whole.

#include "checkpoint.h"

#include <memory>

#include "commands.h"
#include "torch_library.h"

namespace trainer::app {

void add_checkpoint(CLI::App& cli, std::function<int()>& command) {
  auto* checkpoint = cli.add_subcommand("checkpoint", "List, show or verify the checkpoints of a run");
  auto request = std::make_shared<CheckpointRequest>();
  checkpoint
      ->add_option("action", request->action,
                   "ls: a line for each; show: what is in them; verify: read all files")
      ->required()
      ->check(CLI::IsMember({"ls", "show", "verify"}));
  checkpoint->add_option("path", request->path, "A checkpoint, a directory of them, or a run's output_dir")
      ->required();
  checkpoint->callback(
      [&command, request] { command = [request] { return run_checkpoint_command(*request); }; });
}

}  // namespace trainer::app
