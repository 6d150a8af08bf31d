#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainer::app {

// What `trainer generate` was told.
struct GenerateRequest {
  std::string model;      // Hugging Face directory
  std::string tokenizer;  // directory; empty: the model's
  std::vector<std::string> prompts;
  int64_t max_new_tokens = 200;
  int64_t num_samples = 1;  // texts a prompt
  double temperature = 0.8;
  int64_t top_k = 200;
  double top_p = 1;
  double repetition_penalty = 1;
  std::vector<std::string> stop;
  bool ignore_eos = false, no_bos = false;
  int64_t seed = 1337;
  std::string precision = "fp32";
  std::string device = "auto";
  int64_t threads = 0;
  bool json = false;
};

// Prints texts to standard output: one as it comes, several when they are done, or lines of JSON. Throws trainer::Error.
int generate(const GenerateRequest& request);

}  // namespace trainer::app
