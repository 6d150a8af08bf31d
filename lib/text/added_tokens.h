#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/wordpiece/normalizer.h"

namespace trainer::text {

struct JsonNode;

// Hugging Face's AddedToken, such as "[SEP]": found in the text itself, before it is cut into words.
struct AddedToken {
  std::string content;
  int32_t id = -1;  // -1: given when the vocabulary is built
  bool single_word = false;
  bool lstrip = false;  // takes the white space on its left
  bool rstrip = false;
  bool normalized = false;  // found in the normalized text
  bool special = false;
};

// From its entry of tokenizer.json or tokenizer_config.json: an object, or its content alone; `special` and
// not `normalized` where that is not said. Throws DataError.
AddedToken read_added_token(const JsonNode& node, bool special);
// added_tokens of tokenizer.json: a list, with ids. Throws DataError.
std::vector<AddedToken> read_added_tokens(const JsonNode& list);
// added_tokens.json: content and id of each. Throws DataError.
std::vector<AddedToken> read_added_token_ids(const JsonNode& object);

// Adds the token unless it is there, or empty.
void add_new(AddedToken token, std::vector<AddedToken>& tokens);
// Adds the new ones of those that tokenizer_config.json and special_tokens_map.json list without a role. Throws DataError.
void add_other_special(const JsonNode& config, const JsonNode& map, std::vector<AddedToken>& tokens);

// Finds added tokens: leftmost, then longest.
class AddedTokens {
 public:
  // A part of the text: an added token, or text (id -1), of characters or bytes [begin, end).
  struct Part {
    int32_t id;
    size_t begin, end;
  };

  AddedTokens() = default;
  // `tokens` all are, or all are not, `normalized`; the normalizer is applied to those that are.
  AddedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer);

  bool empty() const { return patterns_.empty(); }
  // Whether some token begins with this ASCII character, and whether one stands at the beginning of this
  // text; only for tokens that are not `normalized`.
  bool has_first(char32_t c) const { return c < 128 && first_[c]; }
  bool begin(std::string_view text) const;
  // Covers `text` by parts, in order; none is empty.
  void split(const std::vector<Char>& text, std::vector<Part>& parts) const;
  // The same of text that is not normalized, by bytes; it need not be UTF-8.
  void split(std::string_view text, std::vector<Part>& parts) const;

 private:
  struct Pattern {
    std::u32string content;
    AddedToken token;
  };
  struct Chars;
  struct Bytes;
  template <class Text>
  void split_text(const Text& text, std::vector<Part>& parts) const;

  std::vector<Pattern> patterns_;  // longest first
  bool first_[128] = {};
  std::bitset<1 << 16> first_two_;  // bytes that a token's content may begin with
};

}  // namespace trainer::text
