#include "report/progress.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

using namespace trainer::report;

TEST_CASE("a worker and its agent share a page") {
  const Progress agent = Progress::create();
  CHECK(agent.page().attached == 0);
  CHECK(agent.page().saved_step == -1);
  agent.page().request = Request::kStop;
  const pid_t pid = ::fork();
  if (pid == 0) {
    const std::string fd = std::to_string(::dup(agent.fd()));  // as an inherited one: without close-on-exec
    ::setenv("TRAINER_PROGRESS_FD", fd.c_str(), 1);
    const Progress worker = Progress::from_environment();
    const bool kept_from_programs =
        std::getenv("TRAINER_PROGRESS_FD") == nullptr && (::fcntl(worker.fd(), F_GETFD) & FD_CLOEXEC) != 0;
    worker.page().begin(Phase::kEvaluation);
    worker.page().end_step(7, 1000);
    ::_exit(kept_from_programs && worker.page().request == Request::kStop ? 0 : 1);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  CHECK(status == 0);
  CHECK(agent.page().attached == 1);
  CHECK(agent.page().step == 7);
  CHECK(agent.page().busy_ns == 1000);
  CHECK(agent.page().beat_ns > 0);
  CHECK(agent.page().phase == Phase::kEvaluation);
}

TEST_CASE("a worker without an agent has a page of its own") {
  ::unsetenv("TRAINER_PROGRESS_FD");
  const Progress alone = Progress::from_environment();
  CHECK(alone.page().attached == 0);
  CHECK(alone.page().saved_step == -1);
  for (const char* no_page : {"0", "x", "-1", "999", "3x"}) {
    ::setenv("TRAINER_PROGRESS_FD", no_page, 1);
    CHECK(Progress::from_environment().page().attached == 0);
    CHECK(std::getenv("TRAINER_PROGRESS_FD") == nullptr);
  }
}

TEST_CASE("the slowest time between two beats counts from the first step's end") {
  ProgressPage page;
  page.beat(1'000'000);
  page.begin(Phase::kForward, 900'000'000);  // the first step may take long: everything is new
  CHECK(page.slowest_ns == 0);
  page.end_step(1, 0);
  page.beat(900'000'100);
  page.beat(900'000'130);
  CHECK(page.slowest_ns == 100);
  CHECK(page.beat_ns == 900'000'130);
  page.begin(Phase::kCheckpoint, 900'001'130);
  CHECK(page.slowest_ns == 1000);
}

TEST_CASE("every phase has a name") {
  for (uint32_t i = 0; i <= static_cast<uint32_t>(Phase::kFinishing); ++i) {
    CHECK(std::string(to_string(static_cast<Phase>(i))) != "?");
  }
}
