#include "generate/generator.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"
#include "data/hash.h"
#include "generate/stop_strings.h"
#include "text/utf8_stream.h"

namespace trainer::generate {
namespace {

// A text on its way. Bytes go through the stop strings, then are made whole characters.
struct Sequence {
  size_t index;
  std::vector<int64_t> tokens;  // prompt and what came
  std::vector<int64_t> unread;  // that the model has not seen
  std::mt19937_64 random;
  StopStrings stop;
  text::Utf8Stream characters;
};

}  // namespace

std::vector<int64_t> Generator::encode(const std::string& prompt, const GenerateOptions& options) const {
  const std::vector<int32_t> ids = tokenizer_->encode(prompt);
  std::vector<int64_t> tokens(ids.begin(), ids.end());
  const GptConfig& config = model_->config();
  if (options.add_bos && config.is_llama() && config.bos_token_id &&
      (tokens.empty() || tokens.front() != *config.bos_token_id)) {
    tokens.insert(tokens.begin(), *config.bos_token_id);
  }
  // As GPT-2 was trained: a text begins after the end of another.
  if (tokens.empty() && tokenizer_->eos_id()) tokens.push_back(*tokenizer_->eos_id());
  if (tokens.empty())
    fail<DataError>("the prompt is empty, and the tokenizer has no token to begin with; expected --prompt");
  for (const int64_t id : tokens) {
    if (id >= config.vocab_size) {
      fail<DataError>(
          "the prompt has token {}, but the model knows {} tokens: this is another model's tokenizer", id,
          config.vocab_size);
    }
  }
  return tokens;
}

std::vector<Text> Generator::run(const std::vector<std::string>& prompts, const GenerateOptions& options,
                                 const Piece& piece) const {
  const at::NoGradGuard no_grad;
  const int64_t positions = model_->config().max_positions;
  std::vector<Text> texts(prompts.size());
  std::vector<Sequence> running;
  int64_t longest = 1;
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<int64_t> tokens = encode(prompts[i], options);
    texts[i].prompt_tokens = static_cast<int64_t>(tokens.size());
    longest = std::max(longest, texts[i].prompt_tokens + options.max_new_tokens);
    running.push_back(
        {i, tokens, tokens, std::mt19937_64(data::mix64(options.seed) + i), StopStrings(options.stop), {}});
  }
  const auto emit = [&](const Sequence& sequence, const std::string& text) {
    if (text.empty()) return;
    texts[sequence.index].text += text;
    piece(sequence.index, text);
  };
  const auto is_eos = [&](int64_t id) {
    const auto& ids = model_->config().eos_token_ids;
    const auto eos = tokenizer_->eos_id();
    return options.stop_at_eos && (std::find(ids.begin(), ids.end(), id) != ids.end() || (eos && id == *eos));
  };

  const int64_t capacity = std::min(longest, positions);
  model::KvCache cache = model_->make_cache(static_cast<int64_t>(running.size()), capacity);
  for (int64_t step = 0; step < options.max_new_tokens && !running.empty(); ++step) {
    const bool is_full = std::any_of(running.begin(), running.end(), [&](const Sequence& s) {
      const auto at = static_cast<size_t>(&s - running.data());
      return cache.lengths()[at] + static_cast<int64_t>(s.unread.size()) > capacity;
    });
    if (is_full) {
      cache = model_->make_cache(static_cast<int64_t>(running.size()), capacity);
      for (Sequence& s : running) {
        const int64_t size = static_cast<int64_t>(s.tokens.size());
        // All of it where there is room for more, else its last half.
        s.unread.assign(
            size < capacity ? s.tokens.begin() : s.tokens.end() - std::max<int64_t>(capacity / 2, 1),
            s.tokens.end());
      }
    }
    std::vector<std::vector<int64_t>> ids;
    for (Sequence& s : running) ids.push_back(std::exchange(s.unread, {}));
    const at::Tensor logits = model_->decode(ids, cache).cpu().contiguous();

    std::vector<Sequence> next;
    std::vector<int64_t> kept;
    for (size_t i = 0; i < running.size(); ++i) {
      Sequence& s = running[i];
      Text& text = texts[s.index];
      // A model may have more tokens than its tokenizer, for speed: those stand for nothing.
      const std::span<const float> row(
          logits.const_data_ptr<float>() + static_cast<int64_t>(i) * logits.size(1),
          static_cast<size_t>(std::min(logits.size(1), tokenizer_->vocab_size())));
      const int64_t id = draw(row, s.tokens, options.sampling, s.random);
      ++text.new_tokens;
      if (is_eos(id)) {
        text.finish = Finish::kEndOfText;
      } else {
        s.tokens.push_back(id);
        s.unread = {id};
        emit(s, s.characters.push(s.stop.push(tokenizer_->token_bytes(static_cast<int32_t>(id)))));
        if (s.stop.stopped()) text.finish = Finish::kStopString;
      }
      if (text.finish == Finish::kLength && step + 1 < options.max_new_tokens) {
        kept.push_back(static_cast<int64_t>(i));
        next.push_back(std::move(s));
      } else {
        emit(s, s.characters.push(s.stop.finish()));
        emit(s, s.characters.finish());
      }
    }
    if (next.size() < running.size()) cache.keep(kept);
    running = std::move(next);
  }
  return texts;
}

}  // namespace trainer::generate
