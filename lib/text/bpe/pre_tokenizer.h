#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trainer::text {

// Cuts text into the words that BPE does not merge across, by the patterns of GPT-2 and of Llama 3 (which are
// cl100k's), written out as matchers. An ill-formed sequence of UTF-8 counts as U+FFFD: neither letter, nor
// number, nor space.
class PreTokenizer {
 public:
  struct Pattern {
    bool llama3 = false;  // or GPT-2's
    int max_digits = 0;   // of a number's piece (Llama 3's only)
  };
  static constexpr Pattern kGpt2 = {false, 0};
  // By a regular expression as tokenizer.json files have it. Throws DataError "<where>: ..." for others.
  static Pattern find_pattern(const std::string& regex, const std::string& where);

  explicit PreTokenizer(Pattern pattern);

  // The end of the word that begins at text[i]. i < text.size().
  size_t word_end(std::string_view text, size_t i) const {
    return pattern_.llama3 ? llama3_end(text, i) : gpt2_end(text, i);
  }
  // The first place >= i that words end at whatever stands before and after it: between a letter or number and
  // a character of another class. text.size() when there is none.
  size_t next_cut(std::string_view text, size_t i) const;

 private:
  enum Class : uint8_t { kLetter, kNumber, kSpace, kNewline, kOther };
  // Moves i behind the character there.
  Class next(std::string_view text, size_t& i) const;
  size_t run_end(std::string_view text, size_t i, Class of) const;
  size_t space_end(std::string_view text, size_t i) const;
  size_t gpt2_end(std::string_view text, size_t i) const;
  size_t llama3_end(std::string_view text, size_t i) const;

  Pattern pattern_;
  std::array<Class, 1 << 16> classes_;  // of code points
};

}  // namespace trainer::text
