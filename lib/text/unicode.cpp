#include "text/unicode.h"

#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/utf16.h>
#include <unicode/utf8.h>

#include <algorithm>

namespace trainer::text {
namespace {

UChar32 icu(char32_t c) {
  return static_cast<UChar32>(c);
}

bool in_unicode(char32_t c, int major) {
  UVersionInfo age;
  u_charAge(icu(c), age);
  return age[0] <= major;
}

uint32_t category(char32_t c) {
  return U_GET_GC_MASK(icu(c));
}

const UNormalizer2* nfd() {
  static const UNormalizer2* const instance = [] {
    UErrorCode error = U_ZERO_ERROR;
    return unorm2_getNFDInstance(&error);  // cannot fail: the data is linked into ICU
  }();
  return instance;
}

// Lower-case mappings that came with Unicode 16 and 17, after ICU 72.
struct LowerRange {
  char32_t first, last, lower;
};
constexpr LowerRange kNewLower[] = {
    {0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x0264}, {0xA7CC, 0xA7CC, 0xA7CD},
    {0xA7CE, 0xA7CE, 0xA7CF},    {0xA7D2, 0xA7D2, 0xA7D3}, {0xA7D4, 0xA7D4, 0xA7D5},
    {0xA7DA, 0xA7DA, 0xA7DB},    {0xA7DC, 0xA7DC, 0x019B}, {0x10D50, 0x10D65, 0x10D70},
    {0x16EA0, 0x16EB8, 0x16EBB},
};

// Letters and numbers that came with Unicode 15.1 and 16, after ICU 72.
struct Range {
  char32_t first, last;
};
constexpr Range kNewLetters[] = {
    {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3}, {0x10D4A, 0x10D65},
    {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x11380, 0x11389}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E},
    {0x11390, 0x113B5}, {0x113B7, 0x113B7}, {0x113D1, 0x113D1}, {0x113D3, 0x113D3}, {0x11BC0, 0x11BE0},
    {0x13460, 0x143FA}, {0x16100, 0x1611D}, {0x16D40, 0x16D6C}, {0x18CFF, 0x18CFF}, {0x1E5D0, 0x1E5ED},
    {0x1E5F0, 0x1E5F0}, {0x2EBF0, 0x2EE5D},
};
constexpr Range kNewNumbers[] = {
    {0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x16130, 0x16139},
    {0x16D70, 0x16D79}, {0x1CCF0, 0x1CCF9}, {0x1E5F1, 0x1E5FA},
};

template <size_t N>
bool in_ranges(char32_t c, const Range (&ranges)[N]) {
  return std::any_of(ranges, ranges + N, [c](const Range& r) { return c >= r.first && c <= r.last; });
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t& i) {
  UChar32 c;
  U8_NEXT_OR_FFFD(text.data(), i, text.size(), c);
  return static_cast<char32_t>(c);
}

char32_t previous_code_point(std::string_view text, size_t& i) {
  // ICU's places here are of 32 bits, so it gets the last bytes alone.
  const size_t begin = i < U8_MAX_LENGTH ? 0 : i - U8_MAX_LENGTH;
  auto place = static_cast<int32_t>(i - begin);
  UChar32 c;
  U8_PREV_OR_FFFD(text.data() + begin, 0, place, c);
  i = begin + static_cast<size_t>(place);
  return static_cast<char32_t>(c);
}

void append_utf8(char32_t c, std::string& out) {
  char buffer[U8_MAX_LENGTH];
  size_t size = 0;
  U8_APPEND_UNSAFE(buffer, size, icu(c));
  out.append(buffer, size);
}

bool is_whitespace(char32_t c) {
  return u_isUWhiteSpace(icu(c));
}

// The few exceptions below changed their category after Unicode 8.
bool is_other(char32_t c) {
  return (category(c) & (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK | U_GC_CS_MASK)) != 0 && in_unicode(c, 8);
}

bool is_nonspacing_mark(char32_t c) {
  if (c == 0x1734) return true;
  if (c == 0x1885 || c == 0x1886 || c == 0xA9BD || c == 0x111C9) return false;
  return (category(c) & U_GC_MN_MASK) != 0 && in_unicode(c, 8);
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return (category(c) & (U_GC_P_MASK | U_GC_S_MASK)) != 0;
  if (c == 0x166D || c == 0x111C9) return true;
  return (category(c) & U_GC_P_MASK) != 0 && in_unicode(c, 8);
}

bool is_cjk(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

bool is_word(char32_t c) {
  return u_hasBinaryProperty(icu(c), UCHAR_ALPHABETIC) || u_hasBinaryProperty(icu(c), UCHAR_JOIN_CONTROL) ||
         (category(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

bool is_letter(char32_t c) {
  if ((category(c) & U_GC_L_MASK) != 0) return in_unicode(c, 16);
  return c >= kNewLetters[0].first && in_ranges(c, kNewLetters);
}

bool is_number(char32_t c) {
  if ((category(c) & U_GC_N_MASK) != 0) return in_unicode(c, 16);
  return c >= kNewNumbers[0].first && in_ranges(c, kNewNumbers);
}

int lower_case(char32_t c, char32_t out[2]) {
  if (c == 0x130) {  // the only one that grows: I with dot above
    out[0] = 'i';
    out[1] = 0x307;
    return 2;
  }
  out[0] = static_cast<char32_t>(u_tolower(icu(c)));
  if (out[0] == c && c >= kNewLower[0].first) {
    for (const LowerRange& range : kNewLower) {
      if (c >= range.first && c <= range.last) out[0] = range.lower + (c - range.first);
    }
  }
  return 1;
}

int decompose(char32_t c, char32_t out[4]) {
  if (c < 0xC0) return 0;
  UChar utf16[8];
  UErrorCode error = U_ZERO_ERROR;
  const int32_t size = unorm2_getDecomposition(nfd(), icu(c), utf16, 8, &error);
  if (size < 0 || !in_unicode(c, 9)) return 0;
  int n = 0;
  for (int32_t i = 0; i < size;) {
    UChar32 part;
    U16_NEXT(utf16, i, size, part);
    out[n++] = static_cast<char32_t>(part);
  }
  return n;
}

uint8_t combining_class(char32_t c) {
  if (c < 0x300) return 0;
  const uint8_t ccc = unorm2_getCombiningClass(nfd(), icu(c));
  return ccc != 0 && in_unicode(c, 9) ? ccc : 0;
}

}  // namespace trainer::text
