#include "records/fields.h"

#include <charconv>

namespace trainer::records {
namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

bool parse_number(std::string_view text, double& value) {
  // Small integers are most of what there is.
  constexpr size_t kExact = 15;  // digits
  if (text.size() <= kExact) {
    int64_t whole = 0;
    size_t i = 0;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) whole = whole * 10 + (text[i] - '0');
    if (i == text.size() && i > 0) {
      value = static_cast<double>(whole);
      return true;
    }
  }
  text = trim(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && stop == text.data() + text.size();
}

IdNumber parse_id(std::string_view text, IdBase base) {
  IdNumber id;
  text = trim(text);
  if (text.starts_with('-')) {
    id.negative = true;
    text.remove_prefix(1);
  }
  int radix = base == IdBase::kHexadecimal ? 16 : 10;
  if (base == IdBase::kAny && text.find_first_not_of("0123456789") != text.npos) radix = 16;
  if (radix == 16 && (text.starts_with("0x") || text.starts_with("0X"))) text.remove_prefix(2);
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), id.magnitude, radix);
  if (text.empty() || text[0] == '-' || stop != text.data() + text.size()) return id;
  id.kind = error == std::errc() ? IdNumber::kValue : IdNumber::kTooLarge;
  if (id.magnitude == 0) id.negative = false;
  return id;
}

}  // namespace trainer::records
