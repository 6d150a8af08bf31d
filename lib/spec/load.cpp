#include "spec/load.h"

#include "core/error.h"
#include "core/file.h"
#include "spec/read.h"
#include "spec/yaml_tree.h"

namespace trainer::spec {

namespace {

class Source {
 public:
  Source(std::string file, Node root, Faults& faults) : root_(std::move(root)), faults_(faults) {
    spec_.said.file = std::move(file);
  }
  void say(const std::vector<Flag>& flags, bool variables) {
    for (const Flag& flag : flags) {
      if (flag.is_variable == variables) apply_flag(root_, flag, ++number_, faults_);
    }
  }
  void say(const std::vector<std::string>& overrides) {
    for (const auto& override : overrides) apply_override(root_, override, ++number_, faults_);
  }
  JobSpec read() {
    expand_variables(root_, faults_);
    read_spec(root_, spec_, faults_);
    return std::move(spec_);
  }

 private:
  JobSpec spec_;
  Node root_;
  Faults& faults_;
  int number_ = 0;
};

}  // namespace

JobSpec parse(std::string_view yaml, const std::string& name, const std::vector<std::string>& overrides,
              const std::vector<Flag>& flags) {
  Faults faults(name);
  Node root = read_yaml(yaml, name, faults);
  const bool is_empty = root.kind == Node::Kind::kNull;
  Source source(name, std::move(root), faults);
  source.say(flags, true);
  source.say(overrides);
  source.say(flags, false);
  JobSpec spec;
  if (!is_empty) spec = source.read();  // else it has its fault already, and what overrides left says little
  faults.throw_if_any();
  return spec;
}

Launch parse_launch(const std::vector<Flag>& flags) {
  Faults faults("the command line");
  Node empty;
  empty.kind = Node::Kind::kMap;
  Source source("", std::move(empty), faults);
  source.say(flags, true);
  source.say(flags, false);
  JobSpec spec = source.read();
  faults.throw_if_any();
  return std::move(spec.launch);
}

JobSpec load(const std::filesystem::path& path, const std::vector<std::string>& overrides,
             const std::vector<Flag>& flags) {
  std::string text;
  try {
    text = read_file(path);
  } catch (const DataError& error) {  // a spec that cannot be read is a fault of the command, not of the data
    throw SpecError(error.what());
  }
  return parse(text, path.string(), overrides, flags);
}

}  // namespace trainer::spec
