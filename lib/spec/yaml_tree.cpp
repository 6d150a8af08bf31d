#include "spec/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sstream>

namespace trainer::spec {
namespace {

constexpr size_t kMaxDepth = 32;  // the spec itself is 4 deep; the reader and the destructor recurse

// Raised to end reading once the rest could only repeat the fault.
struct Stop {};

class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, std::string file, Faults& faults)
      : file_(std::move(file)), faults_(faults) {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      lines_.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  Node root;
  bool has_document = false;

  Place place(const YAML::Mark& mark) const {
    if (mark.is_null()) return {0, 1, 1, file_ + ":1:1"};
    // yaml-cpp counts bytes, people count characters.
    int column = 1;
    if (mark.line < static_cast<int>(lines_.size())) {
      const auto line = lines_[mark.line].substr(0, mark.column);
      column += static_cast<int>(
          std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
      column += mark.column - static_cast<int>(line.size());
    } else {
      column += mark.column;
    }
    return {0, mark.line + 1, column, fmt::format("{}:{}:{}", file_, mark.line + 1, column)};
  }

  void OnDocumentStart(const YAML::Mark&) override { has_document = true; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(make(Node::Kind::kNull, mark, "", anchor));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, "aliases (*name) are not supported; write the value out, or use ${VAR}");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Node node = make(Node::Kind::kScalar, mark, tag, anchor);
    node.scalar = value;
    node.is_quoted = tag == "!";
    check_closed(mark);
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    push(make(Node::Kind::kList, mark, tag, anchor));
  }
  void OnSequenceEnd() override { pop(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    push(make(Node::Kind::kMap, mark, tag, anchor));
  }
  void OnMapEnd() override { pop(); }

 private:
  struct Open {
    Node node;
    Node key;  // waits for its value
    bool has_key = false;
  };

  std::string path() const {
    std::string path;
    for (const auto& open : stack_) {
      if (open.has_key) path += (path.empty() ? "" : ".") + open.key.scalar;
    }
    return path;
  }

  [[noreturn]] void refuse(const YAML::Mark& mark, std::string_view message) {
    faults_.add(place(mark), path(), message);
    throw Stop{};
  }

  Node make(Node::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) refuse(mark, "anchors (&name) are not supported; write the value out, or use ${VAR}");
    if (!tag.empty() && tag != "!" && tag != "?")
      refuse(mark, fmt::format("tags ({}) are not supported", shown(tag)));
    Node node;
    node.kind = kind;
    node.place = place(mark);
    return node;
  }

  // yaml-cpp takes the end of the file for the end of a string.
  void check_closed(const YAML::Mark& mark) {
    size_t line = static_cast<size_t>(mark.line), column = static_cast<size_t>(mark.column);
    if (line >= lines_.size() || column >= lines_[line].size()) return;
    const char quote = lines_[line][column];
    if (quote != '"' && quote != '\'') return;
    for (++column; line < lines_.size(); ++line, column = 0) {
      for (; column < lines_[line].size(); ++column) {
        const std::string_view rest = lines_[line].substr(column);
        const bool is_escape = quote == '"' ? rest[0] == '\\' : rest.substr(0, 2) == "''";
        if (is_escape) {
          ++column;
        } else if (rest[0] == quote) {
          return;
        }
      }
    }
    refuse(mark, fmt::format("the string's closing {} is missing", quote));
  }

  void push(Node node) {
    if (!stack_.empty() && stack_.back().node.kind == Node::Kind::kMap && !stack_.back().has_key) {
      faults_.add(node.place, path(), "got a list or mapping as a key; expected a name");
      throw Stop{};
    }
    if (stack_.size() >= kMaxDepth) {
      faults_.add(node.place, "", fmt::format("nested deeper than {}", kMaxDepth));
      throw Stop{};
    }
    stack_.push_back({std::move(node), {}, false});
  }

  void pop() {
    Node node = std::move(stack_.back().node);
    stack_.pop_back();
    add(std::move(node));
  }

  void add(Node node) {
    if (stack_.empty()) {
      root = std::move(node);
      return;
    }
    Open& open = stack_.back();
    if (open.node.kind == Node::Kind::kMap) {
      if (!open.has_key) {
        if (node.kind == Node::Kind::kNull) node.scalar = "null";  // as it is written; no key has that name
        open.key = std::move(node);
        open.has_key = true;
        return;
      }
      node.key = open.key.scalar;
      node.key_place = open.key.place;
      if (const Node* first = open.node.find(node.key)) {
        faults_.add(node.key_place, path(),
                    fmt::format("given twice; the first is at {}", first->key_place.where));
      }
      // An empty value has no place of its own.
      if (node.kind == Node::Kind::kNull && node.place.line != node.key_place.line)
        node.place = node.key_place;
      open.has_key = false;
    }
    open.node.children.push_back(std::move(node));
  }

  std::string file_;
  Faults& faults_;
  std::vector<std::string_view> lines_;
  std::vector<Open> stack_;
};

// What yaml-cpp's messages mean to the one who wrote the file.
std::string explain(const std::string& message, const std::string& line) {
  if (line.find("${") != std::string::npos) return "inside { } and [ ] write \"${VAR}\" with its quotes";
  if (line.find('\t') != std::string::npos) return "indent with spaces, not tabs";
  if (message == YAML::ErrorMsg::END_OF_MAP || message == YAML::ErrorMsg::END_OF_SEQ)
    return "check the indentation";
  if (message == YAML::ErrorMsg::MAP_VALUE)
    return "check the indentation, and put text with \": \" in quotes";
  if (message == YAML::ErrorMsg::END_OF_MAP_FLOW) return "a { is not closed, or a comma is missing";
  if (message == YAML::ErrorMsg::END_OF_SEQ_FLOW) return "a [ is not closed, or a comma is missing";
  return "";
}

// Reads one document; reports its own faults. False: there is no document, or it is not whole.
bool build(std::string_view text, const std::string& file, Faults& faults, Node& root) {
  TreeBuilder builder(text, file, faults);
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    root = std::move(builder.root);
    TreeBuilder second(text, file, faults);
    parser.HandleNextDocument(second);
    if (second.has_document)
      faults.add(second.root.place, "", "a second document; expected one job spec a file");
    return builder.has_document;
  } catch (const Stop&) {
  } catch (const YAML::Exception& error) {
    std::string line;
    std::istringstream lines{std::string(text)};
    for (int i = 0; i <= error.mark.line && std::getline(lines, line); ++i) {
    }
    const std::string hint = explain(error.msg, line);
    faults.add(builder.place(error.mark), "",
               fmt::format("not valid YAML: {}{}{}", error.msg, hint.empty() ? "" : "; ", hint));
  }
  root = {};
  return false;
}

