#pragma once

#include <string>
#include <string_view>

namespace trainer {

// A C++ symbol as people read it, the middle left out where it is too long for a line; others as they are.
std::string demangle(const char* symbol);

// A text with every "_Z..." word in it so replaced.
std::string demangle_words(std::string_view text);

}  // namespace trainer
