#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace trainer::text {

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer) {
  for (const AddedToken& token : tokens) {
    std::vector<Char> chars;
    for (size_t i = 0; i < token.content.size();) chars.push_back({next_code_point(token.content, i), 0, 0});
    if (token.normalized) normalizer.normalize(chars);
    if (chars.empty()) continue;
    Pattern pattern{{}, token};
    for (const Char& x : chars) pattern.content.push_back(x.c);
    if (chars[0].c < 128) first_[chars[0].c] = true;
    patterns_.push_back(std::move(pattern));
  }
  std::stable_sort(patterns_.begin(), patterns_.end(),
                   [](const Pattern& a, const Pattern& b) { return a.content.size() > b.content.size(); });
}

bool AddedTokens::begin(std::string_view text) const {
  return std::any_of(patterns_.begin(), patterns_.end(),
                     [text](const Pattern& pattern) { return text.starts_with(pattern.token.content); });
}

void AddedTokens::split(const std::vector<Char>& text, std::vector<Part>& parts) const {
  parts.clear();
  size_t done = 0;
  for (size_t i = 0; i < text.size() && !patterns_.empty();) {
    const auto matches = [&](const Pattern& pattern) {
      const std::u32string& s = pattern.content;
      return s.size() <= text.size() - i &&
             std::equal(s.begin(), s.end(), text.begin() + static_cast<std::ptrdiff_t>(i),
                        [](char32_t a, const Char& b) { return a == b.c; });
    };
    const auto found = std::find_if(patterns_.begin(), patterns_.end(), matches);
    if (found == patterns_.end()) {
      ++i;
      continue;
    }
    size_t begin = i, end = i + found->content.size();
    i = end;  // as in Hugging Face, also when the match is given up or grows over white space
    const AddedToken& token = found->token;
    if (token.single_word &&
        ((begin > 0 && is_word(text[begin - 1].c)) || (end < text.size() && is_word(text[end].c)))) {
      continue;
    }
    if (token.lstrip) {
      while (begin > done && is_whitespace(text[begin - 1].c)) --begin;
    }
    if (token.rstrip) {
      while (end < text.size() && is_whitespace(text[end].c)) ++end;
    }
    if (done < begin) parts.push_back({-1, done, begin});
    parts.push_back({token.id, begin, end});
    done = end;
  }
  if (done < text.size()) parts.push_back({-1, done, text.size()});
}

}  // namespace trainer::text
