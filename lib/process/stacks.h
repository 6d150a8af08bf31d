#pragma once
#include <string>
namespace trainer::process {
inline std::string stacks_of(int, double) { return ""; }
}
