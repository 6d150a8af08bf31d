#include "spec/fault.h"

#include <catch2/catch.hpp>

using namespace trainer::spec;

TEST_CASE("the nearest word is the one with the fewest edits, and none when all are far") {
  CHECK(nearest("batch_sze", {"epochs", "batch_size", "batch_tokens"}) == "batch_size");
  CHECK(nearest("seed", {"speed", "seed_1"}) == "speed");
  CHECK(nearest("rl", {"lr"}) == "lr");  // a swap is one edit
  CHECK(nearest("x", {"y"}).empty());    // as far as it can be
  CHECK(nearest("learning_rate", {"lr", "type"}).empty());
  CHECK(nearest("", {"lr"}).empty());
}
