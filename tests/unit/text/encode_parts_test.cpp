#include <catch2/catch.hpp>

#include "text/tokenizer.h"

using namespace trainer::text;

TEST_CASE("a text encoded by parts has the ids of the text at once") {
  // More than two rounds of chunks (of 256 KiB, 16 a thread) for one thread, and more than one for two.
  std::string text(size_t{9} << 20, '\0');
  for (uint32_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761U >> 24);
  const auto tokenizer = make_byte_tokenizer(false);
  const std::vector<int32_t> expected = tokenizer->encode(text);
  REQUIRE(expected.size() == text.size());
  CHECK(tokenizer->decode(expected) == text);
  for (const int64_t threads : {1, 2}) {
    size_t parts = 0;
    std::vector<int32_t> ids;
    tokenizer->encode(text, threads, SpecialTokens::kFind, [&](std::span<const int32_t> part, size_t bytes) {
      ++parts;
      ids.insert(ids.end(), part.begin(), part.end());
      CHECK(bytes == ids.size());
    });
    CHECK(parts == 36);
    CHECK(ids == expected);
    CHECK(tokenizer->encode(text, threads) == expected);
  }
}

TEST_CASE("a cut between parts parts no character") {
  std::string text = "\xe2\x82\xac";  // of 3 bytes, which do not divide a chunk
  while (text.size() < (size_t{1} << 20)) text += text;
  const auto tokenizer = make_char_tokenizer("\xe2\x82\xac");
  CHECK(tokenizer->encode(text, 2) == std::vector<int32_t>(text.size() / 3, 0));
}

TEST_CASE("a short or empty text is one part or none") {
  const auto tokenizer = make_byte_tokenizer(true);
  std::vector<std::vector<int32_t>> parts;
  const auto take = [&](std::span<const int32_t> part, size_t) {
    parts.emplace_back(part.begin(), part.end());
  };
  tokenizer->encode("", 2, SpecialTokens::kFind, take);
  CHECK(parts.empty());
  tokenizer->encode("ab", 2, SpecialTokens::kFind, take);
  CHECK(parts == std::vector<std::vector<int32_t>>{{97, 98}});
}
