#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// Unicode as Hugging Face tokenizers 0.23 sees it. ICU has the data; where the Rust crates behind tokenizers
// hold another version of Unicode, the age of a character decides:
//   general categories  unicode_categories, Unicode 8.0 (younger characters have none)
//   NFD                 unicode-normalization-alignments, Unicode 9.0
//   white space, lower case   Rust's char, Unicode 17.0
//   \p{L}, \p{N} of pre-tokenizers' patterns   Oniguruma, Unicode 16.0
// tests/parity/compare_wordpiece.py and bpe_parity.py check every code point.

namespace trainer::text {

constexpr char32_t kReplacement = 0xFFFD;

// Decodes the code point at text[i] and moves i behind it. Each ill-formed sequence (maximal subpart) gives
// U+FFFD, as Python's bytes.decode(errors="replace").
char32_t next_code_point(std::string_view text, size_t& i);
// The code point that ends just before text[i]; moves i to its beginning. i > 0.
char32_t previous_code_point(std::string_view text, size_t& i);
void append_utf8(char32_t c, std::string& out);

bool is_whitespace(char32_t c);
// Control, format, private use or surrogate, but not unassigned.
bool is_other(char32_t c);
bool is_nonspacing_mark(char32_t c);
// ASCII punctuation and symbols, or Unicode category P.
bool is_punctuation(char32_t c);
// BERT's CJK ideographs; Hangul and kana are not among them.
bool is_cjk(char32_t c);
// \w of regular expressions.
bool is_word(char32_t c);

// \p{L} and \p{N} of regular expressions.
bool is_letter(char32_t c);
bool is_number(char32_t c);

// Full lower-case mapping without context (a final sigma is a sigma): 1 or 2 code points.
int lower_case(char32_t c, char32_t out[2]);
// Full canonical decomposition: the number of code points, 0 when c stands for itself.
int decompose(char32_t c, char32_t out[4]);
// Canonical combining class.
uint8_t combining_class(char32_t c);

}  // namespace trainer::text
