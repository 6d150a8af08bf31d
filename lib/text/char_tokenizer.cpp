#include "text/char_tokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "text/json_node.h"
#include "text/unicode.h"

namespace trainer::text {
namespace {

using Json = nlohmann::json;

// Whether U+FFFD that was decoded from these bytes is itself, not a replacement.
bool is_well_formed(char32_t c, std::string_view bytes) {
  return c != kReplacement || bytes == "\xEF\xBF\xBD";
}

std::string place(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  size_t column = 1;
  for (size_t i = before.rfind('\n') + 1; i < at; ++column) next_code_point(text, i);
  return fmt::format("line {}, column {} (byte {})", line, column, at);
}

// Segments that may end before any byte of which `begins_character` is true.
void cut(std::string_view text, size_t max_bytes, auto&& begins_character, auto& segments) {
  segments.clear();
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = text.size() - begin <= max_bytes ? text.size() : begin + max_bytes;
    while (end < text.size() && !begins_character(text[end])) ++end;
    segments.push_back({-1, begin, end, begin > 0});
  }
}

class CharTokenizer : public Tokenizer {
 public:
  // `chars`: in order, each once.
  explicit CharTokenizer(std::u32string chars) : chars_(std::move(chars)) {
    ascii_.fill(-1);
    for (size_t id = 0; id < chars_.size(); ++id) {
      if (chars_[id] < 128) ascii_[chars_[id]] = static_cast<int32_t>(id);
      offsets_.push_back(bytes_.size());
      append_utf8(chars_[id], bytes_);
    }
    offsets_.push_back(bytes_.size());
  }

  std::string_view token_bytes(int32_t id) const override {
    if (id < 0 || id >= vocab_size()) fail_no_token(id);
    const auto i = static_cast<size_t>(id);
    return std::string_view(bytes_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
  }
  bool is_special(int32_t) const override { return false; }
  int64_t vocab_size() const override { return static_cast<int64_t>(chars_.size()); }
  std::optional<int32_t> eos_id() const override { return std::nullopt; }
  std::vector<TokenizerFile> files() const override {
    return {{kCharTokenizerFile, Json{{"type", "char"}, {"characters", bytes_}}.dump(1) + "\n"}};
  }

 protected:
  void segments(std::string_view text, SpecialTokens, size_t max_bytes,
                std::vector<Segment>& out) const override {
    cut(
        text, max_bytes, [](char next) { return (static_cast<uint8_t>(next) & 0xC0) != 0x80; }, out);
  }

  std::unique_ptr<Encoder> make_encoder(size_t) const override {
    struct CharEncoder : Encoder {
      const CharTokenizer& tokenizer;
      explicit CharEncoder(const CharTokenizer& t) : tokenizer(t) {}
      void encode(std::string_view text, const Segment& segment, std::vector<int32_t>& ids) override {
        for (size_t i = segment.begin; i < segment.end;) ids.push_back(tokenizer.next_id(text, i));
      }
    };
    return std::make_unique<CharEncoder>(*this);
  }

 private:
  int32_t next_id(std::string_view text, size_t& i) const {
    const size_t begin = i;
    const char32_t c = next_code_point(text, i);
    if (c < 128 && ascii_[c] >= 0) return ascii_[c];
    const std::string_view bytes = text.substr(begin, i - begin);
    if (!is_well_formed(c, bytes)) {
      fail<DataError>("{}: byte 0x{:02X} is not UTF-8; the character tokenizer encodes UTF-8 only",
                      place(text, begin), static_cast<uint8_t>(bytes[0]));
    }
    const auto found = std::lower_bound(chars_.begin(), chars_.end(), c);
    if (found == chars_.end() || *found != c) {
      fail<DataError>(
          "{}: character {} (U+{:04X}) is not among the {} of the character tokenizer, which are those of "
          "its training text",
          place(text, begin), Json(bytes).dump(), static_cast<uint32_t>(c), chars_.size());
    }
    return static_cast<int32_t>(found - chars_.begin());
  }

  std::u32string chars_;
  std::array<int32_t, 128> ascii_;  // -1: none
  std::string bytes_;               // of all tokens
  std::vector<size_t> offsets_;     // of each in bytes_, and the end
};

class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(bool with_eos) : with_eos_(with_eos) {
    for (size_t b = 0; b < 256; ++b) bytes_[b] = static_cast<char>(b);
  }

