// What ranks say when others die, hang or never come. Ranks that must die are processes: this program again,
// with the hidden test case "victim".
#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <new>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "../unit/dist/ranks.h"
#include "core/error.h"
#include "dist/failure.h"
#include "dist/gradient_sync.h"

extern char** environ;

using namespace trainer;
using Clock = std::chrono::steady_clock;

namespace {

// Starts rank 1 of 2 as a process that does `what` after joining.
pid_t start_victim(int64_t port, const char* what) {
  ::setenv("TEST_VICTIM_PORT", std::to_string(port).c_str(), 1);
  ::setenv("TEST_VICTIM_DOES", what, 1);
  const char* const argv[] = {"/proc/self/exe", "victim", nullptr};
  posix_spawn_file_actions_t quiet;
  ::posix_spawn_file_actions_init(&quiet);
  ::posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  ::posix_spawn(&pid, argv[0], &quiet, nullptr, const_cast<char* const*>(argv), environ);
  ::posix_spawn_file_actions_destroy(&quiet);
  return pid;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
    return "";
  } catch (const DistributedError& e) {
    return e.what();
  }
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct OneParameter {
  at::Tensor p = at::ones({8}).requires_grad_();
  std::unique_ptr<dist::GradientSync> sync;
  explicit OneParameter(dist::Communicator& c) : sync(dist::make_gradient_sync(c, {}, {{"p", p}}, {})) {}
  void step() const {
    sync->before_forward(true);
    sync->backward(p.sum(), true);
  }
};

}  // namespace

TEST_CASE("victim", "[.]") {
  const std::string what = std::getenv("TEST_VICTIM_DOES");
  const auto c = dist::join(test::job_of(1, 2, std::atoll(std::getenv("TEST_VICTIM_PORT"))), true);
  const OneParameter model(*c);
  for (int i = 0; i < 2; ++i) model.step();
  if (what == "die") ::raise(SIGKILL);
  if (what == "hang") ::raise(SIGSTOP);
}

TEST_CASE("errors of this rank's own backward keep their type; only communication's are distributed errors") {
  const auto outcome = [](void (*thrown)()) {
    std::vector<std::string> kinds(2);
    const auto errors = test::run_ranks(2, [&](dist::Communicator& c) {
      const at::Tensor p = at::ones({8}).requires_grad_();
      const auto sync = dist::make_gradient_sync(c, {}, {{"p", p}}, {});
      const at::Tensor doubled = 2 * p;
      doubled.register_hook([thrown](const at::Tensor& gradient) {
        thrown();
        return gradient;
      });
      std::string& kind = kinds[static_cast<size_t>(c.rank())];
      try {
        sync->before_forward(true);
        sync->backward(doubled.sum(), true);
      } catch (const Error& e) {
        kind = std::string(e.kind()) + ": " + e.what();
      } catch (const std::bad_alloc&) {
        kind = "bad_alloc";
      } catch (const c10::OutOfMemoryError&) {
        kind = "device out of memory";
      } catch (const c10::Error& e) {
        kind = dist::first_line(e);
      }
    });
    CHECK(errors == std::vector<std::string>(2));
    return kinds[1];
  };
  CHECK(outcome([] { throw std::bad_alloc(); }) == "bad_alloc");
  CHECK(outcome([] { C10_THROW_ERROR(OutOfMemoryError, "full"); }) == "device out of memory");
  CHECK(outcome([] { fail<NumericError>("not a number"); }) == "numeric error: not a number");
  CHECK(outcome([] { TORCH_CHECK(false, "sizes differ"); }) == "sizes differ");
  CHECK(outcome([] { C10_THROW_ERROR(DistBackendError, "NCCL is gone"); }) ==
        "distributed error: rank 1 of 2: gradient all_reduce failed: NCCL is gone");
  CHECK(outcome([] {
          throw std::runtime_error("Connection closed by peer");
        }).starts_with("distributed error: rank 1 of 2: gradient all_reduce failed: Connection closed"));
}

TEST_CASE("an out-of-memory error is not taken for a failed collective") {
  const auto thrown = [] { dist::collective({0, 2, 1}, "barrier", [] { throw std::bad_alloc(); }); };
  CHECK_THROWS_AS(thrown(), std::bad_alloc);
}

TEST_CASE("the end that NCCL's watchdog makes is explained, with the code of a distributed error") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], 2);
    dist::explain_watchdog({1, 2, 20});
    [&]() noexcept {
      C10_THROW_ERROR(DistBackendError, "Watchdog caught collective operation timeout: OpType=ALLREDUCE");
    }();
  }
  ::close(ends[1]);
  std::string said;
  char buffer[1024];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    said.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 4);
  CHECK(said ==
        "distributed error: rank 1 of 2: NCCL failed: Watchdog caught collective operation timeout: "
        "OpType=ALLREDUCE; not all "
        "ranks came within 20 s (parallel.timeout_s): look for one that hangs or lags\n");
}

