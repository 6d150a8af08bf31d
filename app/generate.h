#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generate/options.h"

namespace trainer::app {

// What `trainer generate` was told.
struct GenerateRequest {
  std::string model;      // Hugging Face directory
  std::string tokenizer;  // directory; empty: the model's
  std::vector<std::string> prompts;
  int64_t num_samples = 1;  // texts a prompt
  generate::GenerateOptions options;
  std::string precision = "fp32";
  std::string device = "auto";
  int64_t threads = 0;
  bool json = false;
};

// Prints texts to standard output: one as it comes, several when they are done, or lines of JSON. Throws trainer::Error.
int generate(const GenerateRequest& request);

}  // namespace trainer::app
