#include "launch/coordinator/failure.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "temporary_directory.h"

using namespace trainer::launch;
using Catch::Matchers::Contains;

namespace {

constexpr int64_t kMs = 1'000'000;

Failure failure(int64_t rank, int64_t time_ms, int code, bool after_stop = false) {
  Failure f;
  f.rank = rank;
  f.pid = 4711;
  f.time_ns = time_ms * kMs;
  f.code = code;
  f.after_stop = after_stop;
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
  bare.message = "distributed error: rank 0 of 4: joining failed; a peer has probably died";
  informed.message = "distributed error: 2 of 4 ranks joined in 5 s; missing: 2, 3";
  CHECK(root_rank({bare, informed}) == 1);
  CHECK(root_rank({bare}) == 0);
}

TEST_CASE("a worker that was told to stop is no cause, unless it had reported an error") {
  CHECK(root_rank({failure(0, 10, 4), failure(1, 12, 1, true)}) == 0);
  Failure reported = failure(1, 12, 3, true);
  reported.message = "data error: x";
  CHECK(root_rank({failure(0, 10, 4), reported}) == 1);
  CHECK(root_rank({failure(0, 10, 7), reported}) == 0);
  CHECK(root_rank({failure(1, 12, 1, true)}) == -1);
}

TEST_CASE("a failure is described as who, when, why and where to read on") {
  Failure f = failure(1, 1000, 3);
  f.message = "data error: train.tsv:1877: 4 columns, expected 5\n  hint: try \"none\"";
  f.step = 312;
  CHECK(describe(f, 1400 * kMs, 0) ==
        "FAILED  node 0 rank 1 (pid 4711) at step 312, exit code 3, 0.4 s before the others\n"
        "  data error: train.tsv:1877: 4 columns, expected 5\n"
        "  hint: try \"none\"\n"
        "  log: logs/attempt_0/1/stderr.log");
}

TEST_CASE("the end of the log is shown, but what the report has said already") {
  Failure f = failure(0, 10, 1);
  f.log = "stderr.log";
  f.tail = {"one", "two"};
  CHECK(describe(f, 0, 1) ==
        "FAILED  node 0 rank 0 (pid 4711), exit code 1\n  | one\n  | two\n  log: stderr.log");
  f.message = "ValueError: two";
  CHECK(describe(f, 0, 1) ==
        "FAILED  node 0 rank 0 (pid 4711), exit code 1\n  ValueError: two\n  | one\n  log: stderr.log");
}

TEST_CASE("of several nodes the host is named") {
  Failure f = failure(5, 10, 1);
  f.node_rank = 1;
  f.host = "gpu7";
  CHECK(describe_briefly(f, 2) == "node 1 rank 5 (host gpu7, pid 4711), exit code 1");
  CHECK(describe_briefly(f, 1) == "node 1 rank 5 (pid 4711), exit code 1");
  f.rank = -1;
  f.node_lost = true;
  CHECK(describe_briefly(f, 2) == "node 1 (host gpu7), lost");
}

TEST_CASE("a signal is named, and whether a core was dumped") {
  Failure f = failure(0, 10, 0);
  f.signal = 11;
  CHECK_THAT(describe(f, 12 * kMs, 1), Contains(", killed by signal 11 (SIGSEGV), 2 ms before the others\n"));
  f.core_dumped = true;
  CHECK_THAT(describe(f, 0, 1), Contains("killed by signal 11 (SIGSEGV), core dumped\n"));
}

TEST_CASE("known causes have hints") {
  const auto hint = [](int signal, const std::string& message, int64_t oom_kills = 0) {
    Failure f = failure(0, 10, signal == 0 ? 1 : 0);
    f.signal = signal;
    f.message = message;
    return hint_for(f, oom_kills, int64_t{8} << 30);
  };
  CHECK(hint(9, "") ==
        "perhaps the kernel's out-of-memory killer (see dmesg; the limit here is 8.0 GiB), or "
        "somebody's kill -9");
  CHECK(hint(9, "", 1) == "the kernel killed it for memory; the limit here is 8.0 GiB");
  CHECK_THAT(hint(6, ""), Contains("NCCL's watchdog does so when a collective times out"));
  CHECK_THAT(hint(7, ""), Contains("perhaps /dev/shm is full"));
  CHECK(hint(11, "").empty());
  CHECK_THAT(hint(0, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
             Contains("the GPU's memory is full"));
  CHECK_THAT(
      hint(0, "RuntimeError: The server socket has failed to listen (errno: 98 - Address already in use)"),
      Contains("another process listens on that port"));
  CHECK_THAT(hint(0, "RuntimeError: [../gloo/transport/tcp/pair.cc] Connection closed by peer [127.0.0.1]:1"),
             Contains("another rank or the network between them failed first"));
  CHECK_THAT(hint(0, "RuntimeError: unable to write to file </torch_1_2>"),
             Contains("/dev/shm is too small"));
  CHECK_THAT(hint(0, "OSError: [Errno 28] No space left on device"), Contains("a disk is full"));
  CHECK(hint(0, "data error: hint: do this").empty());
  CHECK(hint(0, "ValueError").empty());
}

TEST_CASE("the job's error file is torchelastic's, with the error's code") {
  Failure f = failure(3, 10, 7);
  f.message = "ValueError: x";
  f.step = 12;
  const auto json = nlohmann::json::parse(error_file_text(f, "FAILED ..."));
  CHECK(json["message"]["message"] == "ValueError: x");
  CHECK(json["message"]["errorCode"] == 7);
  CHECK(json["message"]["extraInfo"]["rank"] == 3);
  CHECK(json["message"]["extraInfo"]["step"] == 12);
  CHECK(json["message"]["extraInfo"]["py_callstack"] == "FAILED ...");
  CHECK(std::stoll(json["message"]["extraInfo"]["timestamp"].get<std::string>()) > 1'700'000'000);
}
