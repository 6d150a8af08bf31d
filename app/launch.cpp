// trainer launch: any program as the workers of a job, with torchrun's command line.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "core/error.h"
#include "core/log.h"
#include "core/program.h"
#include "hardware/machine.h"
#include "launch/agent.h"
#include "launch/plan/plan.h"
#include "launch_flags.h"
#include "libtorch.h"
#include "log_directory.h"
#include "spec/fault.h"

namespace trainer::app {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTemporaryLogBytes = 16 << 20;  // of a stream in a directory that no one asked for

struct ProgramFlags {
  LaunchFlags launch;
  bool module = false, no_python = false, run_path = false;
  std::vector<std::string> command;  // PROGRAM and its arguments
};

// torchrun's is the interpreter that it runs in; here the one that a shell would take for `python`.
std::string python() {
  if (const char* program = std::getenv("PYTHON_EXEC"); program != nullptr && *program != '\0')
    return program;
  if (const char* environment = std::getenv("VIRTUAL_ENV")) {
    const fs::path path = fs::path(environment) / "bin" / "python";
    if (is_program(path)) return path.string();
  }
  for (const char* name : {"python3", "python"}) {
    if (const auto path = find_in_path(name)) return path->string();
  }
  fail<SpecError>(
      "launch: no python to run the program with\n  hint: put python3 on PATH, or name it by PYTHON_EXEC; a "
      "program "
      "that needs none is run with --no-python");
}

// Whether the program runs by itself: an executable file, or a command on PATH, that is not a .py file.
std::optional<std::string> own_program(const std::string& name) {
  const fs::path path(name);
  std::error_code error;
  if (path.extension() == ".py" || fs::is_directory(path, error)) return std::nullopt;
  if (fs::exists(path, error))
    return is_program(path) ? std::optional(fs::absolute(path).string()) : std::nullopt;
  if (name.find('/') != std::string::npos) return std::nullopt;
  const auto found = find_in_path(name);
  return found ? std::optional(found->string()) : std::nullopt;
}

// Python's own words for what is no Python are odd ones.
void check_is_python(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    if (fs::exists(path / "__main__.py", error)) return;
    fail<SpecError>("launch: {} is a directory; expected a program (or a directory with a __main__.py)",
                    spec::shown(path.string()));
  }
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  const bool is_other = line.starts_with(
                            "\x7f"
                            "ELF") ||
                        (line.starts_with("#!") && line.find("python") == std::string::npos);
  if (!is_other) return;
  fail<SpecError>(
      "launch: {} may not be executed, and is no Python script: it begins with {}\n  hint: chmod +x {}",
      spec::shown(path.string()), spec::shown(line.substr(0, 40)), path.string());
}

std::vector<std::string> worker_command(const ProgramFlags& flags) {
  std::vector<std::string> command = flags.command;
  const std::string& program = command.front();
  if (flags.run_path) {
    constexpr const char* kRun =
        "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')";
    command.insert(command.begin(), {python(), "-u", "-c", kRun});
  } else if (flags.no_python) {
    if (flags.module)
      fail<SpecError>("--no-python and --module: expected one of them; a module needs python");
  } else if (flags.module) {
    command.insert(command.begin(), {python(), "-u", "-m"});
  } else if (const auto own = own_program(program)) {
    command.front() = *own;
  } else if (std::error_code error; fs::exists(program, error)) {
    check_is_python(program);
    command.insert(command.begin(), {python(), "-u"});
  } else {
    fail<SpecError>("launch: no program {}: not a file here{}", spec::shown(program),
                    program.find('/') == std::string::npos ? ", nor a command on PATH" : "");
  }
  return command;
}

