#include "core/format.h"

#include <catch2/catch.hpp>
#include <limits>

using namespace trainer;

namespace {
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
}

TEST_CASE("numbers are written for people") {
  CHECK(si(0, "FLOP/s") == "0 FLOP/s");
  CHECK(si(999.96, "B/s") == "1 kB/s");
  CHECK(si(1.2345e13, "FLOP/s") == "12.35 TFLOP/s");
  CHECK(si(kNaN, "FLOP/s") == "? FLOP/s");
  CHECK(binary_bytes(0) == "0 B");
  CHECK(binary_bytes(1023) == "1023 B");
  CHECK(binary_bytes(1024) == "1.0 KiB");
  CHECK(binary_bytes((int64_t{1} << 40) - 1) == "1.0 TiB");
  CHECK(duration(59.6) == "1:00");
  CHECK(duration(3675) == "1:01:15");
  CHECK(duration(-1) == "0:00");
  CHECK(duration(kNaN) == "?");
}

TEST_CASE("a short time has milliseconds, a large number has groups of digits") {
  CHECK(short_duration(0.002) == "2 ms");
  CHECK(short_duration(0.4) == "0.4 s");
  CHECK(short_duration(kNaN) == "?");
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(-123456) == "-123,456");
  CHECK(grouped(12345678) == "12,345,678");
}
