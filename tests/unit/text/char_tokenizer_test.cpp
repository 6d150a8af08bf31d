#include <catch2/catch.hpp>
#include <filesystem>
#include <numeric>

#include "core/error.h"
#include "core/file.h"
#include "temporary_directory.h"
#include "text/tokenizer.h"

namespace text = trainer::text;
using Catch::Matchers::Message;
using Ids = std::vector<int32_t>;
using trainer::spec::TokenizerType;

namespace {

void save(const text::Tokenizer& tokenizer, const std::filesystem::path& directory) {
  for (const auto& [name, contents] : tokenizer.files())
    trainer::write_file_atomic(directory / name, contents);
}

}  // namespace

TEST_CASE("characters have ids by the order of code points") {
  const auto tokenizer = text::make_char_tokenizer("hello\n wörld é😀");
  // As Python: sorted(set(text)).
  CHECK(tokenizer->vocab_size() == 12);
  CHECK(tokenizer->encode("\n dehlorwéö😀") == Ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  CHECK(tokenizer->encode("").empty());
  CHECK(tokenizer->decode(Ids{8, 10, 7, 11}) == "wör😀");
  CHECK(tokenizer->token_bytes(9) == "é");
  CHECK_FALSE(tokenizer->eos_id());
  CHECK_FALSE(tokenizer->is_special(0));
  CHECK_THROWS_MATCHES(tokenizer->token_bytes(12), trainer::DataError,
                       Message("no token has the id 12; the tokenizer's vocabulary has 12"));
}

TEST_CASE("a character that the training text has not is refused with its place, on any number of threads") {
  const auto tokenizer = text::make_char_tokenizer("abé\n");
  CHECK_THROWS_MATCHES(
      tokenizer->encode("aé\nbéaz"), trainer::DataError,
      Message("line 2, column 4 (byte 8): character \"z\" (U+007A) is not among the 4 of the character "
              "tokenizer, which are those of its training text"));
  CHECK_THROWS_MATCHES(
      tokenizer->encode("aé\xFF"), trainer::DataError,
      Message(
          "line 1, column 3 (byte 3): byte 0xFF is not UTF-8; the character tokenizer encodes UTF-8 only"));
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += "aé\n";
  CHECK(tokenizer->encode(text, 3) == tokenizer->encode(text));
  CHECK(tokenizer->decode(tokenizer->encode(text, 2)) == text);
  text += "?";
  text[600'000] = '!';  // the first that fails is reported
  CHECK_THROWS_WITH(tokenizer->encode(text, 3),
                    Catch::StartsWith("line 150001, column 1 (byte 600000): character \"!\""));
  CHECK_THROWS_WITH(tokenizer->encode_batch({"a", "b", "z", "?"}, 2),
                    Catch::StartsWith("text 2 of 4: line 1, column 1"));
}

TEST_CASE("a character tokenizer is made from UTF-8 that is not empty") {
  CHECK_THROWS_MATCHES(
      text::make_char_tokenizer("ab\nc\xC3"), trainer::DataError,
      Message("line 2, column 2 (byte 4): byte 0xC3 is not UTF-8; a character tokenizer is made from "
              "UTF-8"));
  CHECK_THROWS_MATCHES(
      text::make_char_tokenizer(""), trainer::DataError,
      Message("a character tokenizer cannot be made from an empty text; it needs the text to train on"));
  CHECK(text::make_char_tokenizer("\uFFFD")->encode("\uFFFD") == Ids{0});
}

TEST_CASE("every byte is a token, and a document may end") {
  std::string bytes(256, '\0');
  std::iota(bytes.begin(), bytes.end(), '\0');
  Ids ids(256);
  std::iota(ids.begin(), ids.end(), 0);
  const auto plain = text::make_byte_tokenizer(false);
  CHECK(plain->encode(bytes) == ids);
  CHECK(plain->decode(ids) == bytes);
  CHECK(plain->vocab_size() == 256);
  CHECK_FALSE(plain->eos_id());
  CHECK_THROWS_MATCHES(plain->token_bytes(256), trainer::DataError,
                       Message("no token has the id 256; the tokenizer's vocabulary has 256"));
  const auto ending = text::make_byte_tokenizer(true);
  CHECK(ending->vocab_size() == 257);
  CHECK(ending->eos_id() == 256);
  CHECK(ending->is_special(256));
  CHECK(ending->decode(Ids{104, 105, 256}) == "hi");
  const std::string large(1'000'000, 'x');
  CHECK(ending->encode(large, 4) == Ids(1'000'000, 'x'));
}

TEST_CASE("character and byte tokenizers load from what they save") {
  TemporaryDirectory directory;
  const std::string characters = "\n \"\\aé😀";
  save(*text::make_char_tokenizer(characters), directory.path);
  for (const TokenizerType kind : {TokenizerType::kAuto, TokenizerType::kChar}) {
    CHECK(text::load_tokenizer(kind, directory.path)->encode(characters) == Ids{0, 1, 2, 3, 4, 5, 6});
  }
  const auto file = directory.path / "trainer_tokenizer.json";
  CHECK(text::load_tokenizer(TokenizerType::kAuto, file)->vocab_size() == 7);
  CHECK_THROWS_MATCHES(text::load_tokenizer(TokenizerType::kByte, file), trainer::DataError,
                       Message(file.string() + ": type: got \"char\", expected \"byte\""));
  save(*text::make_byte_tokenizer(true), directory.path);
  CHECK(text::load_tokenizer(TokenizerType::kAuto, directory.path)->eos_id() == 256);
  CHECK_THROWS_MATCHES(text::load_tokenizer(TokenizerType::kChar, file), trainer::DataError,
                       Message(file.string() + ": type: got \"byte\", expected \"char\""));

  trainer::write_file_atomic(file, R"({"type": "char", "characters": "ba"})");
  CHECK_THROWS_MATCHES(
      text::load_tokenizer(TokenizerType::kAuto, file), trainer::DataError,
      Message(file.string() +
              ": characters: got \"ba\", expected each character once, in the order of code points"));
  trainer::write_file_atomic(file, R"({"type": "word"})");
  CHECK_THROWS_MATCHES(text::load_tokenizer(TokenizerType::kAuto, file), trainer::DataError,
                       Message(file.string() + ": type: got \"word\", expected \"char\" or \"byte\""));
}
