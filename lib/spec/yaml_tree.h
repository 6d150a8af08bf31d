#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/fault.h"
#include "spec/job_spec.h"

namespace trainer::spec {

// A YAML value with its place; children of a map carry their keys. Scalars are text: what they mean is the
// reader's to say, by the type of the field (so that 5e-5 is a number and `no` a word, whatever the YAML
// version).
struct Node {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  Place place;
  std::string scalar;
  bool is_quoted = false;  // a string even where it looks like a number
  std::string key;
  Place key_place;
  std::vector<Node> children;

  const Node* find(std::string_view name) const;
};

// The tree of one YAML document. Syntax errors, duplicate keys, anchors, aliases, tags, keys that are not
// scalars and further documents are faults. With a syntax error the tree is null.
Node read_yaml(std::string_view text, const std::string& file, Faults& faults);

// Puts the value of "key.path=value" into the tree. A value that opens a list, a mapping or a quote is YAML,
// any other is the text as it stands (a '#' does not begin a comment). `number` of the override, from 1.
void apply_override(Node& root, const std::string& override, int number, Faults& faults);

// Puts a value in place of what `path` ("train.batch_size") holds, as said at `place`.
void put(Node& root, const std::string& path, Node value, const Place& place, Faults& faults);

// Expands ${NAME}, ${NAME:-default} (when unset or empty, as the shell has it) and $${ (a literal ${) in
// every scalar, from the environment.
void expand_variables(Node& root, Faults& faults);

}  // namespace trainer::spec
