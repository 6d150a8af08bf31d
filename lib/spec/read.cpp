#include "spec/read.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <regex>
#include <set>
#include <tuple>

#include "spec/describe.h"
#include "spec/visit.h"

namespace trainer::spec {
namespace {

// All keys of the spec by name, with what others call them: for "did you mean".
struct KeyIndex {
  struct Entry {
    std::string path;
    std::string_view key;
    std::vector<std::string_view> other_names;
  };
  std::vector<Entry> entries;
  std::string section;

  template <class T>
  void operator()(std::string_view key, T& field, const Rule& rule, std::string_view) {
    const std::string path = join_key(section, key);
    entries.push_back({path, key, rule.other_names});
    if constexpr (SectionField<T>) {
      const std::string outer = std::exchange(section, path);
      describe(*this, field);
      section = outer;
    }
  }
  template <class T>
  void inherit(T&, const T&) {}

  bool has(std::string_view path) const {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const Entry& entry) { return entry.path == path; });
  }
  // The key of another section that has this name, else that is called so elsewhere; of several the least deep.
  // Empty: none.
  std::string find(std::string_view name) const {
    const auto depth = [](const std::string& path) { return std::count(path.begin(), path.end(), '.'); };
    const auto least_deep = [&](const auto& matches) {
      std::string found;
      for (const auto& entry : entries) {
        if (matches(entry) && (found.empty() || depth(entry.path) < depth(found))) found = entry.path;
      }
      return found;
    };
    const std::string path = least_deep([&](const Entry& entry) { return entry.key == name; });
    if (!path.empty()) return path;
    return least_deep([&](const Entry& entry) {
      return std::find(entry.other_names.begin(), entry.other_names.end(), name) != entry.other_names.end();
    });
  }
};

class Reader {
 public:
  Reader(Faults& faults, Said& said) : faults_(faults), said_(said) {}

  template <SectionField T>
  void read_value(const Node& node, T& section, const std::string& path) {
    if (node.kind == Node::Kind::kScalar || node.kind == Node::Kind::kList) {
      return refuse(node, path, "a mapping of keys to values");
    }
    const Frame outer = std::exchange(frame_, Frame{&node, path, {}});
    describe(*this, section);
    report_unknown_keys();
    frame_ = outer;
  }

  // The visitor's call, for every key of a section.
  template <class T>
  void operator()(std::string_view key, T& field, const Rule& rule, std::string_view) {
    frame_.keys.push_back({key, rule.other_names});
    const Node* node = frame_.node->find(key);
    if (node == nullptr) return;
    const std::string path = join_key(frame_.path, key);
    said_.places[path] = node->place;
    if constexpr (SectionField<T>) {
      read_value(*node, field, path);
    } else {
      read_field(*node, field, rule, path);
    }
  }

  // `field` starts from what was read for `from`, but for its path.
  void inherit(DataSource& field, const DataSource& from) {
    field = from;
    field.path.clear();
  }

 private:
  struct Key {
    std::string_view name;
    std::vector<std::string_view> other_names;
  };
  struct Frame {
    const Node* node = nullptr;
    std::string path;
    std::vector<Key> keys;  // that the section has
  };

  void refuse(const Node& node, const std::string& path, const std::string& expected) {
    std::string got;
    switch (node.kind) {
      case Node::Kind::kNull:
        got = "nothing";
        break;
      case Node::Kind::kList:
        got = "a list";
        break;
      case Node::Kind::kMap:
        got = "a mapping";
        break;
      case Node::Kind::kScalar:
        got = shown(node.scalar);
    }
    faults_.add(node.place, path, fmt::format("got {}; expected {}", got, expected));
  }

  template <OptionalField T>
  void read_field(const Node& node, T& field, const Rule& rule, const std::string& path) {
    field.reset();
    if (node.kind == Node::Kind::kNull) return;  // said to be unset
    typename T::value_type value{};
    read_field(node, value, rule, path);
    field = value;
  }

  void read_field(const Node& node, bool& field, const Rule&, const std::string& path) {
    const bool is_plain = node.kind == Node::Kind::kScalar && !node.is_quoted;
    if (!is_plain || (node.scalar != "true" && node.scalar != "false"))
      return refuse(node, path, "true or false");
    field = node.scalar == "true";
  }

