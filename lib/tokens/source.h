#pragma once

#include <string>
#include <vector>

#include "spec/job_spec.h"

namespace trainer::tokens {

// What a path stands for: files in order, all of one format.
struct Source {
  spec::FileFormat format = spec::FileFormat::kText;  // never kAuto
  std::vector<std::string> files;                     // of tokens: the .bin files

  bool is_tokens() const;
};

// `path` is a file; a directory, for the files of one kind in it; a pattern with * ? or []; or what an .idx, .bin or a
// set of .bin shards (_00000.bin ...) begins with. Files are sorted. kAuto: by the extension, and for .bin by what
// is beside it and its first bytes; what has no known extension is text if it looks like it. Throws DataError, and
// SpecError where there is no such file.
Source find_source(const std::string& path, spec::FileFormat format);

}  // namespace trainer::tokens
