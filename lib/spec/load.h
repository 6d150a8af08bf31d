#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "spec/flags.h"
#include "spec/job_spec.h"

namespace trainer::spec {

// Reads a job spec. `overrides` are --set arguments, "key.path=value", applied to the YAML tree before it is
// read; so are `flags`, the launch section's: variables under the overrides, command-line flags over them.
// ${VAR} and ${VAR:-default} are expanded in scalars. Throws SpecError with every fault of the file, one a
// line as file:line:column: key: what was got; what is expected; a last line counts them.
JobSpec load(const std::filesystem::path& path, const std::vector<std::string>& overrides = {},
             const std::vector<Flag>& flags = {});

// As load, from text; `name` stands for the file in messages.
JobSpec parse(std::string_view yaml, const std::string& name, const std::vector<std::string>& overrides = {},
              const std::vector<Flag>& flags = {});

// The launch section alone, of a command that has no job file.
Launch parse_launch(const std::vector<Flag>& flags);

// The whole spec with every default spelled out, as YAML that load() reads back to an equal spec.
std::string to_yaml(const JobSpec& spec);

// JSON Schema (draft 2020-12) of the job spec, as text.
std::string json_schema();

}  // namespace trainer::spec
