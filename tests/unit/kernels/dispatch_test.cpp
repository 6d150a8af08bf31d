#include <catch2/catch.hpp>
#include <string>

#include "core/error.h"
#include "kernels/cpu/kernels.h"

using namespace trainer;

TEST_CASE(
    "The kernels of an instruction set are chosen by name, and an unknown name is an error that lists them") {
  CHECK(std::string(kernels::select_kernels("baseline").isa) == "baseline");
  CHECK_NOTHROW(kernels::select_kernels(nullptr));
  CHECK_THROWS_WITH(kernels::select_kernels("mmx"),
                    Catch::Contains("TRAINER_CPU_ISA: got \"mmx\"; this CPU has baseline"));
  CHECK_THROWS_AS(kernels::select_kernels("mmx"), SpecError);
}
