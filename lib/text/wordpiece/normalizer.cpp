#include "text/wordpiece/normalizer.h"

#include <algorithm>

#include "text/unicode.h"

namespace trainer::text {
namespace {

void clean(std::vector<Char>& text) {
  size_t n = 0;
  for (const Char& x : text) {
    const bool space = x.c == '\t' || x.c == '\n' || x.c == '\r' || is_whitespace(x.c);
    if (x.c == kReplacement || (is_other(x.c) && !(x.c == '\t' || x.c == '\n' || x.c == '\r'))) continue;
    text[n++] = {space ? U' ' : x.c, x.start, x.end};
  }
  text.resize(n);
}

void space_out_cjk(std::vector<Char>& text) {
  if (std::none_of(text.begin(), text.end(), [](const Char& x) { return is_cjk(x.c); })) return;
  std::vector<Char> out;
  out.reserve(text.size() * 3);
  for (const Char& x : text) {
    if (is_cjk(x.c)) {
      out.insert(out.end(), {{U' ', x.start, x.end}, x, {U' ', x.start, x.end}});
    } else {
      out.push_back(x);
    }
  }
  text.swap(out);
}

// Canonical decomposition. Hugging Face aligns by position, after marks are put in canonical order: a
// character that continues a decomposition has its left neighbour's place, every other one the next place of
// the source.
void to_nfd(std::vector<Char>& text) {
  struct Part {
    char32_t c;
    uint8_t combining_class;
    bool continues;
  };
  std::vector<Part> parts;
  parts.reserve(text.size() + text.size() / 4);
  size_t unordered = 0;  // marks from here on wait for their order
  const auto order = [&] {
    std::stable_sort(parts.begin() + static_cast<std::ptrdiff_t>(unordered), parts.end(),
                     [](const Part& a, const Part& b) { return a.combining_class < b.combining_class; });
  };
  const auto push = [&](char32_t c, bool continues) {
    const uint8_t ccc = combining_class(c);
    if (ccc == 0 && parts.size() - unordered > 1) order();
    parts.push_back({c, ccc, continues});
    if (ccc == 0) unordered = parts.size();
  };
  for (const Char& x : text) {
    char32_t out[4];
    const int n = decompose(x.c, out);
    if (n == 0) push(x.c, false);
    for (int i = 0; i < n; ++i) push(out[i], i > 0);
  }
  order();

  std::vector<Char> out;
  out.reserve(parts.size());
  size_t source = 0;
  for (const Part& part : parts) {
    if (!part.continues) ++source;
    const Char& place = text[source - 1];
    out.push_back({part.c, place.start, place.end});
  }
  text.swap(out);
}

void strip_accents(std::vector<Char>& text) {
  // Nothing below U+00C0 decomposes or is a mark.
  if (std::all_of(text.begin(), text.end(), [](const Char& x) { return x.c < 0xC0; })) return;
  to_nfd(text);
  std::erase_if(text, [](const Char& x) { return is_nonspacing_mark(x.c); });
}

void lower(std::vector<Char>& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    char32_t out[2];
    const int n = lower_case(text[i].c, out);
    text[i].c = out[0];
    if (n == 2) {
      ++i;
      text.insert(text.begin() + static_cast<std::ptrdiff_t>(i),
                  {out[1], text[i - 1].start, text[i - 1].end});
    }
  }
}

}  // namespace

void Normalizer::normalize(std::vector<Char>& text) const {
  if (clean_text) clean(text);
  if (handle_chinese_chars) space_out_cjk(text);
  if (strips_accents()) text::strip_accents(text);
  if (lowercase) lower(text);
}

}  // namespace trainer::text
