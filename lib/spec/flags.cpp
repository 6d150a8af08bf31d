#include "spec/flags.h"

#include <fmt/format.h>

#include "spec/describe.h"
#include "spec/visit.h"

namespace trainer::spec {
namespace {

struct LaunchKeys {
  std::vector<LaunchKey> keys;

  template <class T>
  void operator()(std::string_view key, T&, const Rule& rule, std::string_view doc) {
    using Kind = LaunchKey::Kind;
    const Kind kind = MapField<T>               ? Kind::kMap
                      : ListField<T>            ? Kind::kList
                      : std::is_same_v<T, bool> ? Kind::kSwitch
                                                : Kind::kText;
    keys.push_back(
        {key, kind, rule.unit.empty() ? std::string(doc) : fmt::format("{} [{}]", doc, rule.unit)});
  }
};

// Nothing in a flag is expanded: the shell had its turn.
std::string without_variables(std::string text) {
  for (size_t at = 0; (at = text.find("${", at)) != std::string::npos; at += 3) text.insert(at, 1, '$');
  return text;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> items;
  if (text.empty()) return items;
  items.emplace_back();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      items.back() += text[i];
    } else if (text.substr(i, 2) == ",,") {
      items.back() += text[i++];
    } else {
      items.emplace_back();
    }
  }
  return items;
}

Node scalar(std::string text) {
  Node node;
  node.kind = Node::Kind::kScalar;
  node.scalar = without_variables(std::move(text));
  return node;
}

}  // namespace

std::vector<LaunchKey> launch_keys() {
  LaunchKeys visitor;
  Launch launch;
  describe(visitor, launch);
  return std::move(visitor.keys);
}

void apply_flag(Node& root, const Flag& flag, int number, Faults& faults) {
  const Place place{number, 0, 0, flag.name, true};
  Node value;
  if (flag.kind == LaunchKey::Kind::kList) {
    value.kind = Node::Kind::kList;
    for (std::string& item : split(flag.value)) value.children.push_back(scalar(std::move(item)));
  } else if (flag.kind == LaunchKey::Kind::kSwitch && (flag.value == "1" || flag.value == "0")) {
    value = scalar(flag.value == "1" ? "true" : "false");  // torchrun's
  } else {
    value = scalar(flag.value);
  }
  put(root, "launch." + flag.key, std::move(value), place, faults);
}

}  // namespace trainer::spec
