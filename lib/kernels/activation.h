#pragma once

#include <cstdint>

namespace trainer::kernels {

enum class Activation : uint8_t { kNone, kRelu, kGelu /* exact, by erf */, kGeluTanh };

}  // namespace trainer::kernels
