#pragma once

#include <cstdint>
#include <string_view>

namespace trainer::records {

// The low 64 bits of MurmurHash3_x64_128 with seed 0 (Austin Appleby, public domain: smhasher's MurmurHash3.cpp).
uint64_t murmur(std::string_view bytes);

}  // namespace trainer::records
