#include "process/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "core/error.h"

using namespace trainer;
using namespace trainer::process;

namespace {

SpawnOptions options() {
  SpawnOptions options{};
  ::sigemptyset(&options.signal_mask);
  return options;
}

// What /bin/sh writes to standard output until it ends.
std::string output_of(const std::string& script, const SpawnOptions& options, int* binding_error = nullptr) {
  const Process child = spawn({"sh", "-c", script}, {{"PATH", "/usr/bin:/bin"}}, options);
  if (binding_error != nullptr) *binding_error = child.binding_error;
  std::string text;
  char buffer[4096];
  for (;;) {
    pollfd wait{child.output.get(), POLLIN, 0};
    ::poll(&wait, 1, -1);
    const ssize_t n = ::read(child.output.get(), buffer, sizeof buffer);
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  ::waitpid(child.pid, nullptr, 0);
  return text;
}

const std::string kCpus = "grep Cpus_allowed_list /proc/self/status | cut -f2";

int last_usable_cpu() {
  cpu_set_t set;
  REQUIRE(::sched_getaffinity(0, sizeof set, &set) == 0);
  int last = 0;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) last = i;
  }
  return last;
}

}  // namespace

TEST_CASE("a child runs on the CPUs that it is given, and the caller where it was") {
  SpawnOptions bound = options();
  const std::string own = output_of(kCpus, options());
  bound.cpus = {last_usable_cpu()};
  int error = -1;
  CHECK(output_of(kCpus, bound, &error) == std::to_string(last_usable_cpu()) + "\n");
  CHECK(error == 0);
  CHECK(output_of(kCpus, options()) == own);
}

TEST_CASE("a CPU that does not exist leaves the child unbound and says so") {
  SpawnOptions bound = options();
  bound.cpus = {5000};
  int error = 0;
  CHECK(output_of(kCpus, bound, &error) == output_of(kCpus, options()));
  CHECK(error == EINVAL);
}

TEST_CASE("a child prefers the memory of the NUMA nodes that it is given") {
  SpawnOptions bound = options();
  bound.memory_nodes = {0};
  int error = -1;
  const std::string maps = output_of("head -1 /proc/self/numa_maps", bound, &error);
  if (error == 0) {
    CHECK_THAT(maps, Catch::Contains(" prefer"));  // "prefer:0" or "prefer (many):0"
  } else {                                         // no NUMA in this kernel, or a container without the right
    CHECK((error == ENOSYS || error == EPERM));
  }
}

TEST_CASE("a child keeps the descriptors that it is given, and no other") {
  int given[2], other[2];
  REQUIRE(::pipe2(given, O_CLOEXEC) == 0);
  REQUIRE(::pipe2(other, O_CLOEXEC) == 0);
  SpawnOptions keeping = options();
  keeping.inherited_fds = {given[0], given[1]};
  std::string script = "for fd in";
  for (const int fd : {given[0], given[1], other[0], other[1]}) script.append(" ").append(std::to_string(fd));
  script += "; do [ -e /proc/self/fd/$fd ] && echo kept || echo closed; done";
  CHECK(output_of(script, keeping) == "kept\nkept\nclosed\nclosed\n");
  for (const int fd : {given[0], given[1], other[0], other[1]}) {
    CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);  // for later children still closed
    ::close(fd);
  }
}

TEST_CASE("a program that is not there is named") {
  CHECK_THROWS_WITH(spawn({"/no/such/program"}, {}, options()),
                    "launch: cannot run /no/such/program: No such file or directory");
}
