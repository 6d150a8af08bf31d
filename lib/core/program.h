#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

// Where this program and others are.

namespace trainer {

// Empty: not set.
std::string environment(const char* name);

// Of this program's executable, links followed.
std::filesystem::path program_directory();

// Whether it is a file that this process may execute.
bool is_program(const std::filesystem::path& path);
// The one that a shell takes for `name`, by PATH.
std::optional<std::filesystem::path> find_in_path(const std::string& name);

// Folders of a package that are beside an interpreter: in a virtual environment, conda or an installation of Python's own.
// Python itself may know more.
std::vector<std::filesystem::path> python_packages(const std::filesystem::path& python,
                                                   const std::string& package);

}  // namespace trainer
