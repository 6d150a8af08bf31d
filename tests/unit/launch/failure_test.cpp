#include "launch/failure.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "temporary_directory.h"

using namespace trainer::launch;
using trainer::report::ErrorReport;
using Catch::Matchers::Contains;

namespace {

constexpr int64_t kMs = 1'000'000;

Failure failure(int64_t rank, int64_t time_ms, int code, bool after_stop = false) {
  Failure f;
  f.rank = rank;
  f.pid = 4711;
  f.exit = Exit{time_ms * kMs, code, 0, after_stop};
  f.log = "logs/attempt_0/1/stderr.log";
  return f;
}

int64_t root_rank(const std::vector<Failure>& failures) {
  const Failure* root = root_cause(failures);
  return root == nullptr ? -1 : root->rank;
}

}  // namespace

TEST_CASE("the earliest failure is the root cause") {
  CHECK(root_rank({failure(0, 30, 9), failure(1, 10, 7), failure(2, 20, 8)}) == 1);
  CHECK(root_rank({}) == -1);
}

TEST_CASE("a rank that only lost its peers yields to one that failed for another reason within two seconds") {
  CHECK(root_rank({failure(0, 10, 4), failure(1, 12, 3)}) == 1);
  CHECK(root_rank({failure(0, 10, 4), failure(1, 12, 4)}) == 0);
  CHECK(root_rank({failure(0, 10, 4), failure(1, 2011, 3)}) == 0);
}

TEST_CASE("of ranks that lost their peers, one that says more than that comes first") {
  Failure bare = failure(0, 10, 4), informed = failure(1, 12, 4);
  bare.report =
      ErrorReport{"distributed error: rank 0 of 4: joining failed; a peer has probably died", 0, {}};
  informed.report = ErrorReport{"distributed error: 2 of 4 ranks joined in 5 s; missing: 2, 3", 0, {}};
  CHECK(root_rank({bare, informed}) == 1);
  CHECK(root_rank({bare}) == 0);
}

TEST_CASE("a worker that was told to stop is no cause, unless it had reported an error") {
  CHECK(root_rank({failure(0, 10, 4), failure(1, 12, 1, true)}) == 0);
  Failure reported = failure(1, 12, 3, true);
  reported.report = ErrorReport{"data error: x", 0, {}};
  CHECK(root_rank({failure(0, 10, 4), reported}) == 1);
  CHECK(root_rank({failure(0, 10, 7), reported}) == 0);
  CHECK(root_rank({failure(1, 12, 1, true)}) == -1);
}

TEST_CASE("a failure is described as who, when, why and where to read on") {
  Failure f = failure(1, 1000, 3);
  f.report = ErrorReport{"data error: train.tsv:1877: 4 columns, expected 5\n  hint: try \"none\"", 0, 312};
  CHECK(describe(f, 1400 * kMs, 0) ==
        "FAILED  node 0 rank 1 (pid 4711) at step 312, exit code 3, 0.4 s before the others\n"
        "  data error: train.tsv:1877: 4 columns, expected 5\n"
        "  hint: try \"none\"\n"
        "  log: logs/attempt_0/1/stderr.log");
}

TEST_CASE("a failure without a report shows the end of its log") {
  const TemporaryDirectory dir;
  Failure f = failure(0, 10, 1);
  f.log = dir.path / "stderr.log";
  std::ofstream(f.log) << "one\ntwo\n";
  CHECK(describe(f, 0, 0) ==
        "FAILED  node 0 rank 0 (pid 4711), exit code 1\n  | one\n  | two\n  log: " + f.log.string());
}

TEST_CASE("a signal is named, and SIGKILL hints at the out-of-memory killer") {
  Failure f = failure(0, 10, 0);
  f.exit.signal = 11;
  CHECK_THAT(describe(f, 12 * kMs, 0), Contains(", killed by signal 11 (SIGSEGV), 2 ms before the others\n"));
  f.exit.signal = 9;
  CHECK_THAT(describe(f, 0, 0),
             Contains("killed by signal 9 (SIGKILL)\n  hint: perhaps the kernel's out-of-memory killer"));
  CHECK_THAT(describe(f, 0, 1), Contains("\n  hint: the kernel killed it for memory; the limit here is "));
}

TEST_CASE("an abort hints at other ranks' logs, a bus error at shared memory") {
  Failure f = failure(0, 10, 0);
  f.exit.signal = 6;
  CHECK(describe(f, 0, 0) ==
        "FAILED  node 0 rank 0 (pid 4711), killed by signal 6 (SIGABRT)\n"
        "  hint: a library found a fault and aborted; NCCL's watchdog does so when a collective times out: "
        "then "
        "the cause is in the log of a rank that did not take part in it\n"
        "  log: logs/attempt_0/1/stderr.log");
  f.exit.signal = 7;
  CHECK_THAT(describe(f, 0, 0),
             Contains("killed by signal 7 (SIGBUS)\n  hint: perhaps /dev/shm is full (see df /dev/shm), or a "
                      "mapped file was cut short\n"));
}

TEST_CASE("the last lines of a long log are whole lines") {
  const TemporaryDirectory dir;
  const auto log = dir.path / "log";
  {
    std::ofstream out(log);
    for (int i = 0; i < 10000; ++i) out << "line " << i << "\n";
  }
  const auto lines = last_lines(log, 3);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "line 9997");
  CHECK(lines[2] == "line 9999");
  CHECK(last_lines(log, 100000).front().rfind("line ", 0) == 0);
  CHECK(last_lines("/no/such/log", 3).empty());
}
