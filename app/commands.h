#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

// Each adds its subcommand; when that is the one given, `command` becomes what runs it and returns the exit
// code.

namespace trainer::app {

void add_run(CLI::App& cli, std::function<int()>& command);
void add_eval(CLI::App& cli, std::function<int()>& command);
void add_predict(CLI::App& cli, std::function<int()>& command);
// Returns what must be applied to the arguments (without the program's name) before they are parsed.
std::function<void(std::vector<std::string>&)> add_launch(CLI::App& cli, std::function<int()>& command);
void add_check(CLI::App& cli, std::function<int()>& command);
void add_prepare(CLI::App& cli, std::function<int()>& command);
void add_generate(CLI::App& cli, std::function<int()>& command);
void add_checkpoint(CLI::App& cli, std::function<int()>& command);
void add_schema(CLI::App& cli, std::function<int()>& command);
void add_init(CLI::App& cli, std::function<int()>& command);

}  // namespace trainer::app
