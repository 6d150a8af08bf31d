#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generate/sampling.h"

namespace trainer::generate {

// The defaults are those of trainer generate.
struct GenerateOptions {
  Sampling sampling{.temperature = 0.8, .top_k = 200};
  int64_t max_new_tokens = 200;
  std::vector<std::string> stop;  // strings that end a text; they are not part of it
  bool stop_at_eos = true;
  bool add_bos = true;   // where the tokenizer has a token to begin a text with
  uint64_t seed = 1337;  // of text i of n: a function of (seed, i)
};

}  // namespace trainer::generate
