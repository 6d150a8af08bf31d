#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trainer {

// Numbers for people. "?" stands for one that is not finite.

// 4 digits and an SI prefix: "1.25 TFLOP/s".
std::string si(double value, std::string_view unit);
// "512 B", "1.5 GiB".
std::string binary_bytes(int64_t value);
// Hours, minutes and seconds: 3675 s as "1:01:15".
std::string duration(double seconds);
// "2 ms", "0.4 s".
std::string short_duration(double seconds);
// 12,345,678
std::string grouped(int64_t value);

}  // namespace trainer
