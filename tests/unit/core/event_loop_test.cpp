#include "core/event_loop.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "pipe.h"

using trainer::Descriptor;
using trainer::EventLoop;
using trainer::monotonic_ns;

namespace {

constexpr int64_t kMillisecond = 1'000'000;

struct BytePipe : Pipe {
  void fill() const { REQUIRE(::write(write.get(), "x", 1) == 1); }
  void drain() const {
    char byte;
    REQUIRE(::read(read.get(), &byte, 1) == 1);
  }
};

double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

TEST_CASE("timers come in order of time, those of one time in the order in which they were set") {
  EventLoop loop;
  std::string order;
  const int64_t now = monotonic_ns();
  loop.at(now + 3 * kMillisecond, [&] { order += 'd'; });
  loop.at(now + kMillisecond, [&] { order += 'b'; });
  loop.at(now + kMillisecond, [&] { order += 'c'; });
  loop.at(now - 5 * kMillisecond, [&] { order += 'a'; });
  loop.after(0.01, [&] { loop.stop(); });
  loop.run();
  CHECK(order == "abcd");
}

TEST_CASE("a timer is never early, and is called once") {
  EventLoop loop;
  for (const int64_t wait : {int64_t{1}, int64_t{100'000}, 2 * kMillisecond + 1}) {
    const int64_t due = monotonic_ns() + wait;
    int64_t called = 0;
    int calls = 0;
    loop.at(due, [&] {
      called = monotonic_ns();
      ++calls;
      loop.stop();
    });
    loop.run();
    CHECK(called >= due);
    loop.run_once(0);
    CHECK(calls == 1);
  }
}

TEST_CASE("a timer that was cancelled is not called, not even by one that is due with it") {
  EventLoop loop;
  bool called = false;
  const int64_t now = monotonic_ns();
  EventLoop::TimerId victim = 0;
  loop.at(now, [&] { loop.cancel(victim); });
  victim = loop.at(now, [&] { called = true; });
  loop.run_once();
  loop.run_once(2 * kMillisecond);
  CHECK_FALSE(called);
  loop.cancel(victim);  // again, or one that never was, does nothing
  loop.cancel(0);
  loop.cancel(12345);
}

TEST_CASE("a timer may set itself anew, and another that is due at once") {
  EventLoop loop;
  int ticks = 0, extra = 0;
  std::function<void()> tick = [&] {
    loop.at(monotonic_ns(), [&] { ++extra; });
    if (++ticks < 5) {
      loop.after(0.0005, tick);
    } else {
      loop.after(0, [&] { loop.stop(); });
    }
  };
  loop.after(0, tick);
  loop.run();
  CHECK(ticks == 5);
  CHECK(extra == 5);
}

TEST_CASE("a descriptor's call comes when it is ready, with what it is ready for") {
  EventLoop loop;
  const BytePipe pipe;
  std::vector<uint32_t> seen;
  loop.add(pipe.read.get(), EPOLLIN, [&](uint32_t events) {
    seen.push_back(events);
    pipe.drain();
  });
  loop.run_once(0);
  CHECK(seen.empty());
  pipe.fill();
  loop.run_once();
  loop.run_once(0);
  CHECK(seen == std::vector<uint32_t>{EPOLLIN});
}

TEST_CASE("calls come in the order in which the descriptors became ready") {
  EventLoop loop;
  const std::array<BytePipe, 8> pipes;
  std::string order;
  for (size_t i = 0; i < pipes.size(); ++i) {
    loop.add(pipes[i].read.get(), EPOLLIN, [&, i](uint32_t) {
      order += std::to_string(i);
      pipes[i].drain();
    });
  }
  for (const size_t i : {3, 0, 7, 1, 6, 2, 5, 4}) pipes[i].fill();
  loop.run_once();
  CHECK(order == "30716254");
}

TEST_CASE("a descriptor that an earlier call of the round removed is not called") {
  EventLoop loop;
  const BytePipe first, second;
  std::string calls;
  const auto remove_other = [&](const BytePipe& other, char name) {
    return [&, name](uint32_t) {
      calls += name;
      loop.remove(other.read.get());
    };
  };
  loop.add(first.read.get(), EPOLLIN, remove_other(second, '1'));
  loop.add(second.read.get(), EPOLLIN, remove_other(first, '2'));
  second.fill();
  first.fill();
  loop.run_once();
  CHECK(calls == "2");
}

TEST_CASE("a call may remove itself and give its number to another descriptor") {
  EventLoop loop;
  BytePipe first;
  const BytePipe second;
  first.fill();
  const int number = first.read.get();
  bool called = false;
  // What it captured must live until it returns.
  loop.add(number, EPOLLIN, [&, text = std::string(100, 'x')](uint32_t) {
    loop.remove(number);
    first.read.reset();
    REQUIRE(::dup2(second.read.get(), number) == number);
    loop.add(number, EPOLLIN, [&](uint32_t) { called = true; });
    CHECK(text == std::string(100, 'x'));
  });
  loop.run_once();
  CHECK_FALSE(called);
  second.fill();
  loop.run_once();
  CHECK(called);
  loop.remove(number);
  ::close(number);
}

TEST_CASE("what a descriptor is watched for can change") {
  EventLoop loop;
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  const Descriptor socket(fds[0]), peer(fds[1]);
  std::vector<uint32_t> seen;
  loop.add(socket.get(), EPOLLIN, [&](uint32_t events) { seen.push_back(events); });
  loop.run_once(0);
  CHECK(seen.empty());
  loop.modify(socket.get(), EPOLLOUT);
  loop.run_once();
  CHECK(seen == std::vector<uint32_t>{EPOLLOUT});
}

TEST_CASE("deferred calls come next, in order; those that they defer come a round later") {
  EventLoop loop;
  std::string order;
  loop.at(monotonic_ns(), [&] { order += 't'; });
  loop.defer([&] {
    order += '1';
    loop.defer([&] { order += '3'; });
  });
  loop.defer([&] { order += '2'; });
  loop.run_once();
  CHECK(order == "12t");
  loop.run_once();
  CHECK(order == "12t3");
}

TEST_CASE("a stop ends the round: what is ready then waits for the next run") {
  EventLoop loop;
  const BytePipe first, second;
  std::string calls;
  for (const BytePipe* pipe : {&first, &second}) {
    loop.add(pipe->read.get(), EPOLLIN, [&, pipe](uint32_t) {
      calls += pipe == &first ? '1' : '2';
      pipe->drain();
      loop.stop();
    });
  }
  first.fill();
  second.fill();
  loop.run();
  CHECK(calls == "1");
  loop.run();
  CHECK(calls == "12");
}

TEST_CASE("a loop that waits needs no processor") {
  EventLoop loop;
  const BytePipe pipe;
  int calls = 0;
  loop.add(pipe.read.get(), EPOLLIN, [&](uint32_t) { ++calls; });
  loop.after(3600, [&] { ++calls; });
  loop.after(0.3, [&] { loop.stop(); });
  const double before = processor_seconds();
  loop.run();
  CHECK(processor_seconds() - before < 0.15);  // half of the time that a loop that polls would need
  CHECK(calls == 0);
}

TEST_CASE("a round ends at its time when nothing happens") {
  EventLoop loop;
  const int64_t before = monotonic_ns();
  loop.run_once(3 * kMillisecond);
  CHECK(monotonic_ns() - before >= 3 * kMillisecond);
}

TEST_CASE("a descriptor that cannot be watched is an error that says so") {
  EventLoop loop;
  CHECK_THROWS_WITH(loop.add(987, EPOLLIN, [](uint32_t) {}),
                    "launch: cannot watch descriptor 987: Bad file descriptor");
  const Descriptor file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  CHECK_THROWS_WITH(loop.add(file.get(), EPOLLIN, [](uint32_t) {}),
                    Catch::EndsWith("Operation not permitted"));
  loop.remove(987);  // unknown: ignored
}
