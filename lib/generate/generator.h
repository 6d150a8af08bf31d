#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "generate/options.h"
#include "model/gpt.h"
#include "text/tokenizer.h"

namespace trainer::generate {

enum class Finish { kLength, kEndOfText, kStopString };

struct Text {
  std::string text;  // what came after the prompt; bytes, whole characters where the model made such
  int64_t prompt_tokens = 0, new_tokens = 0;
  Finish finish = Finish::kLength;
};

// Continues texts by a language model, all at once with one cache of keys and values. A text that is as long as the
// model's positions go is read anew from its last half: what came before is forgotten.
class Generator {
 public:
  Generator(std::shared_ptr<model::Gpt> model, std::shared_ptr<const text::Tokenizer> tokenizer)
      : model_(std::move(model)), tokenizer_(std::move(tokenizer)) {}

  // `piece`: called with each new piece of a text, by its index, as soon as it is sure. Throws DataError for a prompt that
  // has no tokens, or that the tokenizer does not know. The tokenizer has no more tokens than the model.
  using Piece = std::function<void(size_t index, std::string_view text)>;
  std::vector<Text> run(
      const std::vector<std::string>& prompts, const GenerateOptions& options,
      const Piece& piece = [](size_t, std::string_view) {}) const;

 private:
  std::vector<int64_t> encode(const std::string& prompt, const GenerateOptions& options) const;

  std::shared_ptr<model::Gpt> model_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
};

}  // namespace trainer::generate
