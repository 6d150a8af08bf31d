#include "hardware/machine.h"

#include <sched.h>

#include <catch2/catch.hpp>
#include <limits>

using namespace trainer::hardware;

TEST_CASE("this machine has a CPU, cores and memory") {
  const Machine machine = detect();
  CHECK_FALSE(machine.cpu.empty());
  CHECK(machine.cores >= 1);
  CHECK(machine.memory_bytes > 100 << 20);
}

TEST_CASE("usable cores follow the affinity mask") {
  cpu_set_t before, one;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  }
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(usable_cores() == 1);
  REQUIRE(::sched_setaffinity(0, sizeof before, &before) == 0);
  CHECK(usable_cores() <= CPU_COUNT(&before));
}

TEST_CASE("usable cores are the affinity's or the quota's, whichever is less, and never none") {
  CHECK(usable_cores(8, std::numeric_limits<double>::infinity()) == 8);
  CHECK(usable_cores(8, 16.0) == 8);
  CHECK(usable_cores(8, 4.0) == 4);
  CHECK(usable_cores(8, 3.5) == 4);
  CHECK(usable_cores(8, 0.25) == 1);
}

TEST_CASE("a machine is described in one line") {
  Machine machine{"Some CPU", 2, int64_t{8} << 30, {}};
  CHECK(describe(machine) == "Some CPU, 2 cores, 8.0 GiB; no GPU");
  machine.cores = 1;
  machine.gpus = {{"A", "", int64_t{80} << 30}, {"A", "", int64_t{80} << 30}, {"B", "", int64_t{40} << 30}};
  CHECK(describe(machine) == "Some CPU, 1 core, 8.0 GiB; 2 x A 80.0 GiB, 1 x B 40.0 GiB");
}
