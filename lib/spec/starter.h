#pragma once

#include <string>
#include <string_view>

namespace trainer::spec {

// The commented spec that `trainer init <kind>` prints. Throws SpecError for a kind there is none of.
std::string starter(std::string_view kind);

}  // namespace trainer::spec
