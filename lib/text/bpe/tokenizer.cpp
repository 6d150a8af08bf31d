#include "text/bpe/tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "core/error.h"
#include "text/added_tokens.h"
#include "text/bpe/byte_level.h"
#include "text/bpe/config.h"
#include "text/bpe/merges.h"
#include "text/bpe/pre_tokenizer.h"
#include "text/bpe/word_cache.h"

namespace trainer::text {
namespace {

class BpeTokenizer : public Tokenizer {
 public:
  // `where`: for messages.
  BpeTokenizer(BpeConfig config, const std::string& where);

  std::string_view token_bytes(int32_t id) const override {
    if (id < 0 || id >= vocab_size()) fail_no_token(id);
    const Token& token = tokens_[static_cast<size_t>(id)];
    if (!token.exists) {
      fail<DataError>("{}: no token has the id {}: the tokenizer's ids, 0 to {}, have gaps", where_, id,
                      vocab_size() - 1);
    }
    return std::string_view(bytes_).substr(token.begin, token.size);
  }
  bool is_special(int32_t id) const override {
    return id >= 0 && id < vocab_size() && tokens_[static_cast<size_t>(id)].special;
  }
  int64_t vocab_size() const override { return static_cast<int64_t>(tokens_.size()); }
  std::optional<int32_t> eos_id() const override { return eos_; }
  std::optional<int32_t> bos_id() const override { return bos_; }
  std::vector<TokenizerFile> files() const override { return files_; }

 protected:
  void segments(std::string_view text, SpecialTokens special, size_t max_bytes,
                std::vector<Segment>& out) const override;
  std::unique_ptr<Encoder> make_encoder(size_t num_bytes) const override {
    return std::make_unique<BpeEncoder>(*this, num_bytes);
  }

 private:
  struct Token {
    size_t begin = 0, size = 0;  // in bytes_
    bool exists = false, special = false;
  };
  // Found in the raw text, then in what is left of it, as Hugging Face does.
  struct Finder {
    AddedTokens first, second;
  };

  class BpeEncoder : public Encoder {
   public:
    BpeEncoder(const BpeTokenizer& tokenizer, size_t num_bytes) : tokenizer_(tokenizer), cache_(num_bytes) {}
    void encode(std::string_view text, const Segment& segment, std::vector<int32_t>& ids) override;

   private:
    void encode_word(std::string_view word, std::vector<int32_t>& ids);
    void merge(std::string_view word, std::vector<int32_t>& ids);

    const BpeTokenizer& tokenizer_;
    WordCache cache_;
    Merges::Scratch scratch_;
    std::string prefixed_;
  };

  void add_token(int32_t id, std::string_view bytes);

