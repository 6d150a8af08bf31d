// fault_worker DIR STEPS [ATTEMPT:RANK:STEP:ACTION[=VALUE] ...]: a job without the work, for tests of launchers.
//
// A step is 10 ms and then a barrier of all ranks (through a file in DIR, so that ranks on one machine meet even
// where their nodes can't see each other). It writes what happens to it to DIR/events, one line
// `EVENT NS ATTEMPT RANK WORLD NODE PID` each (monotonic time): start, fault, term (SIGTERM has come), done. It
// works under any launcher of torchrun's contract; with FAULT_WORKER_ATTACH set it tells trainer's its progress,
// so that hangs are seen. With STEPS 0 it goes on until DIR/finish exists; with -1 it sleeps for ever, without a
// wake-up.
//
// Actions of the given rank in the given attempt (-1: any) at the given step, in order:
//   exit=N  kill=SIGNAL  segv     its end
//   error=TEXT                    writes an error file with that message
//   half_error                    writes the first half of one
//   fill=KB                       writes so much to standard output
//   await=RANK                    waits until that rank is dead (from step 1 on, when all are known)
//   sleep=MS
//   hold                          from now on SIGTERM does not end it
//   child                         starts a process that sleeps for ever in a session of its own
//   hang                          never comes back, and ignores SIGTERM
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "report/progress.h"

namespace {

constexpr size_t kMaxRanks = 256;

struct Member {
  std::atomic<int64_t> pid;
  std::atomic<int64_t> steps;
};

int64_t attempt, rank, world, node;
int events = -1;
volatile sig_atomic_t holds = 0;

int64_t now_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

void sleep_ms(int64_t ms) {
  timespec t{ms / 1000, ms % 1000 * 1'000'000};
  while (::nanosleep(&t, &t) != 0) {
  }
}

int64_t variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atoll(value) : 0;
}

// One write, so lines are whole. Called by the signal handler too.
void record(const char* event, int64_t time_ns = now_ns()) {
  char line[160];
  const int size = std::snprintf(line, sizeof line, "%s %ld %ld %ld %ld %ld %d\n", event, time_ns, attempt,
                                 rank, world, node, static_cast<int>(::getpid()));
  if (::write(events, line, static_cast<size_t>(size)) != size) ::_exit(99);
}

void on_term(int signal) {
  record("term");
  if (holds) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void write_error_file(const std::string& text) {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");
  if (path == nullptr) return;
  const int file = ::open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0) return;
  if (::write(file, text.data(), text.size()) < 0) std::perror(path);  // a full disk is one of the faults
  ::close(file);
}

std::string error_json(const char* message) {
  return std::string(R"({"message":{"message":")") + message +
         R"(","extraInfo":{"py_callstack":"","timestamp":")" + std::to_string(::time(nullptr)) + "\"}}}";
}

void await_death(const Member* members, int64_t of) {
  const auto pid = static_cast<pid_t>(members[of].pid.load());
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  pollfd wait{pidfd, POLLIN, 0};
  while (pidfd >= 0 && ::poll(&wait, 1, -1) < 0) {
  }
}

void act(const char* action, const Member* members) {
  const char* equals = std::strchr(action, '=');
  const std::string name(action,
                         equals != nullptr ? static_cast<size_t>(equals - action) : std::strlen(action));
  const char* text = equals != nullptr ? equals + 1 : "";
  const int64_t value = std::atoll(text);
  if (name == "exit" || name == "kill" || name == "segv" || name == "hang") record("fault");
  if (name == "exit") ::_exit(static_cast<int>(value));
  if (name == "kill") ::kill(::getpid(), static_cast<int>(value));
  if (name == "segv") *const_cast<volatile int*>(static_cast<int*>(nullptr)) = 1;
  if (name == "error") write_error_file(error_json(text));
  if (name == "half_error") write_error_file(error_json("half").substr(0, 30));
  if (name == "await") await_death(members, value);
  if (name == "sleep") sleep_ms(value);
  if (name == "hold") holds = 1;
  if (name == "hang") {
    holds = 1;
    for (;;) ::pause();
  }
  if (name == "child" && ::fork() == 0) {
    ::setsid();
    ::signal(SIGTERM, SIG_IGN);
    for (;;) ::pause();
  }
  if (name == "fill") {
    const std::string line(1023, 'x');
    for (int64_t i = 0; i < value; ++i) std::puts(line.c_str());
    std::fflush(stdout);
  }
}

// The faults of this rank and attempt at `step`.
void act_at(int64_t step, char** faults, const Member* members) {
  for (; *faults != nullptr; ++faults) {
    long of_attempt = 0, of_rank = 0, of_step = 0;
    int length = 0;
    if (std::sscanf(*faults, "%ld:%ld:%ld:%n", &of_attempt, &of_rank, &of_step, &length) != 3) ::_exit(98);
    if ((of_attempt == attempt || of_attempt < 0) && of_rank == rank && of_step == step)
      act(*faults + length, members);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t begin_ns = now_ns();
  if (argc < 3) {
    std::fputs("usage: fault_worker DIR STEPS [ATTEMPT:RANK:STEP:ACTION[=VALUE] ...]\n", stderr);
    return 2;
  }
  const std::string directory = argv[1];
  const int64_t steps = std::atoll(argv[2]);
  attempt = variable("TORCHELASTIC_RESTART_COUNT");
  rank = variable("RANK");
  world = variable("WORLD_SIZE");
  node = variable("GROUP_RANK");
  events = ::open((directory + "/events").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (events < 0 || world < 1 || rank < 0 || rank >= world || world > static_cast<int64_t>(kMaxRanks))
    return 97;
  record("start", begin_ns);
  std::signal(SIGTERM, on_term);

  const std::string path =
      directory + "/barrier." + std::to_string(attempt) + "." + std::getenv("MASTER_PORT");
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0 || ::ftruncate(file, kMaxRanks * sizeof(Member)) != 0) return 96;
  void* map = ::mmap(nullptr, kMaxRanks * sizeof(Member), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (map == MAP_FAILED) return 96;
  auto* members = static_cast<Member*>(map);
  members[rank].pid = ::getpid();

  if (steps < 0) {
    act_at(0, argv + 3, members);
    for (;;) ::pause();
  }
  const trainer::report::Progress progress = trainer::report::Progress::from_environment();
  auto& page = progress.page();
  page.attached = std::getenv("FAULT_WORKER_ATTACH") != nullptr ? 1 : 0;
  const std::string finish = directory + "/finish";
  bool stop = false;
  for (int64_t step = 0; !stop; ++step) {
    page.phase = trainer::report::Phase::kForward;
    page.beat_ns = now_ns();
    act_at(step, argv + 3, members);
    sleep_ms(10);
    // Who sees the end first must not leave the others at a barrier: the sign of the end is its step count.
    const bool last = steps > 0 ? step + 1 >= steps : ::access(finish.c_str(), F_OK) == 0;
    members[rank].steps = last ? INT64_MAX : step + 1;
    page.phase = trainer::report::Phase::kSync;
    stop = last;
    for (int64_t other = 0; other < world && !stop; ++other) {
      while (members[other].steps < step + 1) sleep_ms(2);
    }
    page.step = step + 1;
    page.beat_ns = now_ns();
  }
  record("done");
  return 0;
}
