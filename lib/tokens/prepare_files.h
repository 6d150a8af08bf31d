#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

// The files of `trainer prepare`, by name. `prefix` is its --output.

namespace trainer::tokens {

// Ends the name of a file that is not whole.
inline constexpr std::string_view kPartial = ".partial";

// What prepare writes for a prefix, of this or an earlier run, finished or not.
std::vector<std::filesystem::path> prepared_files(const std::string& prefix);

// The finished ones of an earlier run, which this one replaces. Throws SpecError when it may not, or one is an input.
std::vector<std::filesystem::path> files_to_replace(const std::string& prefix,
                                                    const std::vector<std::string>& inputs, bool force);

// Removes at its end what is not whole: all of it when prepare fails.
struct PartialFiles {
  std::string prefix;
  ~PartialFiles();
};

}  // namespace trainer::tokens
