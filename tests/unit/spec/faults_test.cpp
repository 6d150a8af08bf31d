#include <catch2/catch.hpp>
#include <cstdlib>

#include "cases.h"
#include "core/error.h"
#include "spec/load.h"

using namespace trainer;

TEST_CASE("every bad spec has its exact message") {
  const auto cases = test::read_cases(TEST_DATA "/spec/faults.cases");
  REQUIRE(cases.size() >= 60);
  for (const auto& bad : cases) {
    INFO("## " << bad.name);
    std::vector<std::string> overrides;
    for (const auto& [option, value] : bad.options) {
      if (option == "set") overrides.push_back(value);
      if (option == "env")
        ::setenv(value.substr(0, value.find('=')).c_str(), value.c_str() + value.find('=') + 1, 1);
    }
    std::string got = "no fault";
    try {
      spec::parse(bad.yaml, "job.yaml", overrides);
    } catch (const SpecError& error) {
      got = error.what();
    }
    CHECK(got == bad.message());
  }
}
