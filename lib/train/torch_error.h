#pragma once

#include <c10/util/Exception.h>

#include <string_view>

namespace trainer::train {

// Throws LibTorch's error as a trainer::Error, without its C++ backtrace, which is nothing for people. `memory_hint`: what
// to change when memory is short.
[[noreturn]] void fail_as_ours(const c10::Error& error, std::string_view memory_hint);

}  // namespace trainer::train
