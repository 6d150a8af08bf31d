// trainer: the command line. One function per subcommand; this file alone turns errors into exit codes.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.h"
#include "core/error.h"
#include "libtorch.h"
#include "report_error.h"
#include "spec/fault.h"
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

// The exit code, another one when what was printed is lost: a full disk must not pass for success.
int flushed(int code) {
  const bool lost = !std::cout.flush() || std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!lost || code != 0) return code;
  fmt::print(stderr, "cannot write to standard output: {}\n", std::strerror(errno));
  return static_cast<int>(trainer::ExitCode::kInternal);
}

// The first flag that the subcommand does not have, with the one that may have been meant.
std::string unknown_flag(const CLI::App& cli, const std::vector<std::string>& arguments) {
  const auto commands = cli.get_subcommands([&](const CLI::App* command) {
    return !arguments.empty() && command->get_name() == arguments.front();
  });
  if (commands.empty()) return "";
  const CLI::App* command = commands.front();
  for (size_t i = 1; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& argument = arguments[i];
    if (argument.size() < 2 || argument[0] != '-') continue;
    const std::string name =
        argument[1] == '-' ? argument.substr(0, argument.find('=')) : argument.substr(0, 2);
    if (const CLI::Option* option = command->get_option_no_throw(name)) {
      if (name == argument && option->get_items_expected_max() > 0) ++i;
      continue;
    }
    std::vector<std::string> names;
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& long_name : option->get_lnames()) names.push_back("--" + long_name);
    }
    return fmt::format("trainer {}: no flag {}{}", arguments.front(), name,
                       trainer::spec::did_you_mean(name, {names.begin(), names.end()}));
  }
  return "";
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
  trainer::app::add_eval(cli, command);
  trainer::app::add_predict(cli, command);
  const auto take_program = trainer::app::add_launch(cli, command);
  trainer::app::add_check(cli, command);
  trainer::app::add_prepare(cli, command);
  trainer::app::add_generate(cli, command);
  trainer::app::add_checkpoint(cli, command);
  trainer::app::add_schema(cli, command);
  trainer::app::add_init(cli, command);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  take_program(arguments);
  const std::vector<std::string> as_given = arguments;
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  try {
    cli.parse(std::move(arguments));
  } catch (const CLI::ExtrasError& error) {
    const std::string unknown = unknown_flag(cli, as_given);
    if (unknown.empty()) {
      cli.exit(error);
    } else {
      fmt::print(stderr, "{}\n", unknown);
    }
    return static_cast<int>(trainer::ExitCode::kUsage);
  } catch (const CLI::ParseError& error) {
    const int code = cli.exit(error);  // --help and --version are such errors too
    return code == 0 ? flushed(0) : static_cast<int>(trainer::ExitCode::kUsage);
  }
  return flushed(run_guarded(command));
}
