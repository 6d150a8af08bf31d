#include <catch2/catch.hpp>

#include "text/tokenizer.h"

using namespace trainer::text;

TEST_CASE("a text encoded by parts has the ids of the text at once") {
  // More than two rounds of chunks for one thread, and a character that a cut must not part.
  std::string text = "\xe2\x82\xac";
  while (text.size() < (size_t{20} << 20)) text += text;
  const auto tokenizer = make_char_tokenizer(text.substr(0, 6));
  for (const int64_t threads : {1, 3}) {
    size_t parts = 0, ids = 0, done = 0;
    bool equal = true;
    tokenizer->encode(text, threads, SpecialTokens::kFind, [&](std::span<const int32_t> part, size_t bytes) {
      ++parts;
      done = bytes;
      ids += part.size();
      for (const int32_t id : part) equal &= id == 0;
    });
    CHECK(parts > 64);
    CHECK(ids == text.size() / 3);
    CHECK(equal);
    CHECK(done == text.size());
  }
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
