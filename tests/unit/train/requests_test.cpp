#include "train/requests.h"

#include <catch2/catch.hpp>
#include <csignal>

// How several ranks agree: tests/dist/requests_test.py, by processes.

using namespace trainer;
using report::Request;
using train::Requests;

TEST_CASE("a single process meets its agent's request after the step it is at, once") {
  const auto alone = dist::make_single_process();
  report::ProgressPage page;
  page.attached = 1;
  Requests requests(page, *alone, at::kCPU);
  CHECK(requests.after_step(1) == Request::kNone);
  page.request = Request::kSave;
  page.request_id = 1;
  CHECK(requests.after_step(2) == Request::kSave);
  CHECK(page.handled_id == 0);
  requests.done(2);
  CHECK(page.handled_id == 1);
  CHECK(page.saved_step == 2);
  CHECK(requests.after_step(3) == Request::kNone);
  page.request = Request::kStop;
  page.request_id = 2;
  CHECK(requests.after_step(4) == Request::kStop);
  ::raise(SIGUSR1);  // the agent's business
  ::signal(SIGUSR1, SIG_DFL);
}

TEST_CASE("without an agent signals are votes, met when the ranks have counted them") {
  const auto alone = dist::make_single_process();
  report::ProgressPage page;
  {
    Requests requests(page, *alone, at::kCPU);
    CHECK(requests.votes().save == 0);
    ::raise(SIGUSR1);
    CHECK(requests.votes().save == 1);
    CHECK(requests.votes().stop == 0);
    CHECK(requests.after_step(1) == Request::kNone);
    requests.count(requests.votes());
    CHECK(requests.after_step(2) == Request::kSave);
    requests.done(2);
    CHECK(page.saved_step == 2);
    CHECK(requests.after_step(3) == Request::kNone);
    CHECK(requests.votes().save == 0);

    ::raise(SIGTERM);
    ::raise(SIGUSR1);
    CHECK(requests.votes().stop == 1);
    struct sigaction action {};
    ::sigaction(SIGTERM, nullptr, &action);
    CHECK(action.sa_handler == SIG_DFL);  // a second one ends the process
    requests.count({1, 1});               // of both, to stop: it saves too
    CHECK(requests.after_step(4) == Request::kStop);

    requests.done(4);
    requests.count({0, 2});  // other ranks' votes count here
    CHECK(requests.after_step(5) == Request::kStop);
  }
  ::raise(SIGUSR1);  // too late, and no harm
  ::signal(SIGUSR1, SIG_DFL);
}

TEST_CASE("a signal that was ignored from the start stays ignored") {
  ::signal(SIGTERM, SIG_IGN);
  {
    const auto alone = dist::make_single_process();
    report::ProgressPage page;
    const Requests requests(page, *alone, at::kCPU);
    ::raise(SIGTERM);
    CHECK(requests.votes().stop == 0);
  }
  ::raise(SIGTERM);
  ::signal(SIGTERM, SIG_DFL);
}
