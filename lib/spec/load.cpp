#include "spec/load.h"

#include "core/error.h"
#include "core/file.h"
#include "spec/read.h"
#include "spec/yaml_tree.h"

namespace trainer::spec {

JobSpec parse(std::string_view yaml, const std::string& name, const std::vector<std::string>& overrides) {
  Faults faults(name);
  Node root = read_yaml(yaml, name, faults);
  const bool is_empty = root.kind == Node::Kind::kNull;
  for (size_t i = 0; i < overrides.size(); ++i) {
    apply_override(root, overrides[i], static_cast<int>(i) + 1, faults);
  }
  JobSpec spec;
  spec.said.file = name;
  if (!is_empty) {  // else it has its fault already, and what overrides left of it says little
    expand_variables(root, faults);
    read_spec(root, spec, faults);
  }
  faults.throw_if_any();
  return spec;
}

JobSpec load(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const DataError& error) {  // a spec that cannot be read is a fault of the command, not of the data
    throw SpecError(error.what());
  }
  return parse(text, path.string(), overrides);
}

}  // namespace trainer::spec