  std::string_view token_bytes(int32_t id) const override {
    if (id < 0 || id >= vocab_size()) fail_no_token(id);
    return id == kEos ? "" : std::string_view(bytes_.data() + id, 1);
  }
  bool is_special(int32_t id) const override { return id == kEos; }
  int64_t vocab_size() const override { return with_eos_ ? kEos + 1 : kEos; }
  std::optional<int32_t> eos_id() const override {
    return with_eos_ ? std::optional<int32_t>(kEos) : std::nullopt;
  }
  std::vector<TokenizerFile> files() const override {
    return {{kCharTokenizerFile, Json{{"type", "byte"}, {"eos", with_eos_}}.dump(1) + "\n"}};
  }

 protected:
  void segments(std::string_view text, SpecialTokens, size_t max_bytes,
                std::vector<Segment>& out) const override {
    cut(
        text, max_bytes, [](char) { return true; }, out);
  }

  std::unique_ptr<Encoder> make_encoder(size_t) const override {
    struct ByteEncoder : Encoder {
      void encode(std::string_view text, const Segment& segment, std::vector<int32_t>& ids) override {
        for (size_t i = segment.begin; i < segment.end; ++i) ids.push_back(static_cast<uint8_t>(text[i]));
      }
    };
    return std::make_unique<ByteEncoder>();
  }

 private:
  static constexpr int32_t kEos = 256;
  bool with_eos_;
  std::array<char, 256> bytes_;
};

}  // namespace

std::shared_ptr<const Tokenizer> make_char_tokenizer(std::string_view training_text) {
  if (training_text.empty()) {
    fail<DataError>("a character tokenizer cannot be made from an empty text; it needs the text to train on");
  }
  std::vector<bool> seen(0x110000);
  for (size_t i = 0; i < training_text.size();) {
    const size_t begin = i;
    const char32_t c = next_code_point(training_text, i);
    if (!is_well_formed(c, training_text.substr(begin, i - begin))) {
      fail<DataError>("{}: byte 0x{:02X} is not UTF-8; a character tokenizer is made from UTF-8",
                      place(training_text, begin), static_cast<uint8_t>(training_text[begin]));
    }
    seen[c] = true;
  }
  std::u32string chars;
  for (char32_t c = 0; c < seen.size(); ++c) {
    if (seen[c]) chars.push_back(c);
  }
  return std::make_shared<CharTokenizer>(std::move(chars));
}

std::shared_ptr<const Tokenizer> make_byte_tokenizer(bool with_eos) {
  return std::make_shared<ByteTokenizer>(with_eos);
}

std::shared_ptr<const Tokenizer> load_char_tokenizer(spec::TokenizerType expected,
                                                     const std::filesystem::path& file) {
  using enum spec::TokenizerType;
  const Json json = parse_json(file);
  const JsonNode root{json, file.string() + ": "};
  root.expect_object();
  const std::string type = root.at("type").string();
  const bool is_char = type == "char";
  if ((!is_char && type != "byte") || (expected == kChar && !is_char) || (expected == kByte && is_char)) {
    root.at("type").expected(expected == kChar   ? "\"char\""
                             : expected == kByte ? "\"byte\""
                                                 : "\"char\" or \"byte\"");
  }
  if (!is_char) {
    bool with_eos = false;
    root.read("eos", with_eos);
    return make_byte_tokenizer(with_eos);
  }
  const std::string characters = root.at("characters").string();
  std::u32string chars;
  for (size_t i = 0; i < characters.size();) chars.push_back(next_code_point(characters, i));
  if (std::adjacent_find(chars.begin(), chars.end(), std::greater_equal<>()) != chars.end()) {
    root.at("characters").expected("each character once, in the order of code points");
  }
  return std::make_shared<CharTokenizer>(std::move(chars));
}

}  // namespace trainer::text
