#include "report/worker_error.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>
#include <optional>
#include <stdexcept>

#include "core/error.h"
#include "report/error_file.h"
#include "temporary_directory.h"

using namespace trainer;
using namespace trainer::report;

TEST_CASE("a worker's error is written for the agent and gives the exit code") {
  const TemporaryDirectory dir;
  const auto file = dir.path / "error.json";
  ::setenv("TORCHELASTIC_ERROR_FILE", file.c_str(), 1);
  CHECK(report_worker_error(DataError("train.tsv:7: 4 columns"), 312) == 3);
  const auto report = read_error_file(file);
  REQUIRE(report);
  CHECK(report->message == "data error: train.tsv:7: 4 columns");
  CHECK(report->step == 312);
  CHECK(report->timestamp_s > 1.6e9);

  CHECK(report_worker_error(std::bad_alloc(), std::nullopt) == 7);
  CHECK(read_error_file(file)->message == "out of memory: std::bad_alloc");
  CHECK_FALSE(read_error_file(file)->step);
  CHECK(report_worker_error(std::runtime_error("odd"), std::nullopt) == 1);
  CHECK(read_error_file(file)->message == "internal error: odd");
  ::setenv("TORCHELASTIC_ERROR_FILE", "/no/such/directory/error.json", 1);
  CHECK(report_worker_error(NumericError("nan"), std::nullopt) == 6);
  ::unsetenv("TORCHELASTIC_ERROR_FILE");
}
