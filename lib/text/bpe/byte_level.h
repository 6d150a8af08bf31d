#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainer::text {

// GPT-2's alphabet: a visible character for each byte, in which the files of a byte-level vocabulary are
// written ("Ġthe" is " the").
std::string byte_to_alphabet(uint8_t byte);
// The bytes of a token; empty when it has a character outside the alphabet.
std::optional<std::string> bytes_from_alphabet(std::string_view token);

}  // namespace trainer::text
