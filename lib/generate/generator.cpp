#include "generate/generator.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "core/mix64.h"
#include "generate/stop_strings.h"
#include "text/utf8_stream.h"

namespace trainer::generate {
namespace {

// A text on its way. Bytes go through the stop strings, then are made whole characters.
struct Sequence {
  size_t index;
  std::vector<int64_t> tokens;  // prompt and what came
  std::mt19937_64 random;
  StopStrings stop;
  text::Utf8Stream characters = {};
  size_t begin = 0;  // the first token that the cache is of
};

// One call of Generator::run().
class Run {
 public:
  Run(model::Gpt& model, const text::Tokenizer& tokenizer, const GenerateOptions& options,
      const Generator::Piece& piece)
      : model_(model), tokenizer_(tokenizer), options_(options), piece_(piece) {}

  void add(std::vector<int64_t> prompt);
  std::vector<Text> to_end();

 private:
  void make_room(Sequence& sequence, int64_t i, model::KvCache& cache);
  void take(Sequence& sequence, std::span<const float> logits);
  void emit(const Sequence& sequence, const std::string& text);
  bool is_eos(int64_t id) const;

  model::Gpt& model_;
  const text::Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  const Generator::Piece& piece_;
  std::vector<Text> texts_;
  std::vector<Sequence> running_;  // as the cache's sequences
};

void Run::add(std::vector<int64_t> prompt) {
  const size_t i = texts_.size();
  texts_.push_back({.text = "", .prompt_tokens = static_cast<int64_t>(prompt.size())});
  running_.push_back({.index = i,
                      .tokens = std::move(prompt),
                      .random = std::mt19937_64(mix64(options_.seed) + i),
                      .stop = StopStrings(options_.stop)});
}

std::vector<Text> Run::to_end() {
  int64_t longest = 1;
  for (const Text& text : texts_) longest = std::max(longest, text.prompt_tokens + options_.max_new_tokens);
  model::KvCache cache = model_.make_cache(static_cast<int64_t>(running_.size()),
                                           std::min(longest, model_.config().max_positions));
  for (int64_t step = 1; step <= options_.max_new_tokens && !running_.empty(); ++step) {
    std::vector<std::vector<int64_t>> unread;
    for (size_t i = 0; i < running_.size(); ++i) {
      Sequence& s = running_[i];
      make_room(s, static_cast<int64_t>(i), cache);
      unread.emplace_back(s.tokens.begin() + static_cast<int64_t>(s.begin) + cache.lengths()[i],
                          s.tokens.end());
    }
    const at::Tensor logits = model_.decode(unread, cache).cpu().contiguous();
    // A model may have more tokens than its tokenizer, for speed: those stand for nothing.
    const auto known = static_cast<size_t>(std::min(logits.size(1), tokenizer_.vocab_size()));

    std::vector<Sequence> next;
    std::vector<int64_t> kept;
    for (size_t i = 0; i < running_.size(); ++i) {
      Sequence& s = running_[i];
      const auto row = static_cast<int64_t>(i);
      take(s, {logits.const_data_ptr<float>() + row * logits.size(1), known});
      if (texts_[s.index].finish == Finish::kLength && step < options_.max_new_tokens) {
        kept.push_back(row);
        next.push_back(std::move(s));
      } else {
        emit(s, s.characters.push(s.stop.finish()));
        emit(s, s.characters.finish());
      }
    }
    if (next.size() < running_.size()) cache.keep(kept);
    running_ = std::move(next);
  }
  return std::move(texts_);
}

// For the tokens that the cache has not, of which there is at least one.
void Run::make_room(Sequence& sequence, int64_t i, model::KvCache& cache) {
  const size_t size = sequence.tokens.size(), capacity = static_cast<size_t>(cache.capacity());
  if (size - sequence.begin <= capacity) return;
  sequence.begin = size - std::max<size_t>(capacity / 2, 1);
  cache.clear(i);
  if (static_cast<int64_t>(size) == texts_[sequence.index].prompt_tokens) {
    log_warning("prompt {}: {} tokens, of which the model's {} positions see the last {}", sequence.index + 1,
                size, capacity, size - sequence.begin);
  }
}

// The next token, by its logits.
void Run::take(Sequence& sequence, std::span<const float> logits) {
  Text& text = texts_[sequence.index];
  const int64_t id = draw(logits, sequence.tokens, options_.sampling, sequence.random);
  ++text.new_tokens;
  if (is_eos(id)) {
    text.finish = Finish::kEndOfText;
    return;
  }
  sequence.tokens.push_back(id);
  const std::string_view bytes = tokenizer_.token_bytes(static_cast<int32_t>(id));
  emit(sequence, sequence.characters.push(sequence.stop.push(bytes)));
  if (sequence.stop.stopped()) text.finish = Finish::kStopString;
}

void Run::emit(const Sequence& sequence, const std::string& text) {
  if (text.empty()) return;
  texts_[sequence.index].text += text;
  piece_(sequence.index, text);
}

bool Run::is_eos(int64_t id) const {
  const auto& ids = model_.config().eos_token_ids;
  return options_.stop_at_eos &&
         (std::find(ids.begin(), ids.end(), id) != ids.end() || id == tokenizer_.eos_id());
}

}  // namespace

std::vector<int64_t> Generator::encode(const std::string& prompt, const GenerateOptions& options) const {
  const std::vector<int32_t> ids = tokenizer_->encode(prompt);
  std::vector<int64_t> tokens(ids.begin(), ids.end());
  const std::optional<int32_t> bos = tokenizer_->bos_id();
  if (options.add_bos && bos && (tokens.empty() || tokens.front() != *bos))
    tokens.insert(tokens.begin(), *bos);
  const GptConfig& config = model_->config();
  if (tokens.empty() && config.is_llama() && config.bos_token_id) tokens.push_back(*config.bos_token_id);
  // As GPT-2 was trained: a text begins after the end of another.
  if (tokens.empty() && tokenizer_->eos_id()) tokens.push_back(*tokenizer_->eos_id());
  if (tokens.empty())
    fail<DataError>("the prompt is empty, and the tokenizer has no token to begin with; expected --prompt");
  return tokens;
}

std::vector<Text> Generator::run(const std::vector<std::string>& prompts, const GenerateOptions& options,
                                 const Piece& piece) const {
  const at::NoGradGuard no_grad;
  Run run(*model_, *tokenizer_, options, piece);
  for (const std::string& prompt : prompts) run.add(encode(prompt, options));
  return run.to_end();
}

}  // namespace trainer::generate
