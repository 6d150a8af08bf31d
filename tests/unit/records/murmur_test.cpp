#include "records/murmur.h"

#include <catch2/catch.hpp>
#include <string>

#include "core/error.h"
#include "fixture.h"

using trainer::records::murmur;

TEST_CASE("murmur is MurmurHash3_x64_128's low half: values of mmh3 5.3.1, for each length of the tail") {
  const std::string text = "The quick brown fox jumps over the lazy dog";
  constexpr uint64_t kExpected[] = {
      0x0ULL,
      0x8c03777e9184689aULL,
      0xd7dd0beaee68e3b9ULL,
      0x304f2652dcd66d9aULL,
      0xbd4301beaba07d9cULL,
      0x6f7aac75205270feULL,
      0x796e1100f3f66746ULL,
      0xf0d3843a5abcd5c9ULL,
      0x644baae4ad5b71cdULL,
      0x37a06404b2a8f155ULL,
      0x420e44df457484b8ULL,
      0x87c320550739a882ULL,
      0x61d6a1372f90f9cbULL,
      0x3c600c93f99bfd3bULL,
      0xdcd216a95d6e6007ULL,
      0x48137cb864e39216ULL,
      0x9d1244f4af9b32c4ULL,
      0x91f96376e757e9aeULL,
      0x4e85fa437c51ea55ULL,
      0x85a60ea92caa4a2aULL,
      0xb9dce6db3c8c3cbfULL,
      0x20f996ee33734f68ULL,
      0xef74c84e2d71c551ULL,
      0x25cc3b72e0851d67ULL,
      0x71264eee42007ce5ULL,
      0xe48f444ca7740bd2ULL,
      0x57a1942f3bec788eULL,
      0x04bf77861f2fe51aULL,
      0xfccf5dd1785bef0bULL,
      0x3792e2c446d4f861ULL,
      0x89ac74e06f1c6a5dULL,
      0x9b28b5ddd9c4c509ULL,
      0xdf6af91bb29bdacfULL,
      0x68d135cdab7bb3ddULL,
  };
  for (size_t n = 0; n < std::size(kExpected); ++n) CHECK(murmur(text.substr(0, n)) == kExpected[n]);
  CHECK(murmur(text) == 0xe34bbc7bbc071b6cULL);
  CHECK(murmur("hello") == 0xcbd8a7b341bd9b02ULL);
  CHECK(murmur(std::string(31, '\xff')) == 0x7fac6e546e44ff6fULL);
  CHECK(murmur("東京") == 0x8a7553374f7c2728ULL);
}

TEST_CASE("ids are hashed to the rows of their table; groups to 64 bits") {
  const TemporaryDirectory dir;
  trainer::records::test::TestJob job(dir.write("a.csv", "click,a\n0,hello\n1,\n1,東京\n"));
  job.data.features.sparse = {"a"};
  job.data.features.group = job.data.features.sparse.front();
  job.data.features.ids = trainer::spec::IdMapping::kMurmur;
  job.model.rows = 1000;
  const auto batch = trainer::records::test::gather_all(*job.open().train);
  CHECK(batch.ids == std::vector<int64_t>{int64_t(0xcbd8a7b341bd9b02ULL % 1000), 0,
                                          int64_t(0x8a7553374f7c2728ULL % 1000)});
  CHECK(batch.groups[0] == static_cast<int64_t>(0xcbd8a7b341bd9b02ULL));
}
