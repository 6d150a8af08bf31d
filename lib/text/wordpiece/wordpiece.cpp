#include "text/wordpiece/wordpiece.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "core/error.h"
#include "text/added_tokens.h"
#include "text/batch.h"
#include "text/unicode.h"
#include "text/wordpiece/config.h"
#include "text/wordpiece/piece_trie.h"
#include "text/wordpiece/truncation.h"

namespace trainer::text {
namespace {

namespace fs = std::filesystem;

// What a byte is on the fast path.
enum ByteClass : uint8_t {
  kWord,
  kSpace,
  kPunctuation,
  kFull,              // not ASCII, or removed by the normalizer: the text takes the full path
  kBeginsToken = 16,  // a flag: an added token may begin here
};

struct Token {
  int32_t id, start, end;
};

// Buffers of one thread, so that a text costs no allocation but its result's.
struct Scratch {
  std::vector<Token> first, second;
  std::string word;              // or, on the fast path, the whole text in lower case
  std::vector<uint32_t> places;  // character that a byte of `word` belongs to
  std::vector<Piece> pieces;
  std::vector<Char> text, part;
  std::vector<AddedTokens::Part> parts, normalized_parts;
};

}  // namespace

struct WordPiece::Impl {
  explicit Impl(WordPieceConfig config, const std::string& where);

  void tokenize(std::string_view text, std::vector<Token>& tokens, Scratch& scratch) const;
  bool tokenize_ascii(std::string_view text, std::vector<Token>& tokens, Scratch& scratch) const;
  void tokenize_unicode(std::string_view text, std::vector<Token>& tokens, Scratch& scratch) const;
  void tokenize_normalized(const Char* begin, const Char* end, std::vector<Token>& tokens,
                           Scratch& scratch) const;
  void add_word(const Char* begin, const Char* end, std::vector<Token>& tokens, Scratch& scratch) const;
  Encoding encode(const TextPair& input, const EncodeOptions& options, Scratch& scratch) const;

