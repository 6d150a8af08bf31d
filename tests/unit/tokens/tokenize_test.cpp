#include "tokens/tokenize.h"

#include <unistd.h>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "temporary_directory.h"

using namespace trainer::tokens;
using Catch::Matchers::Message;
using trainer::DataError;
using trainer::spec::FileFormat;
using trainer::text::make_byte_tokenizer;
using trainer::text::make_char_tokenizer;

namespace {

// What comes out, as text: bytes as they are, | for the end of a document, $ for the end-of-text token.
struct Shown final : TokenSink {
  std::string text;
  void add(std::span<const int32_t> ids) override {
    for (const int32_t id : ids) text += id == 256 ? '$' : static_cast<char>(id);
  }
  void end_document() override { text += '|'; }
};

std::string shown(const std::string& file, const TokenizeOptions& options = {}) {
  Shown sink;
  tokenize(find_source(file, FileFormat::kAuto), *make_byte_tokenizer(true), options, sink, {});
  return sink.text;
}

}  // namespace

TEST_CASE("a text file is one document") {
  const TemporaryDirectory dir;
  dir.write("a.txt", "one\n\ntwo\n");
  dir.write("b.txt", "\xef\xbb\xbfthree");
  dir.write("c.txt", "");
  CHECK(shown(dir.path.string()) == "one\n\ntwo\n$|three$|");
  CHECK(shown(dir.path.string(), {.append_eos = false}) == "one\n\ntwo\n|three|");
}

TEST_CASE("a document is a line of JSON") {
  const TemporaryDirectory dir;
  const std::string file = dir.write("a.jsonl",
                                     "\xef\xbb\xbf{\"text\": \"one\\n\\u00e9\", \"n\": 1}\n\n{\"text\": "
                                     "\"\"}\r\n  \n{\"n\": [{}], \"text\": \"two\"}");
  for (const int64_t threads : {1, 3}) {
    CHECK(shown(file, {.num_threads = threads}) == "one\n\xc3\xa9$|two$|");
    CHECK(shown(file, {.append_eos = false, .num_threads = threads}) == "one\n\xc3\xa9|two|");
  }
  const std::string other = dir.write("b.jsonl", "{\"t\": \"x\"}\n");
  CHECK(shown(other, {.field = "t"}) == "x$|");
}

TEST_CASE("long documents and many of them come in order") {
  const TemporaryDirectory dir;
  std::string lines, expected;
  for (int i = 0; i < 300; ++i) {
    const std::string text(i % 100 == 50 ? (size_t{2} << 20) : static_cast<size_t>(i),
                           static_cast<char>('a' + i % 26));
    lines += "{\"text\":\"" + text + "\"}\n";
    if (!text.empty()) expected += text + "$|";
  }
  CHECK(shown(dir.write("a.jsonl", lines), {.num_threads = 3}) == expected);
}

TEST_CASE("a bad line of JSON is named") {
  const TemporaryDirectory dir;
  const auto message = [&](const std::string& line) -> std::string {
    const std::string file = dir.write("a.jsonl", "{\"text\": \"good\"}\n\n" + line + "\n");
    try {
      shown(file, {.num_threads = 2});
    } catch (const DataError& error) {
      return std::string(error.what()).substr(dir.path.string().size());
    }
    return "";
  };
  CHECK(message("{\"text\": \"x\"").starts_with("/a.jsonl:3: is no JSON: column 13: syntax error"));
  CHECK(message("{\"text\": \"\xff\"}").starts_with("/a.jsonl:3: is no JSON: column 11: "));
  CHECK(message("[1]") == "/a.jsonl:3: got array; expected an object with a field \"text\"");
  CHECK(message("{\"txt\": \"x\", \"id\": 3}") == "/a.jsonl:3: has no field \"text\"; it has id, txt");
  CHECK(message("{\"text\": 5}") == "/a.jsonl:3: text: got number; expected a string");
}

TEST_CASE("a document that the tokenizer cannot write is named") {
  const TemporaryDirectory dir;
  const auto tokenizer = make_char_tokenizer("ab");
  Shown sink;
  const std::string lines = dir.write("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"xb\"}\n");
  CHECK_THROWS_WITH(tokenize(find_source(lines, FileFormat::kAuto), *tokenizer, {}, sink, {}),
                    Catch::Matchers::StartsWith(lines + ":2: "));
  const std::string text = dir.write("a.txt", "abxb");
  CHECK_THROWS_WITH(tokenize(find_source(text, FileFormat::kAuto), *tokenizer, {}, sink, {}),
                    Catch::Matchers::StartsWith(text + ": "));
}

