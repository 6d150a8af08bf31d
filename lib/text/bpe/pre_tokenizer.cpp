#include "text/bpe/pre_tokenizer.h"

#include "core/error.h"
#include "text/unicode.h"

namespace trainer::text {
namespace {

// Those of a group match alike.
struct KnownPattern {
  const char* regex;
  PreTokenizer::Pattern pattern;
};
constexpr KnownPattern kKnown[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", {false, 0}},
    {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", {false, 0}},
    // Llama 3, cl100k
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {true, 3}},
    {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
     {true, 3}},
    // Qwen 2
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {true, 1}},
};

// The length of the contraction ('s, 't, 're, 've, 'm, 'll, 'd) that text[i], an apostrophe, begins, or 0.
size_t contraction(std::string_view text, size_t i, bool any_case) {
  const auto at = [&](size_t k) {
    const char c = i + k < text.size() ? text[i + k] : '\0';
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  };
  switch (at(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return at(2) == 'e' ? 3 : 0;
    case 'l':
      return at(2) == 'l' ? 3 : 0;
    case '\xC5':  // U+017F, a long s: an s of another case
      return any_case && at(2) == '\xBF' ? 3 : 0;
    default:
      return 0;
  }
}

}  // namespace

PreTokenizer::Pattern PreTokenizer::find_pattern(const std::string& regex, const std::string& where) {
  for (const KnownPattern& known : kKnown) {
    if (regex == known.regex) return known.pattern;
  }
  std::string all;
  for (const KnownPattern& known : kKnown) all += fmt::format("\n  {}", known.regex);
  fail<DataError>("{}: no such pattern is built in: {}\nexpected one of{}", where, regex, all);
}

PreTokenizer::PreTokenizer(Pattern pattern) : pattern_(pattern) {
  for (char32_t c = 0; c < classes_.size(); ++c) {
    classes_[c] = c == '\r' || c == '\n' ? kNewline
                  : is_whitespace(c)     ? kSpace
                  : is_letter(c)         ? kLetter
                  : is_number(c)         ? kNumber
                                         : kOther;
  }
}

PreTokenizer::Class PreTokenizer::next(std::string_view text, size_t& i) const {
  const auto byte = static_cast<uint8_t>(text[i]);
  if (byte < 0x80) {
    ++i;
    return classes_[byte];
  }
  const char32_t c = next_code_point(text, i);
  if (c < classes_.size()) return classes_[c];
  return is_letter(c) ? kLetter : is_number(c) ? kNumber : kOther;
}

size_t PreTokenizer::run_end(std::string_view text, size_t i, Class of) const {
  for (size_t after = i; i < text.size() && next(text, after) == of;) i = after;
  return i;
}

// \s+(?!\S)|\s+, and before these Llama 3's \s*[\r\n]+
size_t PreTokenizer::space_end(std::string_view text, size_t i) const {
  size_t last = i, end = i, after_newline = 0;
  for (size_t after = i; end < text.size();) {
    const Class c = next(text, after);
    if (c != kSpace && c != kNewline) break;
    last = end;
    end = after;
    if (c == kNewline) after_newline = after;
  }
  if (pattern_.llama3 && after_newline > 0) return after_newline;
  return end == text.size() || last == i ? end : last;
}

size_t PreTokenizer::gpt2_end(std::string_view text, size_t i) const {
  if (text[i] == '\'') {
    if (const size_t length = contraction(text, i, false)) return i + length;
  }
  size_t end = i;
  Class c = next(text, end);
  if (text[i] == ' ' && end < text.size()) c = next(text, end);
  if (c == kSpace || c == kNewline) return space_end(text, i);
  return run_end(text, end, c);
}

size_t PreTokenizer::llama3_end(std::string_view text, size_t i) const {
  if (text[i] == '\'') {
    if (const size_t length = contraction(text, i, true)) return i + length;
  }
  size_t end = i;
  Class c = next(text, end);
  if (c == kLetter) return run_end(text, end, kLetter);
  if (c == kNumber) {
    for (int digits = 1; digits < pattern_.max_digits && end < text.size(); ++digits) {
      size_t after = end;
      if (next(text, after) != kNumber) break;
      end = after;
    }
    return end;
  }
  if (end < text.size() && c != kNewline) {
    size_t after = end;
    const Class second = next(text, after);
    if (second == kLetter) return run_end(text, after, kLetter);
    if (text[i] == ' ' && second == kOther) {
      c = kOther;
      end = after;
    }
  }
  if (c == kOther) return run_end(text, run_end(text, end, kOther), kNewline);
  return space_end(text, i);
}

size_t PreTokenizer::next_cut(std::string_view text, size_t i) const {
  while (i < text.size() && (static_cast<uint8_t>(text[i]) & 0xC0) == 0x80) ++i;
  Class before = kOther;
  for (size_t after = i; i < text.size(); i = after) {
    const Class c = next(text, after);
    if ((before == kLetter || before == kNumber) && c != before) return i;
    before = c;
  }
  return text.size();
}

}  // namespace trainer::text
