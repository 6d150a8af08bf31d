#include "text/added_tokens.h"

#include <algorithm>

#include "text/json_node.h"
#include "text/unicode.h"

namespace trainer::text {
namespace {

// A text of one byte is followed by a zero.
size_t first_two(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : size_t{0}; };
  return byte(0) << 8 | byte(1);
}

}  // namespace

AddedToken read_added_token(const JsonNode& node, bool special) {
  AddedToken token;
  token.special = special;
  if (node.json.is_string()) {
    token.content = node.string();
  } else {
    node.expect_object();
    token.content = node.at("content").string();
    node.read("special", token.special);
    node.read("single_word", token.single_word);
    node.read("lstrip", token.lstrip);
    node.read("rstrip", token.rstrip);
  }
  token.normalized = !token.special;
  node.read("normalized", token.normalized);
  return token;
}

std::vector<AddedToken> read_added_tokens(const JsonNode& list) {
  list.expect_list();
  std::vector<AddedToken> tokens;
  for (size_t i = 0; i < list.json.size(); ++i) {
    const JsonNode node = list.at(i);
    tokens.push_back(read_added_token(node, false));
    tokens.back().id = node.at("id").id();
  }
  return tokens;
}

std::vector<AddedToken> read_added_token_ids(const JsonNode& object) {
  std::vector<AddedToken> tokens;
  for (const auto& [content, id] : object.json.items()) {
    AddedToken& token = tokens.emplace_back();
    token.content = content;
    token.id = JsonNode{id, object.where + nlohmann::json(content).dump()}.id();
    token.normalized = true;
  }
  return tokens;
}

void add_new(AddedToken token, std::vector<AddedToken>& tokens) {
  const auto same = [&](const AddedToken& a) { return a.content == token.content; };
  if (token.content.empty() || std::any_of(tokens.begin(), tokens.end(), same)) return;
  tokens.push_back(std::move(token));
}

void add_other_special(const JsonNode& config, const JsonNode& map, std::vector<AddedToken>& tokens) {
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    for (const JsonNode* source : {&config, &map}) {
      if (!source->has(key) || !source->json[key].is_array()) continue;
      const JsonNode list = source->at(key);
      for (size_t i = 0; i < list.json.size(); ++i) add_new(read_added_token(list.at(i), true), tokens);
    }
  }
}

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer) {
  for (const AddedToken& token : tokens) {
    std::vector<Char> chars;
    for (size_t i = 0; i < token.content.size();) chars.push_back({next_code_point(token.content, i), 0, 0});
    if (token.normalized) normalizer.normalize(chars);
    if (chars.empty()) continue;
    Pattern pattern{{}, token};
    for (const Char& x : chars) pattern.content.push_back(x.c);
    if (chars[0].c < 128) first_[chars[0].c] = true;
    const size_t two = first_two(token.content);
    for (size_t second = 0; second < 256; ++second) {
      if (token.content.size() == 1 || (two & 0xFF) == second) first_two_[(two & 0xFF00) | second] = true;
    }
    patterns_.push_back(std::move(pattern));
  }
  std::stable_sort(patterns_.begin(), patterns_.end(),
                   [](const Pattern& a, const Pattern& b) { return a.content.size() > b.content.size(); });
}

bool AddedTokens::begin(std::string_view text) const {
  return std::any_of(patterns_.begin(), patterns_.end(),
                     [text](const Pattern& pattern) { return text.starts_with(pattern.token.content); });
}

// What split_text() asks of a text; places are indices of characters, or of bytes.
struct AddedTokens::Chars {
  const std::vector<Char>& text;

  size_t size() const { return text.size(); }
  // Whether a token may begin at i: quick, and not surely so.
  bool may_begin(size_t, const AddedTokens&) const { return true; }
  bool matches(size_t i, const Pattern& pattern) const {
    const std::u32string& s = pattern.content;
    return s.size() <= text.size() - i &&
           std::equal(s.begin(), s.end(), text.begin() + static_cast<std::ptrdiff_t>(i),
                      [](char32_t a, const Char& b) { return a == b.c; });
  }
  static size_t length(const Pattern& pattern) { return pattern.content.size(); }
  char32_t next(size_t& i) const { return text[i++].c; }
  char32_t previous(size_t& i) const { return text[--i].c; }
};

struct AddedTokens::Bytes {
  std::string_view text;

  size_t size() const { return text.size(); }
  bool may_begin(size_t i, const AddedTokens& tokens) const {
    return tokens.first_two_[first_two(text.substr(i))];
  }
  bool matches(size_t i, const Pattern& pattern) const {
    return text.substr(i).starts_with(pattern.token.content);
  }
  static size_t length(const Pattern& pattern) { return pattern.token.content.size(); }
  char32_t next(size_t& i) const { return next_code_point(text, i); }
  char32_t previous(size_t& i) const { return previous_code_point(text, i); }
};

template <class Text>
void AddedTokens::split_text(const Text& text, std::vector<Part>& parts) const {
  parts.clear();
  // The character at (or before) a place, if it is there and as the predicate says; moves the place.
  const auto next_is = [&](size_t& i, bool (*predicate)(char32_t)) {
    size_t after = i;
    if (i == text.size() || !predicate(text.next(after))) return false;
    i = after;
    return true;
  };
  const auto previous_is = [&](size_t& i, size_t limit, bool (*predicate)(char32_t)) {
    size_t before = i;
    if (i == limit || !predicate(text.previous(before))) return false;
    i = before;
    return true;
  };
  size_t done = 0;
  for (size_t i = 0; i < text.size() && !patterns_.empty();) {
    if (!text.may_begin(i, *this)) {
      ++i;
      continue;
    }
    const auto found = std::find_if(patterns_.begin(), patterns_.end(),
                                    [&](const Pattern& pattern) { return text.matches(i, pattern); });
    if (found == patterns_.end()) {
      ++i;
      continue;
    }
    size_t begin = i, end = i + text.length(*found);
    i = end;  // as in Hugging Face, also when the match is given up or grows over white space
    const AddedToken& token = found->token;
    if (token.single_word) {
      size_t before = begin, after = end;
      if (previous_is(before, 0, is_word) || next_is(after, is_word)) continue;
    }
    while (token.lstrip && previous_is(begin, done, is_whitespace)) {
    }
    while (token.rstrip && next_is(end, is_whitespace)) {
    }
    if (done < begin) parts.push_back({-1, done, begin});
    parts.push_back({token.id, begin, end});
    done = end;
  }
  if (done < text.size()) parts.push_back({-1, done, text.size()});
}

void AddedTokens::split(const std::vector<Char>& text, std::vector<Part>& parts) const {
  split_text(Chars{text}, parts);
}

void AddedTokens::split(std::string_view text, std::vector<Part>& parts) const {
  split_text(Bytes{text}, parts);
}

}  // namespace trainer::text
