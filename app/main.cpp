// trainer: the command line. One function per subcommand; this file alone turns errors into exit codes.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.h"
#include "core/error.h"
#include "libtorch.h"
#include "report_error.h"
#include "torch_library.h"

namespace {

int run_guarded(const std::function<int()>& command) {
  try {
    return command();
  } catch (...) {
    return trainer::app::report_error();
  }
}

// Of the program and of the LibTorch that it would use; that there is none is no error here.
std::string version() {
  try {
    const trainer::app::LibTorch libtorch = trainer::app::find_libtorch();
    return fmt::format("trainer {}\nLibTorch {} in {}", TRAINER_VERSION, libtorch.version,
                       libtorch.lib_dir.parent_path().string());
  } catch (const std::exception& error) {
    return fmt::format("trainer {}\n{}", TRAINER_VERSION, error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  // Not for people: what an agent runs for itself.
  if (argc == 2 && std::string_view(argv[1]) == "__store") return run_guarded(trainer::app::serve_store);
  CLI::App cli("Trains PyTorch models from a YAML job: one binary, one file, one command.", "trainer");
  cli.set_version_flag("--version", version);
  cli.require_subcommand(1);
  cli.footer(
      "Exit codes: 0 done; 2 usage or spec; 3 data; 4 distributed; 5 checkpoint; 6 numeric; 7 out of "
      "memory;\n"
      "128+N killed by signal N.");
  std::function<int()> command;
  trainer::app::add_run(cli, command);
  const auto take_program = trainer::app::add_launch(cli, command);
  trainer::app::add_check(cli, command);
  trainer::app::add_prepare(cli, command);
  trainer::app::add_schema(cli, command);
  trainer::app::add_init(cli, command);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  take_program(arguments);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  try {
    cli.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    const int code = cli.exit(error);
    return code == 0 ? 0 : static_cast<int>(trainer::ExitCode::kUsage);
  }
  const int code = run_guarded(command);
  if (std::fflush(stdout) != 0 && code == 0) {  // a full disk must not pass for success
    fmt::print(stderr, "cannot write to standard output: {}\n", std::strerror(errno));
    return static_cast<int>(trainer::ExitCode::kInternal);
  }
  return code;
}