  template <NumberField T>
  void read_field(const Node& node, T& field, const Rule& rule, const std::string& path) {
    const std::string expected = range_in_words(std::is_same_v<T, double> ? "a number" : "an integer", rule);
    if (node.kind != Node::Kind::kScalar) return refuse(node, path, expected);
    if (node.is_quoted) {
      const bool is_number = shown(node.scalar).front() != '"';
      if (!is_number) return refuse(node, path, expected);
      return faults_.add(
          node.place, path,
          fmt::format("got the string \"{}\"; expected {}, without quotes", node.scalar, expected));
    }
    std::string_view text = node.scalar;
    if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::invalid_argument || end != text.data() + text.size())
      return refuse(node, path, expected);
    if (error == std::errc::result_out_of_range) {
      return faults_.add(
          node.place, path,
          fmt::format("got {}, which does not fit into 64 bits; expected {}", shown(node.scalar), expected));
    }
    if (!std::isfinite(static_cast<double>(value))) return refuse(node, path, expected);
    if (!rule.admits(static_cast<double>(value))) return refuse(node, path, expected);
    field = value;
  }

  void read_field(const Node& node, std::string& field, const Rule& rule, const std::string& path) {
    if (!rule.words.empty()) return read_words(node, field, rule, path);
    if (node.kind != Node::Kind::kScalar) {
      return refuse(node, path, rule.is_column ? "a column's name, or its number from 0" : "a string");
    }
    if (rule.pattern != nullptr && !std::regex_match(node.scalar, std::regex(rule.pattern))) {
      return refuse(node, path, std::string(rule.form));
    }
    field = node.scalar;
  }

  void read_words(const Node& node, std::string& field, const Rule& rule, const std::string& path) {
    const bool is_scalar = node.kind == Node::Kind::kScalar;
    const auto& words = rule.words;
    if (is_scalar && std::find(words.begin(), words.end(), node.scalar) != words.end()) {
      field = node.scalar;
      return;
    }
    int64_t number = 0;
    const char* end = node.scalar.data() + node.scalar.size();
    const auto result = std::from_chars(node.scalar.data(), end, number);
    if (is_scalar && result.ec == std::errc{} && result.ptr == end &&
        rule.admits(static_cast<double>(number))) {
      field = std::to_string(number);
      return;
    }
    auto alternatives = words;
    const std::string range = range_in_words("an integer", rule);
    alternatives.push_back(range);
    refuse(node, path, either(alternatives) + meant(node, words));
  }

  template <EnumField E>
  void read_field(const Node& node, E& field, const Rule&, const std::string& path) {
    if (node.kind == Node::Kind::kScalar) {
      for (const auto& [value, name] : names(E{})) {
        if (name == node.scalar) {
          field = value;
          return;
        }
      }
    }
    refuse(node, path, either(choices<E>()) + meant(node, choices<E>()));
  }

  template <ListField T>
  void read_field(const Node& node, T& field, const Rule& rule, const std::string& path) {
    if (node.kind != Node::Kind::kList) {
      return refuse(node, path, fmt::format("a list, e.g. [{}]", example(typename T::value_type{})));
    }
    field.clear();
    std::set<std::string> seen;
    for (const auto& child : node.children) {
      typename T::value_type value{};
      read_field(child, value, rule, path);
      if (!rule.repeats && child.kind == Node::Kind::kScalar && !seen.insert(child.scalar).second) {
        faults_.add(child.place, path, fmt::format("got {} twice; expected it once", shown(child.scalar)));
      }
      field.push_back(std::move(value));
    }
  }
  static std::string_view example(const std::string&) { return "a, b"; }
  static std::string_view example(int64_t) { return "0, 1"; }
  static std::string_view example(Metric) { return "accuracy, f1"; }

  template <MapField T>
  void read_field(const Node& node, T& field, const Rule& rule, const std::string& path) {
    if (node.kind == Node::Kind::kNull) return;  // all its lines are commented out
    if (node.kind != Node::Kind::kMap) {
      return refuse(node, path,
                    SectionMapField<T> ? "a mapping of names to mappings" : "a mapping of names to strings");
    }
    field.clear();
    for (const auto& child : node.children) {
      const std::string name = join_key(path, child.key);
      said_.places[name] = child.place;
      if constexpr (SectionMapField<T>) {
        read_value(child, field[child.key], name);
      } else {
        read_field(child, field[child.key], rule, name);
      }
    }
  }

  static std::string meant(const Node& node, const std::vector<std::string_view>& words) {
    if (node.kind != Node::Kind::kScalar) return "";
    // Short words are all near each other: "gpu" does not mean cpu.
    if (node.scalar.size() >= 4) return did_you_mean(node.scalar, words);
    const auto word = same_but_for_case(node.scalar, words);
    return word.empty() ? "" : fmt::format("; did you mean {}?", word);
  }

  static std::string_view same_but_for_case(std::string_view word,
                                            const std::vector<std::string_view>& words) {
    const auto equal = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
    for (const auto candidate : words) {
      if (std::equal(word.begin(), word.end(), candidate.begin(), candidate.end(), equal)) return candidate;
    }
    return {};
  }

  void report_unknown_keys() {
    for (const auto& child : frame_.node->children) {
      const auto known = [&](const Key& key) { return key.name == child.key; };
      if (std::any_of(frame_.keys.begin(), frame_.keys.end(), known)) continue;
      faults_.add(child.key_place, join_key(frame_.path, child.key), "no such key" + meant_key(child.key));
    }
  }

  // In order: what another trainer calls a key of this section, a near key of this section, a key of another
  // one.
  std::string meant_key(const std::string& name) const {
    if (name == "<<") return "; merge keys are not supported";
    std::vector<std::string_view> here;
    for (const auto& key : frame_.keys) {
      const auto& others = key.other_names;
      if (std::find(others.begin(), others.end(), name) != others.end()) {
        return fmt::format("; did you mean {}?", key.name);
      }
      here.push_back(key.name);
    }
    if (auto near = did_you_mean(name, here); !near.empty()) return near;
    KeyIndex index;
    JobSpec spec;
    describe(index, spec);
    if (const size_t dot = name.find('.');
        dot != std::string::npos && index.has(join_key(frame_.path, name))) {
      return fmt::format("; keys are nested: {}: {{{}: ...}}", name.substr(0, dot), name.substr(dot + 1));
    }
    if (const auto path = index.find(name); !path.empty()) return fmt::format("; did you mean {}?", path);
    return "; expected " + either(here);
  }

  Faults& faults_;
  Said& said_;
  Frame frame_;
};

}  // namespace

void read_spec(const Node& root, JobSpec& spec, Faults& faults) {
  Reader(faults, spec.said).read_value(root, spec, "");
}

}  // namespace trainer::spec
