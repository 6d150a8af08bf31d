#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainer::data {

// `; did you mean "x"?` with the candidate of least edit distance, letter case apart; empty when none is
// near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace trainer::data