// Moves PROGRAM and its arguments out of the command line: none of them is a flag of ours, whatever it looks like.
std::vector<std::string> take_program(const CLI::App& launch, std::vector<std::string>& arguments) {
  size_t i = 1;  // after "launch"
  for (; i < arguments.size() && arguments[i].size() > 1 && arguments[i][0] == '-'; ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") break;
    const bool is_long = argument[1] == '-';
    const std::string name = is_long ? argument.substr(0, argument.find('=')) : argument.substr(0, 2);
    const CLI::Option* option = launch.get_option_no_throw(name);
    if (option == nullptr) return {};  // the parser says so
    if (name == argument && option->get_items_expected_max() > 0) ++i;
  }
  i = std::min(i, arguments.size());
  const bool has_mark = i < arguments.size() && arguments[i] == "--";
  const auto begin = arguments.begin() + static_cast<std::ptrdiff_t>(i);
  std::vector<std::string> program(begin + (has_mark ? 1 : 0), arguments.end());
  arguments.erase(begin, arguments.end());
  return program;
}

int launch_program(ProgramFlags flags) {
  if (flags.command.empty()) {
    fail<SpecError>("launch: no program; expected trainer launch [flags] [--] PROGRAM [ARGS...]");
  }
  flags.module = flags.module || is_switched_on("module");
  flags.no_python = flags.no_python || is_switched_on("no_python");
  flags.run_path = flags.run_path || is_switched_on("run_path");
  spec::Launch spec = load_launch(flags.launch);

  const hardware::Machine machine = hardware::detect();
  if (spec.nproc_per_node == "auto")
    spec.nproc_per_node = machine.gpus.empty() ? "cpu" : "gpu";  // torchrun's
  launch::WorkerPlan plan = launch::plan_workers(spec, std::nullopt, machine, worker_command(flags));
  plan.log_dir_is_shared = false;
  std::optional<TemporaryLogDirectory> temporary;
  if (spec.log_dir.empty() || !plan.log_to_files) {
    temporary.emplace(spec.run_id);
    plan.log_dir = temporary->path();
    if (plan.log_max_bytes == 0) plan.log_max_bytes = kTemporaryLogBytes;
  } else {
    plan.log_dir = make_log_directory(spec.log_dir, spec.run_id);
  }
  find_libtorch_for_workers();  // the store's
  const auto [code, has_shown_all] = launch::run_agent(plan);
  // Kept for who reads of a failure, of an attempt before the last one too, or missed some of the output.
  std::error_code error;
  if (temporary && (fs::is_empty(plan.log_dir, error) ||
                    (code == 0 && has_shown_all && !fs::exists(plan.log_dir / "attempt_1", error))))
    temporary->remove();
  return code;
}

}  // namespace

std::function<void(std::vector<std::string>&)> add_launch(CLI::App& cli, std::function<int()>& command) {
  auto* launch =
      cli.add_subcommand("launch", "Start any program as the workers of a job: a drop-in for torchrun");
  auto flags = std::make_shared<ProgramFlags>();
  launch->footer(
      "trainer launch [flags] [--] PROGRAM [ARGS...]\n\n"
      "PROGRAM runs by itself when it is an executable file (not .py) or a command on PATH, else with "
      "python:\n"
      "$PYTHON_EXEC, the active virtual environment's, or python3 on PATH. All after PROGRAM is the "
      "program's.\n"
      "Without --nproc-per-node one worker is started, as by torchrun.");
  // The job file's default is a worker for each GPU.
  flags->launch.defaults.push_back(
      {"trainer launch", "nproc_per_node", spec::LaunchKey::Kind::kText, "1", true});
  flags->launch.defaults.push_back(  // torchrun's
      {"trainer launch", "numa_binding", spec::LaunchKey::Kind::kText, "none", true});
  add_launch_flags(*launch, flags->launch);
  launch->add_flag("-m,--module", flags->module, "PROGRAM is a Python module, as of python -m");
  launch->add_flag("--no-python,--no_python", flags->no_python, "PROGRAM is executed as it is");
  launch->add_flag("--run-path,--run_path", flags->run_path, "PROGRAM is run by Python's runpy.run_path");
  launch->callback([&command, flags] { command = [flags] { return launch_program(*flags); }; });
  return [flags, launch](std::vector<std::string>& arguments) {
    if (!arguments.empty() && arguments.front() == "launch")
      flags->command = take_program(*launch, arguments);
  };
}

}  // namespace trainer::app
