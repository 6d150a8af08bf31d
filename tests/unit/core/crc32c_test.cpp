#include "core/crc32c.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <string>

using trainer::crc32c;

TEST_CASE("CRC-32C is that of RFC 3720's examples") {
  std::string ascending(32, '\0');
  std::iota(ascending.begin(), ascending.end(), '\0');
  const std::string descending(ascending.rbegin(), ascending.rend());
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xe3069283);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aa);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43);
  CHECK(crc32c(ascending) == 0x46dd794e);
  CHECK(crc32c(descending) == 0x113fdb5c);
}

TEST_CASE("CRC-32C may be computed in pieces, at any address") {
  std::string text(1000, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i % 251);
  const uint32_t whole = crc32c(text);
  for (const size_t cut : {size_t{1}, size_t{7}, size_t{8}, size_t{500}, size_t{999}}) {
    CHECK(crc32c(text.substr(cut), crc32c(text.substr(0, cut))) == whole);
    CHECK(crc32c(std::string_view(text).substr(cut), crc32c(std::string_view(text).substr(0, cut))) == whole);
  }
}
