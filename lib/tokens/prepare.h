#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "spec/job_spec.h"

namespace trainer::tokens {

struct PrepareOptions {
  std::vector<std::string> inputs;  // as find_source() takes them, all of one format
  std::string output;               // prefix
  std::string tokenizer;            // directory, "char" or "byte"
  spec::FileFormat format = spec::FileFormat::kAuto;
  std::string field = "text";
  double validation_fraction = 0;
  bool append_eos = true;
  int64_t num_threads = 1;
  int64_t shard_tokens = 0;  // at most so many in a file, where documents are no longer; 0: one file
  bool force = false;        // replace what is there
};

// Tokenizes files into Megatron's: <output>.bin and .idx, or with a fraction <output>_train and <output>_validation, each
// with a .json (Metadata); shards are <..>_00000 and on. The tokenizer goes to <output>_tokenizer. Memory grows by 8 bytes
// a document only. Readers see all of it or nothing: the .json comes last, and nothing else has its name before it is
// whole. Prints progress. Throws SpecError, also when another process prepares the same output, and DataError.
// False: `stop` was set, and nothing is left of this one.
bool prepare(const PrepareOptions& options, const std::atomic<bool>& stop = false);

}  // namespace trainer::tokens
