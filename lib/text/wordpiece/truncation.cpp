#include "text/wordpiece/truncation.h"

#include <algorithm>

#include "core/error.h"

namespace trainer::text {

std::pair<size_t, size_t> truncate(size_t num_first, std::optional<size_t> num_second, size_t num_special,
                                   const EncodeOptions& options) {
  if (options.max_length < static_cast<int64_t>(num_special)) {
    fail<DataError>("max_length is {}, but {} has {} special tokens", options.max_length,
                    num_second ? "a pair" : "a text", num_special);
  }
  const size_t limit = static_cast<size_t>(options.max_length) - num_special;
  const size_t second = num_second.value_or(0);
  if (num_first + second <= limit) return {num_first, second};
  if (limit == 0) return {0, 0};
  const size_t excess = num_first + second - limit;

  switch (options.truncation) {
    case spec::Truncation::kLongestFirst: {
      if (!num_second) return {limit, 0};
      // The shorter text is kept whole when it is at most half of the limit; else both get a half, and the
      // odd token goes to the longer text (to the second when they are equal).
      const size_t shorter = std::min(num_first, second);
      const size_t a = 2 * shorter <= limit ? shorter : limit / 2;
      return num_first > second ? std::pair{limit - a, a} : std::pair{a, limit - a};
    }
    case spec::Truncation::kOnlyFirst:
      if (num_first > excess) return {num_first - excess, second};
      fail<DataError>(
          "truncation only_first: {} tokens must go to fit max_length {}, but the first text has {} and must "
          "keep one; "
          "the second text has {}",
          excess, options.max_length, num_first, second);
    case spec::Truncation::kOnlySecond:
      if (!num_second) {
        fail<DataError>(
            "truncation only_second: one text of {} tokens exceeds max_length {}, and there is no second "
            "text",
            num_first, options.max_length);
      }
      if (second > excess) return {num_first, second - excess};
      fail<DataError>(
          "truncation only_second: {} tokens must go to fit max_length {}, but the second text has {} and "
          "must keep one; "
          "the first text has {}",
          excess, options.max_length, second, num_first);
  }
  fail<DataError>("unknown truncation strategy {}", static_cast<int>(options.truncation));
}

}  // namespace trainer::text