  PieceTrie trie;
  Normalizer normalizer;
  AddedTokens raw_tokens, normalized_tokens;
  int32_t unk = 0, cls = 0, sep = 0;
  size_t max_word = 100;  // characters
  int64_t vocab_size = 0;
  std::array<uint8_t, 256> byte_class;
  std::array<char, 128> ascii_lower;
};

WordPiece::Impl::Impl(WordPieceConfig config, const std::string& where)
    : trie(config.continuing_subword_prefix), normalizer(config.normalizer) {
  max_word = static_cast<size_t>(std::max<int64_t>(config.max_input_chars_per_word, 0));

  std::unordered_map<std::string_view, int32_t> ids;
  std::unordered_map<int32_t, std::string_view> tokens;
  ids.reserve(config.vocab.size());
  tokens.reserve(config.vocab.size());
  for (const auto& [token, id] : config.vocab) {
    if (!ids.emplace(token, id).second)
      fail<DataError>("{}: vocabulary has token \"{}\" twice (ids {} and {})", where, token, ids[token], id);
    const auto [same, is_new] = tokens.emplace(id, token);
    if (!is_new)
      fail<DataError>("{}: vocabulary has id {} twice (tokens \"{}\" and \"{}\")", where, id, same->second,
                      token);
    trie.insert(token, id);
    vocab_size = std::max<int64_t>(vocab_size, id + 1);
  }
  const auto required = [&](const char* role, const std::string& token) {
    const auto found = ids.find(token);
    if (found == ids.end())
      fail<DataError>("{}: vocabulary of {} tokens has no {} \"{}\"", where, ids.size(), role, token);
    return found->second;
  };
  unk = required("unk_token", config.unk_token);
  cls = required("cls_token", config.cls_token);
  sep = required("sep_token", config.sep_token);

  std::vector<AddedToken> raw, normalized;
  for (AddedToken& token : config.added_tokens) {
    const auto found = ids.find(token.content);
    if (found != ids.end()) {
      token.id = found->second;
    } else if (token.id < 0) {
      token.id = static_cast<int32_t>(vocab_size);
    }
    vocab_size = std::max<int64_t>(vocab_size, token.id + 1);
    (token.normalized ? normalized : raw).push_back(token);
  }
  raw_tokens = AddedTokens(raw, normalizer);
  normalized_tokens = AddedTokens(normalized, normalizer);

  byte_class.fill(kFull);
  for (char32_t c = 0; c < 128; ++c) {
    const bool blank = c == '\t' || c == '\n' || c == '\r';
    const bool removed = normalizer.clean_text && is_other(c) && !blank;
    byte_class[c] = removed ? kFull : is_punctuation(c) ? kPunctuation : is_whitespace(c) ? kSpace : kWord;
    if (!removed && raw_tokens.has_first(c)) byte_class[c] |= kBeginsToken;
    char32_t lower[2];
    lower_case(c, lower);
    ascii_lower[c] = static_cast<char>(normalizer.lowercase ? lower[0] : c);
  }
}

// The common case: no added token, a byte is a character and stays one. Returns false when it does not apply.
bool WordPiece::Impl::tokenize_ascii(std::string_view text, std::vector<Token>& tokens,
                                     Scratch& scratch) const {
  if (!normalized_tokens.empty()) return false;
  std::string& lower = scratch.word;
  std::vector<Piece>& pieces = scratch.pieces;
  lower.resize(text.size());
  size_t word = 0;  // where the word that i is in begins
  const auto end_word = [&](size_t end) {
    if (word == end) return;
    const auto begin = static_cast<int32_t>(word);
    pieces.clear();
    if (end - word <= max_word && trie.split({lower.data() + word, end - word}, pieces)) {
      for (const Piece& piece : pieces) {
        tokens.push_back(
            {piece.id, begin + static_cast<int32_t>(piece.begin), begin + static_cast<int32_t>(piece.end)});
      }
    } else {
      tokens.push_back({unk, begin, static_cast<int32_t>(end)});
    }
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<uint8_t>(text[i]);
    uint8_t kind = byte_class[c];
    if ((kind & kBeginsToken) != 0) {
      if (raw_tokens.begin(text.substr(i))) return false;
      kind &= static_cast<uint8_t>(~kBeginsToken);
    }
    if (kind == kFull) return false;
    lower[i] = ascii_lower[c];
    if (kind == kWord) continue;
    end_word(i);
    word = i;
    if (kind == kPunctuation) end_word(i + 1);
    word = i + 1;
  }
  end_word(text.size());
  return true;
}

void WordPiece::Impl::add_word(const Char* begin, const Char* end, std::vector<Token>& tokens,
                               Scratch& scratch) const {
  if (begin == end) return;
  const auto num_chars = static_cast<size_t>(end - begin);
  std::string& word = scratch.word;
  std::vector<uint32_t>& places = scratch.places;
  std::vector<Piece>& pieces = scratch.pieces;
  word.clear();
  places.clear();
  pieces.clear();
  if (num_chars <= max_word) {
    for (uint32_t i = 0; i < num_chars; ++i) {
      append_utf8(begin[i].c, word);
      places.resize(word.size(), i);
    }
    if (trie.split(word, pieces)) {
      for (const Piece& piece : pieces) {
        tokens.push_back({piece.id, begin[places[piece.begin]].start, begin[places[piece.end - 1]].end});
      }
      return;
    }
  }
  tokens.push_back({unk, begin->start, (end - 1)->end});
}

void WordPiece::Impl::tokenize_normalized(const Char* begin, const Char* end, std::vector<Token>& tokens,
                                          Scratch& scratch) const {
  const Char* word = begin;
  for (const Char* x = begin; x != end; ++x) {
    const bool space = is_whitespace(x->c);
    if (!space && !is_punctuation(x->c)) continue;
    add_word(word, x, tokens, scratch);
    if (!space) add_word(x, x + 1, tokens, scratch);
    word = x + 1;
  }
  add_word(word, end, tokens, scratch);
}

void WordPiece::Impl::tokenize_unicode(std::string_view text, std::vector<Token>& tokens,
                                       Scratch& scratch) const {
  std::vector<Char>& chars = scratch.text;
  std::vector<Char>& part = scratch.part;
  chars.clear();
  for (size_t i = 0; i < text.size();) {
    const auto place = static_cast<int32_t>(chars.size());
    chars.push_back({next_code_point(text, i), place, place + 1});
  }
  const auto add = [&](int32_t id, const std::vector<Char>& from, size_t begin, size_t end) {
    tokens.push_back({id, from[begin].start, from[end - 1].end});
  };
  raw_tokens.split(chars, scratch.parts);
  for (const auto& [id, begin, end] : scratch.parts) {
    if (id >= 0) {
      add(id, chars, begin, end);
      continue;
    }
    part.assign(chars.begin() + static_cast<std::ptrdiff_t>(begin),
                chars.begin() + static_cast<std::ptrdiff_t>(end));
    normalizer.normalize(part);
    normalized_tokens.split(part, scratch.normalized_parts);
    for (const auto& [id2, begin2, end2] : scratch.normalized_parts) {
      if (id2 >= 0) {
        add(id2, part, begin2, end2);
      } else {
        tokenize_normalized(part.data() + begin2, part.data() + end2, tokens, scratch);
      }
    }
  }
}

void WordPiece::Impl::tokenize(std::string_view text, std::vector<Token>& tokens, Scratch& scratch) const {
  tokens.clear();
  if (tokenize_ascii(text, tokens, scratch)) return;
  tokens.clear();
  tokenize_unicode(text, tokens, scratch);
}

Encoding WordPiece::Impl::encode(const TextPair& input, const EncodeOptions& options,
                                 Scratch& scratch) const {
  tokenize(input.text, scratch.first, scratch);
  std::optional<size_t> num_second;
  if (input.has_pair) {
    tokenize(input.pair, scratch.second, scratch);
    num_second = scratch.second.size();
  }
  const size_t num_special = input.has_pair ? 3 : 2;
  const auto [first, second] = truncate(scratch.first.size(), num_second, num_special, options);

  const size_t size = first + second + num_special;
  Encoding out;
  out.ids.reserve(size);
  out.token_types.assign(size, 0);
  if (options.with_offsets) out.offsets.reserve(size);
  const auto add = [&](const Token& token) {
    out.ids.push_back(token.id);
    if (options.with_offsets) out.offsets.emplace_back(token.start, token.end);
  };
  add({cls, 0, 0});
  std::for_each_n(scratch.first.begin(), first, add);
  add({sep, 0, 0});
  if (input.has_pair) {
    std::for_each_n(scratch.second.begin(), second, add);
    add({sep, 0, 0});
    std::fill(out.token_types.begin() + static_cast<std::ptrdiff_t>(first + 2), out.token_types.end(), 1);
  }
  return out;
}

WordPiece::WordPiece(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WordPiece::WordPiece(WordPiece&&) noexcept = default;
WordPiece::~WordPiece() = default;

WordPiece WordPiece::load(const fs::path& directory) {
  return WordPiece(std::make_unique<Impl>(load_wordpiece_config(directory), directory.string()));
}

Encoding WordPiece::encode(const TextPair& input, const EncodeOptions& options) const {
  Scratch scratch;
  return impl_->encode(input, options, scratch);
}

std::vector<Encoding> WordPiece::encode_batch(const std::vector<TextPair>& inputs,
                                              const EncodeOptions& options, int64_t num_threads) const {
  constexpr int64_t kChunk = 64;  // texts that a thread takes at a time
  return encode_each<Encoding>(inputs, kChunk, num_threads, [&] {
    return [&, scratch = Scratch()](const TextPair& input, Encoding& out) mutable {
      out = impl_->encode(input, options, scratch);
    };
  });
}

int64_t WordPiece::vocab_size() const {
  return impl_->vocab_size;
}

}  // namespace trainer::text