TEST_CASE("a rank that comes to the sum early is told how long it waited") {
  std::vector<double> waited(2);
  const auto errors = test::run_ranks(2, [&](dist::Communicator& c) {
    const OneParameter model(c);
    model.step();
    const auto r = static_cast<size_t>(c.rank());
    model.sync->before_forward(true);  // may wait for all: buckets are rebuilt once
    if (r == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    waited[r] = model.sync->backward(model.p.sum(), true);
  });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(waited[0] > waited[1]);
  CHECK(waited[0] > 0.05);
}

TEST_CASE("when a peer is killed, the survivor's gradient sum fails within seconds and names the cause") {
  const test::StorePort store;
  const pid_t victim = start_victim(store.port, "die");
  auto c = dist::join(test::job_of(0, 2, store.port, 60), true);
  OneParameter model(*c);
  for (int i = 0; i < 2; ++i) model.step();
  const auto start = Clock::now();
  const std::string error = error_of([&] {
    for (int i = 0; i < 3; ++i) model.step();
  });
  INFO(error);
  CHECK(error.starts_with("rank 0 of 2: gradient all_reduce failed: "));
  CHECK(error.find("a peer has probably died") != std::string::npos);
  CHECK(error.find('\n') == std::string::npos);
  const std::string again = error_of([&] { c->barrier(); });
  INFO(again);
  CHECK(again.starts_with("rank 0 of 2: barrier failed: "));
  model.sync.reset();
  c.reset();
  CHECK(seconds_since(start) < 30);  // half of the time-out: it was not waited for
  ::waitpid(victim, nullptr, 0);
}

TEST_CASE("when a peer hangs, the time-out says so, and leaving does not wait for it") {
  const test::StorePort store;
  const pid_t victim = start_victim(store.port, "hang");
  auto c = dist::join(test::job_of(0, 2, store.port, 2), true);
  OneParameter model(*c);
  for (int i = 0; i < 2; ++i) model.step();
  const std::string error = error_of([&] { c->barrier(); });
  INFO(error);
  CHECK(error.starts_with("rank 0 of 2: barrier failed: "));
  CHECK(error.ends_with(
      "; not all ranks came within 2 s (parallel.timeout_s): look for one that hangs or lags"));
  model.sync.reset();
  c.reset();
  ::kill(victim, SIGKILL);
  ::waitpid(victim, nullptr, 0);
}

TEST_CASE("joining that times out says how many came and who is missing") {
  const test::StorePort store;
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (const int64_t rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      errors[rank == 0 ? 0 : 1] =
          error_of([&] { dist::join(test::job_of(rank, 4, store.port, rank == 0 ? 2 : 1), true); });
    });
  }
  for (auto& t : threads) t.join();
  const std::string at = " of 4: 2 of 4 ranks joined at 127.0.0.1:" + std::to_string(store.port) + " within ";
  CHECK(errors[0] == "rank 0" + at + "2 s (parallel.timeout_s); missing: 1, 3");
  CHECK(errors[1] == "rank 2" + at + "1 s (parallel.timeout_s); missing: 1, 3");
}

TEST_CASE("a store that is not there is named by its address") {
  const std::string error = error_of([] { dist::join(test::job_of(1, 2, 1, 1), false); });
  INFO(error);
  CHECK(error.starts_with(
      "rank 1 of 2: cannot reach the job's store at 127.0.0.1:1 (MASTER_ADDR:MASTER_PORT) within 1 s: "));
}

TEST_CASE(
    "where an agent hosts the store every rank is a client, and an attempt does not see the keys of the "
    "last") {
  const test::StorePort port;
  for (const char* attempt : {"0", "1"}) {
    ::setenv("TORCHELASTIC_RESTART_COUNT", attempt, 1);
    std::vector<std::string> errors(2);
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        errors[static_cast<size_t>(rank)] =
            error_of([&] { dist::join(test::job_of(rank, 2, port.port), true)->barrier(); });
      });
    }
    for (auto& t : threads) t.join();
    CHECK(errors == std::vector<std::string>(2));
  }
  ::setenv("TORCHELASTIC_RESTART_COUNT", "2", 1);
  const std::string error = error_of([&] { dist::join(test::job_of(1, 2, port.port, 1), true); });
  CHECK(error.ends_with("within 1 s (parallel.timeout_s); missing: 0"));
  ::unsetenv("TORCHELASTIC_RESTART_COUNT");
}