TEST_CASE("all characters of text and of JSON lines are found") {
  const TemporaryDirectory dir;
  // A character across the border of the pieces that threads take.
  std::string text((size_t{32} << 20) - 1, 'a');
  text += "\xe2\x82\xac";
  text += "b\n";
  const Source source = find_source(dir.write("a.txt", text), FileFormat::kAuto);
  CHECK(distinct_characters(source, "", 2) == "\nab\xe2\x82\xac");
  const Source lines =
      find_source(dir.write("a.jsonl", "{\"text\":\"ba\"}\n{\"text\":\"\\u20ac\"}\n"), FileFormat::kAuto);
  CHECK(distinct_characters(lines, "text", 2) == "ab\xe2\x82\xac");
  const Source empty = find_source(dir.write("empty.txt", ""), FileFormat::kAuto);
  CHECK_THROWS_MATCHES(distinct_characters(empty, "", 2), DataError,
                       Message(empty.files[0] + ": has no text"));
}

TEST_CASE("text in memory has its documents, in the narrowest type") {
  const TemporaryDirectory dir;
  const std::string file = dir.write("a.jsonl", "{\"text\":\"abc\"}\n{\"text\":\"de\"}\n");
  const Source source = find_source(file, FileFormat::kAuto);
  std::vector<TokenPart> parts;
  parts.push_back(tokenize_in_memory(source, file, *make_byte_tokenizer(true), {}));
  CHECK(parts[0].type == TokenType::kUint16);
  const TokenStream stream(std::move(parts));
  REQUIRE(stream.size() == 7);
  std::vector<int64_t> ids(7), starts;
  stream.read(0, 7, ids.data());
  CHECK(ids == std::vector<int64_t>{'a', 'b', 'c', 256, 'd', 'e', 256});
  stream.document_starts(0, 7, starts);
  CHECK(starts == std::vector<int64_t>{0, 4});
  CHECK(type_for(65536) == TokenType::kUint16);
  CHECK(type_for(65537) == TokenType::kInt32);
  std::string bytes;
  const std::vector<int32_t> large = {1, 70000};
  append_ids(large, TokenType::kInt32, bytes);
  CHECK(bytes == std::string("\x01\0\0\0\x70\x11\x01\0", 8));
}

TEST_CASE("more text than a run should tokenize anew is refused with the way to prepare it") {
  const TemporaryDirectory dir;
  const std::string file = dir.write("a.txt", "");
  REQUIRE(::truncate(file.c_str(), (int64_t{1} << 30) + 1) == 0);
  CHECK_THROWS_MATCHES(
      tokenize_in_memory(find_source(file, FileFormat::kAuto), file, *make_byte_tokenizer(true), {}),
      DataError,
      Message(file +
              ": 1.0 GiB of text, expected at most 1.0 GiB, as every run tokenizes it anew\nhint: trainer "
              "prepare " +
              file + " --output PREFIX --tokenizer DIR, then data.train.path: PREFIX"));
}

TEST_CASE("hashes of vocabularies differ when their tokens do") {
  const uint64_t one = vocabulary_hash(*make_char_tokenizer("ab"));
  CHECK(vocabulary_hash(*make_char_tokenizer("ba")) == one);
  CHECK(vocabulary_hash(*make_char_tokenizer("ac")) != one);
  CHECK(vocabulary_hash(*make_byte_tokenizer(false)) != vocabulary_hash(*make_byte_tokenizer(true)));
}

TEST_CASE("validation is the last part, from a document on where one begins near") {
  const auto begin = [](std::vector<int64_t> starts, double fraction) {
    std::vector<TokenPart> parts;
    parts.push_back(TokenPart::in_memory("a", std::vector<int32_t>(1000), std::move(starts)));
    return validation_begin(TokenStream(std::move(parts)), fraction);
  };
  CHECK(begin({0}, 0.1) == 900);
  CHECK(begin({0, 880, 930, 999}, 0.1) == 880);
  CHECK(begin({0, 850, 960}, 0.1) == 850);
  CHECK(begin({0, 500, 970}, 0.1) == 900);  // would halve or multiply it
  CHECK(begin({0}, 0.0005) == 999);
  CHECK_THROWS_MATCHES(begin({0}, 0.9995), DataError,
                       Message("a: 1000 tokens are too few to keep a fraction of 0.9995 for validation"));
  // nanoGPT's Shakespeare: the first int(0.9 n) characters are training's.
  std::vector<TokenPart> parts;
  parts.push_back(TokenPart::in_memory("a", std::vector<int32_t>(1115394), {0}));
  CHECK(validation_begin(TokenStream(std::move(parts)), 0.1) == 1003854);
}