void place_all(Node& node, const Place& place) {
  node.place = node.key_place = place;
  for (auto& child : node.children) place_all(child, place);
}

bool is_name(std::string_view text) {
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; });
}

void expand(Node& node, const std::string& path, Faults& faults) {
  std::string& text = node.scalar;
  for (size_t at = text.find("${"); at != std::string::npos; at = text.find("${", at)) {
    if (at > 0 && text[at - 1] == '$') {
      text.erase(at - 1, 1);
      at += 1;
      continue;
    }
    const size_t close = text.find('}', at);
    const std::string inside = close == std::string::npos ? "" : text.substr(at + 2, close - at - 2);
    const size_t dash = inside.find(":-");
    const std::string name = inside.substr(0, dash);
    if (!is_name(name)) {
      faults.add(node.place, path,
                 fmt::format("got {}; expected ${{NAME}} or ${{NAME:-default}}, or $${{ for the text ${{",
                             shown(text)));
      return;
    }
    const char* value = std::getenv(name.c_str());
    if (dash != std::string::npos && (value == nullptr || *value == '\0')) value = inside.c_str() + dash + 2;
    if (value == nullptr) {
      faults.add(
          node.place, path,
          fmt::format("environment variable {} is not set; set it, or write ${{{}:-default}}", name, name));
      value = "";
    }
    const std::string replacement = value;
    text.replace(at, close + 1 - at, replacement);
    at += replacement.size();  // a value's own ${ stays
    node.is_quoted = false;    // "${LR}" in quotes may still be a number
  }
}

void expand_all(Node& node, const std::string& path, Faults& faults) {
  if (node.kind == Node::Kind::kScalar) expand(node, path, faults);
  for (auto& child : node.children) {
    const std::string name = child.key.empty() ? path : path.empty() ? child.key : path + "." + child.key;
    expand_all(child, name, faults);
  }
}

}  // namespace

const Node* Node::find(std::string_view name) const {
  for (const auto& child : children) {
    if (child.key == name) return &child;
  }
  return nullptr;
}

Node read_yaml(std::string_view text, const std::string& file, Faults& faults) {
  Node root;
  const bool before = faults.empty();
  const bool whole = build(text, file, faults, root);
  if (before && faults.empty() && (!whole || root.kind == Node::Kind::kNull)) {
    faults.add({0, 1, 1, file + ":1:1"}, "",
               "the file is empty; expected a job spec (`trainer init bert` prints one)");
  }
  return root;
}

void apply_override(Node& root, const std::string& override, int number, Faults& faults) {
  const size_t equals = override.find('=');
  const std::string path = override.substr(0, equals);
  const Place place{number, 0, 0, "--set " + path};
  if (equals == std::string::npos || path.empty() || path.front() == '.' || path.back() == '.' ||
      path.find("..") != std::string::npos) {
    faults.add({number, 0, 0, "--set " + shown(override)}, "",
               "expected key.path=value, e.g. train.batch_size=32");
    return;
  }
  const std::string text = override.substr(equals + 1);
  Node value;
  if (!text.empty() && std::string_view("[{\"'").find(text[0]) != std::string_view::npos) {
    Faults own("");
    if (!build(text, "value", own, value) || !own.empty()) {
      faults.add(place, path, fmt::format("got {}, which is not valid YAML", shown(text)));
      return;
    }
  } else {
    value.kind = text == "null" || text == "~" ? Node::Kind::kNull : Node::Kind::kScalar;
    value.scalar = text;
  }
  put(root, path, std::move(value), place, faults);
}

void put(Node& root, const std::string& path, Node value, const Place& place, Faults& faults) {
  Node* at = &root;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string key = path.substr(begin, end - begin);
    if (at->kind == Node::Kind::kNull) at->kind = Node::Kind::kMap;
    if (at->kind != Node::Kind::kMap) {
      const std::string parent = path.substr(0, begin == 0 ? 0 : begin - 1);
      faults.add(place, path,
                 fmt::format("no such key: {} is not a mapping", parent.empty() ? "the spec" : parent));
      return;
    }
    auto child =
        std::find_if(at->children.begin(), at->children.end(), [&](const Node& n) { return n.key == key; });
    if (child == at->children.end()) {
      Node fresh;
      fresh.key = key;
      fresh.place = fresh.key_place = place;
      child = at->children.insert(at->children.end(), std::move(fresh));
    }
    at = &*child;
    begin = end + 1;
  }
  value.key = at->key;
  *at = std::move(value);
  place_all(*at, place);
}

void expand_variables(Node& root, Faults& faults) {
  expand_all(root, "", faults);
}

}  // namespace trainer::spec
