// What ranks say when others die, hang or never come. Ranks that must die are processes: this program again,
// with the hidden test case "victim".
#include <ATen/ATen.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "../unit/dist/ranks.h"
#include "core/error.h"
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
  ::unsetenv("TRAINER_STORE_FD");
  const auto c = dist::join(test::job_of(1, 2, std::atoll(std::getenv("TEST_VICTIM_PORT"))), false);
  const OneParameter model(*c);
  for (int i = 0; i < 2; ++i) model.step();
  if (what == "die") ::raise(SIGKILL);
  if (what == "hang") ::raise(SIGSTOP);
}

TEST_CASE("when a peer is killed, the survivor's gradient sum fails within seconds and names the cause") {
  const test::StorePort store;
  const pid_t victim = start_victim(store.port, "die");
  auto c = dist::join(test::job_of(0, 2, store.port, 60), false);
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
  auto c = dist::join(test::job_of(0, 2, store.port, 2), false);
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
          error_of([&] { dist::join(test::job_of(rank, 4, store.port, rank == 0 ? 2 : 1), false); });
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
    "an agent may host the store: every rank is a client, and an attempt does not see the keys of the last") {
  const test::StorePort port;
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port.port);
  options.isServer = true;
  options.masterListenFd = port.fd;
  options.waitWorkers = false;
  const auto agent = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
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