  std::string where_;
  PreTokenizer pre_tokenizer_;
  Merges merges_;
  std::array<int32_t, 256> byte_ids_;
  bool add_prefix_space_;
  std::unordered_map<std::string, int32_t> whole_words_;  // empty without ignore_merges
  Finder all_, without_special_;
  std::string bytes_;  // of all tokens
  std::vector<Token> tokens_;
  std::optional<int32_t> eos_, bos_;
  std::vector<TokenizerFile> files_;
};

BpeTokenizer::BpeTokenizer(BpeConfig config, const std::string& where)
    : where_(where),
      pre_tokenizer_(config.pattern),
      add_prefix_space_(config.add_prefix_space),
      files_(std::move(config.files)) {
  std::unordered_map<std::string_view, int32_t> ids;
  ids.reserve(config.vocab.size());
  for (const auto& [token, id] : config.vocab) {
    ids.emplace(token, id);  // keys of a JSON object: each once
    if (static_cast<size_t>(id) < tokens_.size() && tokens_[static_cast<size_t>(id)].exists) {
      fail<DataError>("{}: vocabulary has id {} twice, once for token \"{}\"", where, id, token);
    }
    const auto bytes = bytes_from_alphabet(token);
    add_token(id, bytes ? *bytes : token);
    if (bytes && config.ignore_merges) whole_words_.emplace(*bytes, id);
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    const std::string token = byte_to_alphabet(static_cast<uint8_t>(byte));
    const auto found = ids.find(token);
    if (found == ids.end()) {
      fail<DataError>(
          "{}: vocabulary of {} tokens has none for byte 0x{:02X} (\"{}\"); a byte-level vocabulary has all "
          "256, so that every text has ids",
          where, ids.size(), byte, token);
    }
    byte_ids_[byte] = found->second;
  }
  std::vector<Merges::Rule> rules;
  rules.reserve(config.merges.size());
  for (const auto& [left, right] : config.merges) {
    const auto id = [&](const std::string& token) {
      const auto found = ids.find(token);
      if (found == ids.end()) {
        fail<DataError>("{}: merge {} (\"{} {}\"): token \"{}\" is not in the vocabulary of {}", where,
                        rules.size(), left, right, token, ids.size());
      }
      return found->second;
    };
    rules.push_back({id(left), id(right), id(left + right)});
  }
  merges_ = Merges(rules);

  std::vector<AddedToken> groups[2][2];  // [normalized][special]
  for (AddedToken& token : config.added_tokens) {
    const auto found = ids.find(token.content);
    if (found != ids.end()) {
      token.id = found->second;
    } else if (token.id < 0) {
      token.id = static_cast<int32_t>(tokens_.size());
    }
    add_token(token.id, token.content);
    tokens_[static_cast<size_t>(token.id)].special = token.special;
    if (token.content == config.eos_token) eos_ = token.id;
    if (token.content == config.bos_token) bos_ = token.id;
    groups[token.normalized][token.special].push_back(token);
  }
  constexpr Normalizer kNone{false, false, false, false};
  const auto finder = [&](const std::vector<AddedToken>(&by_special)[2], bool with_special) {
    std::vector<AddedToken> tokens = by_special[0];
    if (with_special) tokens.insert(tokens.end(), by_special[1].begin(), by_special[1].end());
    return AddedTokens(tokens, kNone);
  };
  all_ = {finder(groups[0], true), finder(groups[1], true)};
  without_special_ = {finder(groups[0], false), finder(groups[1], false)};
}

void BpeTokenizer::add_token(int32_t id, std::string_view bytes) {
  const auto i = static_cast<size_t>(id);
  if (i >= tokens_.size()) tokens_.resize(i + 1);
  tokens_[i] = {bytes_.size(), bytes.size(), true, false};
  bytes_ += bytes;
}

void BpeTokenizer::segments(std::string_view text, SpecialTokens special, size_t max_bytes,
                            std::vector<Segment>& out) const {
  out.clear();
  const auto add_text = [&](size_t begin, size_t end) {
    const std::string_view part = text.substr(0, end);
    for (size_t from = begin, to; from < end; from = to) {
      to = end - from <= max_bytes ? end : pre_tokenizer_.next_cut(part, from + max_bytes);
      out.push_back({-1, from, to, from > begin});
    }
  };
  const Finder& finder = special == SpecialTokens::kFind ? all_ : without_special_;
  std::vector<AddedTokens::Part> parts, inner;
  finder.first.split(text, parts);
  for (const auto& [id, begin, end] : parts) {
    if (id >= 0) {
      out.push_back({id, begin, end, false});
    } else if (finder.second.empty()) {
      add_text(begin, end);
    } else {
      finder.second.split(text.substr(begin, end - begin), inner);
      for (const auto& [id2, begin2, end2] : inner) {
        if (id2 >= 0) {
          out.push_back({id2, begin + begin2, begin + end2, false});
        } else {
          add_text(begin + begin2, begin + end2);
        }
      }
    }
  }
}

void BpeTokenizer::BpeEncoder::encode(std::string_view text, const Segment& segment,
                                      std::vector<int32_t>& ids) {
  std::string_view part = text.substr(segment.begin, segment.end - segment.begin);
  if (tokenizer_.add_prefix_space_ && !segment.continues && !part.starts_with(' ')) {
    prefixed_.assign(1, ' ');
    prefixed_ += part;
    part = prefixed_;
  }
  for (size_t begin = 0, end; begin < part.size(); begin = end) {
    end = tokenizer_.pre_tokenizer_.word_end(part, begin);
    encode_word(part.substr(begin, end - begin), ids);
  }
}

void BpeTokenizer::BpeEncoder::encode_word(std::string_view word, std::vector<int32_t>& ids) {
  if (word.size() > WordCache::kMaxBytes) return merge(word, ids);
  bool found;
  WordCache::Line& line = cache_.find(word, found);
  if (found) {
    if (line.num_ids == 1) {
      ids.push_back(line.ids[0]);
    } else {
      ids.insert(ids.end(), line.ids.begin(), line.ids.begin() + line.num_ids);
    }
    return;
  }
  const size_t begin = ids.size();
  merge(word, ids);
  const size_t num_ids = ids.size() - begin;
  if (num_ids > WordCache::kMaxIds) {
    line.high = 0;
    return;
  }
  line.num_ids = static_cast<uint32_t>(num_ids);
  std::copy(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end(), line.ids.begin());
}

void BpeTokenizer::BpeEncoder::merge(std::string_view word, std::vector<int32_t>& ids) {
  if (!tokenizer_.whole_words_.empty()) {
    const auto found = tokenizer_.whole_words_.find(std::string(word));
    if (found != tokenizer_.whole_words_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  constexpr size_t kLimit = UINT32_MAX;  // of Merges
  for (; !word.empty(); word.remove_prefix(std::min(word.size(), kLimit))) {
    const size_t begin = ids.size();
    for (const char c : word.substr(0, kLimit)) ids.push_back(tokenizer_.byte_ids_[static_cast<uint8_t>(c)]);
    tokenizer_.merges_.apply(ids, begin, scratch_);
  }
}

}  // namespace

std::shared_ptr<const Tokenizer> load_bpe_tokenizer(const std::filesystem::path& path) {
  return std::make_shared<BpeTokenizer>(load_bpe_config(path), path.string());
}

}  // namespace trainer::text
