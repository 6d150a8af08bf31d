#include "launch/agent.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "core/error.h"
#include "core/file.h"
#include "net/socket.h"
#include "temporary_directory.h"

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using trainer::read_file;

namespace {

// Bounded: a hang is a failure, not a stuck test.
bool eventually(const std::function<bool()>& condition, double seconds = 20) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// agent_driver in a directory of its own, with its output in files there.
class Driver {
 public:
  // `options`: key=value words of agent_driver; `script`: what every worker's shell runs.
  explicit Driver(const std::string& options, const std::string& script, const std::string& output = "out")
      : Driver(options, std::vector<std::string>{"/bin/sh", "-c", script}, output) {}
  Driver(const std::string& options, const std::vector<std::string>& command,
         const std::string& output = "out") {
    std::vector<std::string> words = {AGENT_DRIVER};
    std::istringstream in(options);
    for (std::string word; in >> word;) words.push_back(word);
    words.push_back("--");
    words.insert(words.end(), command.begin(), command.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string directory = dir.path.string();
    pid = ::fork();
    if (pid == 0) {
      ::setpgid(0, 0);
      if (::chdir(directory.c_str()) != 0) ::_exit(99);
      ::dup2(::open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
      ::dup2(::open(output.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), 1);
      ::dup2(::open("err", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), 2);
      ::execv(argv[0], argv.data());
      ::_exit(98);
    }
  }
  ~Driver() {
    if (pid > 0) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  // Exit code; -signal when a signal killed the agent; -1000 when it does not end.
  int wait(double seconds = 60) {
    int status = 0;
    if (!eventually([&] { return ::waitpid(pid, &status, WNOHANG) == pid; }, seconds)) return -1000;
    pid = 0;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  std::string file(const std::string& name) const {
    return fs::exists(dir.path / name) ? read_file(dir.path / name) : std::string();
  }
  std::string out() const { return file("out"); }
  std::string err() const { return file("err"); }
  // Whether `count` workers have created files ready.<rank>.
  bool ready(int64_t count) const {
    return eventually([&] {
      int64_t n = 0;
      for (const auto& entry : fs::directory_iterator(dir.path)) n += entry.path().stem() == "ready" ? 1 : 0;
      return n == count;
    });
  }
  std::vector<pid_t> pids(int64_t count) const {
    std::vector<pid_t> pids;
    for (int64_t i = 0; i < count; ++i) pids.push_back(std::stoi(file("ready." + std::to_string(i))));
    return pids;
  }

  TemporaryDirectory dir;
  pid_t pid = 0;
};

const std::string kReady = "echo $$ > tmp.$RANK; mv tmp.$RANK ready.$RANK; ";

// A zombie whose reaper is slow is dead too.
bool is_dead(pid_t pid) {
  if (::kill(pid, 0) != 0) return true;
  const std::string file = "/proc/" + std::to_string(pid) + "/stat";
  try {
    const std::string stat = read_file(file);
    return stat.find(") Z ") != std::string::npos;
  } catch (const trainer::DataError&) {
    return true;
  }
}

bool all_dead(const std::vector<pid_t>& pids) {
  return std::all_of(pids.begin(), pids.end(), [](pid_t pid) { return is_dead(pid); });
}

}  // namespace

TEST_CASE("workers that end well give 0, prefixed lines and logs") {
  Driver driver("nproc=2", "echo out $RANK of $WORLD_SIZE; echo err $LOCAL_RANK >&2");
  REQUIRE(driver.wait() == 0);
  CHECK_THAT(driver.out(), Contains("[0:0] out 0 of 2\n") && Contains("[0:1] out 1 of 2\n"));
  CHECK_THAT(driver.err(), Contains("[0:0] err 0\n") && Contains("[0:1] err 1\n"));
  CHECK(driver.file("logs/attempt_0/1/stdout.log") == "out 1 of 2\n");
  CHECK(driver.file("logs/attempt_0/1/stderr.log") == "err 1\n");
}

TEST_CASE("a single worker's lines have no prefix, and its standard input is empty") {
  Driver driver("", "cat; readlink /proc/self/fd/0; printf 'no newline'");
  REQUIRE(driver.wait() == 0);
  CHECK(driver.out() == "/dev/null\nno newline\n");
}

TEST_CASE("a worker reads the agent's standard input, unless that is a terminal") {
  Driver piped("", "echo hello | " AGENT_DRIVER " -- cat");
  REQUIRE(piped.wait() == 0);
  CHECK(piped.out() == "hello\n");
  Driver terminal("", "script -qec '" AGENT_DRIVER " -- readlink /proc/self/fd/0' /dev/null");
  REQUIRE(terminal.wait() == 0);
  CHECK_THAT(terminal.out(), Contains("/dev/null"));
}

TEST_CASE("workers get the contract's variables, a session of their own and no signals blocked") {
  Driver driver("nproc=2 cores=6 env.MY=value",
                "env > env.$RANK; grep SigBlk /proc/self/status > mask.$RANK; "
                "[ $(ps -o sid= -p $$) = $$ ] && touch leader.$RANK; ls -l /proc/$$/fd | grep -c socket > "
                "sockets.$RANK; true");
  REQUIRE(driver.wait() == 0);
  for (const char* rank : {"0", "1"}) {
    const std::string env = fmt::format("\n{}", driver.file(fmt::format("env.{}", rank)));
    for (const char* line :
         {"WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0", "GROUP_WORLD_SIZE=1", "ROLE_NAME=default",
          "MASTER_ADDR=127.0.0.1", "TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_MAX_RESTARTS=0",
          "TORCHELASTIC_RUN_ID=none", "TRAINER_CONSOLE=plain", "MY=value"}) {
      CHECK_THAT(env, Contains(fmt::format("\n{}\n", line)));
    }
    CHECK_THAT(env, Contains(fmt::format("\nRANK={}\n", rank)));
    CHECK_THAT(env, !Contains("TRAINER_WORKER"));  // it is no worker of this program
    CHECK_THAT(env, Contains("\nTORCHELASTIC_USE_AGENT_STORE=True\n") && !Contains("TRAINER_STORE_FD"));
    CHECK(driver.file(std::string("mask.") + rank) == "SigBlk:\t0000000000000000\n");
    CHECK(fs::exists(driver.dir.path / (std::string("leader.") + rank)));
  }
  // The store's socket is nobody's but the store's.
  CHECK(driver.file("sockets.0") == "0\n");
  CHECK(driver.file("sockets.1") == "0\n");
}

TEST_CASE("a socket listens on MASTER_PORT before the workers run") {
  Driver driver("nproc=1", "grep -i \":$(printf %04X $MASTER_PORT) 00000000:0000 0A\" /proc/net/tcp | wc -l");
  REQUIRE(driver.wait() == 0);
  CHECK(driver.out() == "1\n");
}

TEST_CASE("a failed worker's exit code is the program's, the others are stopped, and it is named last") {
  Driver driver(
      "nproc=3",
      kReady +
          "echo trouble $RANK >&2; while [ ! -e ready.0 ] || [ ! -e ready.2 ]; do sleep 0.01; done; "
          "[ $RANK = 1 ] && exit 3; sleep 100");
  REQUIRE(driver.wait() == 3);
  CHECK(all_dead(driver.pids(3)));
  CHECK_THAT(driver.err(),
             Contains("FAILED  node 0 rank 1 (pid ") && Contains("), exit code 3\n  | trouble 1\n"));
  CHECK_THAT(driver.err(), EndsWith("\n  log: logs/attempt_0/1/stderr.log\n"));
}

TEST_CASE("a worker's own report is the message") {
  Driver driver(
      "nproc=1",
      R"(echo '{"message":{"message":"data error: bad row","extraInfo":{"step":7}}}' > $TORCHELASTIC_ERROR_FILE; exit 3)");
  REQUIRE(driver.wait() == 3);
  CHECK_THAT(driver.err(), Contains(") at step 7, exit code 3\n  data error: bad row\n  log: "));
}

TEST_CASE("an earlier run's report is not this run's") {
  Driver driver(
      "", "echo '{\"message\":\"old\"}' > $TORCHELASTIC_ERROR_FILE; " AGENT_DRIVER " -- sh -c 'exit 9'");
  REQUIRE(driver.wait() == 9);
  CHECK_THAT(driver.err(), !Contains("old"));
}

TEST_CASE("a worker that a signal kills gives 128 and its number") {
  Driver driver("nproc=2", "[ $RANK = 1 ] && kill -SEGV $$; sleep 100");
  REQUIRE(driver.wait() == 128 + SIGSEGV);
  CHECK_THAT(driver.err(), Contains("rank 1 (pid ") && Contains("killed by signal 11 (SIGSEGV)"));
}

TEST_CASE("the true first failure is named, twenty times of twenty") {
  for (int i = 0; i < 20; ++i) {
    // Rank 0 ends 20 ms after it has seen rank 1 dead, so that the order is true however late each is scheduled.
    Driver driver("nproc=2",
                  "trap '' TERM; [ $RANK = 1 ] && echo $$ > pid.new && mv pid.new pid && exit 7; "
                  "while [ ! -e pid ]; do sleep 0.005; done; stat=/proc/$(cat pid)/stat; "
                  "while [ -e $stat ] && ! grep -q ') Z' $stat; do sleep 0.005; done; sleep 0.02; exit 9");
    REQUIRE(driver.wait() == 7);
    REQUIRE_THAT(driver.err(), Contains("FAILED  node 0 rank 1 (pid "));
  }
}

TEST_CASE("a rank that loses its peers first does not hide the failing one") {
  Driver driver("nproc=2 trainer=1", "[ $RANK = 0 ] && exit 4; sleep 0.1; exit 3");
  REQUIRE(driver.wait() == 3);
  CHECK_THAT(driver.err(), Contains("FAILED  node 0 rank 1 (pid "));
}

TEST_CASE("another program's exit code 4 means nothing of peers") {
  Driver driver("nproc=2", "[ $RANK = 0 ] && exit 4; sleep 0.1; exit 3");
  REQUIRE(driver.wait() == 4);
}

TEST_CASE("a rank that loses its peers still ends the job") {
  Driver driver("nproc=2", "[ $RANK = 0 ] && exit 4; sleep 100");
  REQUIRE(driver.wait() == 4);
  CHECK_THAT(driver.err(), Contains("FAILED  node 0 rank 0 (pid "));
}

TEST_CASE("a worker that ignores SIGTERM is killed after the grace time") {
  Driver driver("nproc=2 grace_s=0.2",
                "[ $RANK = 1 ] && sleep 0.1 && exit 5; trap '' TERM; while :; do sleep 0.05; done");
  REQUIRE(driver.wait() == 5);
  CHECK_THAT(driver.err(), Contains("rank 0 (pid ") && Contains("did not stop within 0.2 s: killed\n"));
}

TEST_CASE("the agent passes a signal on as it is, like torchrun, and exits with it") {
  for (const auto& [signal, name] : std::map<int, std::string>{
           {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGQUIT, "SIGQUIT"}}) {
    Driver driver("nproc=2", "trap 'echo stopped; exit 0' TERM INT HUP QUIT; " + kReady +
                                 "while :; do sleep 0.01; done");
    REQUIRE(driver.ready(2));
    const std::vector<pid_t> pids = driver.pids(2);
    ::kill(driver.pid, signal);
    REQUIRE(driver.wait() == 128 + signal);
    CHECK(all_dead(pids));
    CHECK_THAT(driver.out(), Contains("[0:0] stopped\n") && Contains("[0:1] stopped\n"));
    CHECK_THAT(driver.err(), Contains(name + ": stopping 2 workers") && !Contains("FAILED"));
  }
}

TEST_CASE("a signal that is said to stop the job does") {
  Driver driver("nproc=2 stop_signal=10",
                "trap 'echo stopped; exit 0' TERM USR1; " + kReady + "while :; do sleep 0.01; done");
  REQUIRE(driver.ready(2));
  ::kill(driver.pid, SIGUSR1);
  REQUIRE(driver.wait() == 128 + SIGUSR1);
  CHECK_THAT(driver.out(), Contains("[0:0] stopped\n") && Contains("[0:1] stopped\n"));
}

TEST_CASE("workers that all end as preempted give that code") {
  Driver driver("nproc=2", "trap 'exit 75' TERM; " + kReady + "while :; do sleep 0.01; done");
  REQUIRE(driver.ready(2));
  ::kill(driver.pid, SIGTERM);
  CHECK(driver.wait() == 75);
}

TEST_CASE("a notice that is there before the job stops it, and says so") {
  TemporaryDirectory dir;
  std::ofstream(dir.path / "notice");
  Driver driver("preempt_file=" + (dir.path / "notice").string(), "exec sleep 100");
  CHECK(driver.wait() == 75);
  CHECK_THAT(driver.err(), Contains("/notice, there before the job was: remove it to run"));
}

TEST_CASE("a second Ctrl-C kills at once") {
  Driver driver("nproc=2 grace_s=100", "trap '' TERM INT; " + kReady + "while :; do sleep 0.01; done");
  REQUIRE(driver.ready(2));
  ::kill(driver.pid, SIGINT);
  REQUIRE(eventually([&] { return driver.err().find("again to kill") != std::string::npos; }));
  ::kill(driver.pid, SIGINT);
  CHECK(driver.wait() == 130);
}

TEST_CASE(
    "a stop that comes while a failed attempt's workers are stopped ends the job, in place of its restart") {
  Driver driver("nproc=2 restarts=5",
                "trap 'touch told; while [ ! -e go ]; do sleep 0.01; done; exit 3' TERM; " + kReady +
                    "[ $RANK = 1 ] && while [ ! -e ready.0 ]; do sleep 0.01; done && exit 4; "
                    "while :; do sleep 0.01; done");
  REQUIRE(eventually([&] { return fs::exists(driver.dir.path / "told"); }));
  ::kill(driver.pid, SIGTERM);
  REQUIRE(eventually([&] { return driver.err().find("SIGTERM: ") != std::string::npos; }));
  std::ofstream(driver.dir.path / "go");
  CHECK(driver.wait() == 128 + SIGTERM);
  CHECK_THAT(driver.err(), Contains("FAILED  node 0 rank 1 (pid ") && Contains("exit code 4") &&
                               EndsWith("\n  not restarted: SIGTERM\n"));
}

TEST_CASE("no worker outlives an agent that is killed") {
  Driver driver("nproc=3", kReady + "exec sleep 100");
  REQUIRE(driver.ready(3));
  const std::vector<pid_t> pids = driver.pids(3);
  ::kill(driver.pid, SIGKILL);
  CHECK(driver.wait() == -SIGKILL);
  CHECK(eventually([&] { return all_dead(pids); }, 5));
}

TEST_CASE("what a worker started without its environment does not outlive a killed agent either") {
  // In the worker's process group, and in one of its own in the worker's session.
  Driver driver(
      "nproc=1",
      {"bash", "-c",
       "echo $$ > ready.0; env -i sh -c 'echo $$ > tmp1; mv tmp1 ready.1; exec sleep 100' & set -m; "
       "env -i sh -c 'echo $$ > tmp2; mv tmp2 ready.2; exec sleep 100' & wait"});
  REQUIRE(driver.ready(3));
  const std::vector<pid_t> pids = driver.pids(3);
  ::kill(driver.pid, SIGKILL);
  CHECK(driver.wait() == -SIGKILL);
  CHECK(eventually([&] { return all_dead(pids); }, 5));
  for (const pid_t pid : pids) ::kill(pid, SIGKILL);
}

TEST_CASE("what a worker leaves behind is killed at the end: in its group, and in a session of its own") {
  Driver driver("nproc=1",
                "sleep 100 & echo $! > ready.0; setsid sh -c 'echo $$ > ready.1; exec sleep 100' & "
                "while [ ! -s ready.1 ]; do sleep 0.01; done");
  REQUIRE(driver.wait() == 0);
  CHECK(all_dead(driver.pids(2)));
}

TEST_CASE("what a worker left in a session of its own may write without end") {
  Driver driver("nproc=1",
                "setsid sh -c 'echo $$ > tmp; mv tmp ready.0; exec yes' & "
                "while [ ! -e ready.0 ]; do sleep 0.01; done");
  REQUIRE(driver.wait(20) == 0);
  CHECK(all_dead(driver.pids(1)));
}

TEST_CASE("a process out of the agent's reach that writes to a worker's output does not hold it up") {
  // The driver's parent, this test, opens the pipe by its number in /proc: no descendant of the agent writes.
  Driver driver("nproc=1", kReady + "while [ ! -e go ]; do sleep 0.01; done");
  REQUIRE(driver.ready(1));
  const int pipe = ::open(fmt::format("/proc/{}/fd/1", driver.pids(1)[0]).c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(pipe >= 0);
  const pid_t writer = ::fork();
  if (writer == 0) {
    ::signal(SIGPIPE, SIG_DFL);
    const std::string line(1000, 'x');
    for (;;) static_cast<void>(!::write(pipe, line.data(), line.size()));
  }
  ::close(pipe);
  std::ofstream(driver.dir.path / "go");
  CHECK(driver.wait(20) == 0);
  ::kill(writer, SIGKILL);
  ::waitpid(writer, nullptr, 0);
}

TEST_CASE("lines of many workers never tear, though each is written in pieces") {
  Driver driver("nproc=8",
                "for i in $(seq 200); do printf 'begin %s ' $RANK; printf '%s middle ' $i; echo end; done");
  REQUIRE(driver.wait() == 0);
  std::multiset<std::string> lines, expected;
  std::istringstream in(driver.out());
  for (std::string line; std::getline(in, line);) lines.insert(line);
  for (int rank = 0; rank < 8; ++rank) {
    for (int i = 1; i <= 200; ++i) {
      expected.insert(fmt::format("[0:{}] begin {} {} middle end", rank, rank, i));
    }
  }
  CHECK(lines.size() == expected.size());
  CHECK((lines == expected));
}

TEST_CASE("fifty workers run and end") {
  Driver driver("nproc=50", "echo $RANK; [ $WORLD_SIZE = 50 ]");
  REQUIRE(driver.wait() == 0);
  CHECK(driver.file("logs/attempt_0/49/stdout.log") == "49\n");
}

TEST_CASE("a flood of output on both streams passes whole") {
  Driver driver("nproc=2",
                "yes 0123456789012345678901234567890123456789012345678 | head -n 500000 >&2 & "
                "yes 0123456789012345678901234567890123456789012345678 | head -n 500000; wait");
  REQUIRE(driver.wait() == 0);
  CHECK(fs::file_size(driver.dir.path / "logs/attempt_0/0/stdout.log") == 25'000'000);
  CHECK(fs::file_size(driver.dir.path / "logs/attempt_0/1/stderr.log") == 25'000'000);
  CHECK(fs::file_size(driver.dir.path / "out") == 2 * 500'000 * 56);
  CHECK(fs::file_size(driver.dir.path / "err") == 2 * 500'000 * 56);
}

TEST_CASE("a line of a megabyte stays one line") {
  Driver driver("nproc=2", "head -c 1000000 /dev/zero | tr '\\0' x; echo");
  REQUIRE(driver.wait() == 0);
  std::istringstream in(driver.out());
  for (std::string line; std::getline(in, line);) CHECK(line.size() == 1'000'006);
}

TEST_CASE(
    "a console's reader that stalls holds up neither workers nor their logs, and is told what it missed") {
  TemporaryDirectory dir;
  const std::string fifo = (dir.path / "fifo").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const trainer::Descriptor reader(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  Driver driver("nproc=2",
                "yes 0123456789012345678901234567890123456789012345678 | head -n 200000; " + kReady +
                    "while [ ! -e go ]; do sleep 0.01; done; echo the end",
                fifo);
  REQUIRE(driver.ready(2));  // they have written all
  for (const char* rank : {"0", "1"}) {
    const fs::path log = driver.dir.path / "logs/attempt_0" / rank / "stdout.log";
    CHECK(eventually([&] { return fs::file_size(log) == 10'000'000; }));
  }
  std::string text;
  const auto read_until = [&](const std::string& words) {
    std::array<char, 65536> buffer;
    return eventually([&] {
      for (ssize_t n; (n = ::read(reader.get(), buffer.data(), buffer.size())) > 0;)
        text.append(buffer.data(), static_cast<size_t>(n));
      return text.find(words) != std::string::npos;
    });
  };
  REQUIRE(read_until(" lines are not shown here: nobody read on; the logs are in logs]\n"));
  CHECK(text.size() < 10'000'000);
  std::ofstream(driver.dir.path / "go");
  CHECK(read_until("the end\n"));
  CHECK(driver.wait() == 0);
}

TEST_CASE(
    "when nobody reads the output and no file takes it the workers wait, and the agent can still be "
    "stopped") {
  TemporaryDirectory dir;
  const std::string fifo = (dir.path / "fifo").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const trainer::Descriptor reader(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  Driver driver("log_to_files=0",
                "head -c 8000000 /dev/zero | tr '\\0' '\\n' | tee written & " + kReady + "wait; touch passed",
                fifo);
  REQUIRE(driver.ready(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(3000));  // longer than logged output would wait
  CHECK_FALSE(fs::exists(driver.dir.path / "passed"));
  CHECK(fs::file_size(driver.dir.path / "written") < 6'000'000);
  ::kill(driver.pid, SIGTERM);
  CHECK(driver.wait() == 128 + SIGTERM);
}

TEST_CASE("when nobody reads one stream of a job that fails, the other has the cause, and the end comes") {
  TemporaryDirectory dir;
  const std::string fifo = (dir.path / "fifo").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  Driver driver("nproc=2", kReady + "if [ $RANK = 0 ]; then exec yes; fi; sleep 0.5; exit 9", fifo);
  CHECK(driver.wait() == 9);
  CHECK_THAT(driver.err(), Contains("FAILED  node 0 rank 1 (pid "));
}

TEST_CASE("a port that is taken is named") {
  const trainer::Descriptor taken = trainer::net::listen_on(0, true);
  const std::string port = std::to_string(trainer::net::port_of(taken));
  Driver driver("nproc=1 port=" + port, "true");
  REQUIRE(driver.wait() == 4);
  CHECK_THAT(
      driver.err(),
      StartsWith("FAILED  cannot meet the other nodes: launch.master_port: cannot listen on 127.0.0.1 port " +
                 port + ": Address already in use\n  hint: pid " + std::to_string(::getpid()) + " ("));
  CHECK_THAT(driver.err(), EndsWith(") holds it; choose another port, or 0 for a free one on one node\n"));
}

TEST_CASE("a program that cannot be run is named") {
  Driver driver("nproc=2", std::vector<std::string>{"./no-such-program"});
  REQUIRE(driver.wait() == 2);
  CHECK(driver.err() ==
        "FAILED  node 0, exit code 2\n  launch: cannot run ./no-such-program: No such file or directory\n");
}

TEST_CASE("a log directory that cannot be made is named") {
  Driver driver("nproc=1 log_dir=/proc/no-logs", "true");
  REQUIRE(driver.wait() == 2);
  CHECK_THAT(driver.err(), Contains("log directory: /proc/no-logs: cannot write in /proc: ") &&
                               Contains("\n  hint: choose another launch.log_dir\n"));
}

TEST_CASE("too few file descriptors are an error with a hint") {
  TemporaryDirectory dir;
  Driver driver("nproc=1",
                "ulimit -n 40; cd " + dir.path.string() + "; exec " AGENT_DRIVER " nproc=30 -- true");
  REQUIRE(driver.wait() == 2);
  CHECK_THAT(driver.err(),
             Contains("Too many open files") && Contains("hint: raise the limit of open files (ulimit -n)"));
}

TEST_CASE("workers that end while others are still being started are each counted once") {
  for (int i = 0; i < 20; ++i) {
    Driver driver("nproc=16", std::vector<std::string>{"/bin/true"});
    REQUIRE(driver.wait() == 0);
  }
}
