#include "launch/console.h"

#include <fcntl.h>
#include <pty.h>
#include <termios.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "core/descriptor.h"
#include "core/error.h"
#include "core/file.h"
#include "launch/output.h"
#include "temporary_directory.h"

using namespace trainer::launch;
using trainer::Descriptor;

namespace {

struct Pipe {
  Descriptor read, write;
  Pipe() {
    int fds[2];
    REQUIRE(::pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0);
    read = Descriptor(fds[0]);
    write = Descriptor(fds[1]);
  }
};

// A raw terminal of 20 columns.
struct Terminal {
  Descriptor screen, tty;
  Terminal() {
    int screen_fd, tty_fd;
    termios mode{};
    ::cfmakeraw(&mode);
    const winsize size{24, 20, 0, 0};
    REQUIRE(::openpty(&screen_fd, &tty_fd, nullptr, &mode, &size) == 0);
    screen = Descriptor(screen_fd);
    tty = Descriptor(tty_fd);
    ::fcntl(screen_fd, F_SETFL, O_NONBLOCK);
    ::setenv("TERM", "xterm", 1);
  }
};

std::string read_all(const Descriptor& fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(fd.get(), buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  return text;
}

void write_text(const Descriptor& fd, std::string_view text) {
  REQUIRE(::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

}  // namespace

TEST_CASE("lines keep their order and go to their own stream") {
  Pipe out, err;
  Console console(out.write.get(), err.write.get());
  CHECK_FALSE(console.is_terminal());
  console.line(1, "[0] ", "a");
  console.line(2, "[1] ", "b");
  console.line(1, "", "c");
  console.status("not on a pipe");
  CHECK(console.flush());
  CHECK(read_all(out.read) == "[0] a\nc\n");
  CHECK(read_all(err.read) == "[1] b\n");
}

TEST_CASE("a slow reader blocks nothing and loses nothing") {
  Pipe out;
  Console console(out.write.get(), out.write.get());
  const std::string line(9999, 'x');
  for (int i = 0; i < 100; ++i) console.line(1, "", line);
  CHECK_FALSE(console.flush());
  CHECK(console.blocked_fd() == out.write.get());
  std::string text;
  for (int i = 0; i < 1000 && !console.flush(); ++i) text += read_all(out.read);
  text += read_all(out.read);
  CHECK(text.size() == 1'000'000);
}

TEST_CASE("finish waits for a reader no longer than it is told") {
  Pipe out;
  Console console(out.write.get(), out.write.get());
  console.line(1, "", std::string(1 << 20, 'x'));
  console.finish(10);
  CHECK_FALSE(console.flush());
}

TEST_CASE("the status line is drawn in place, erased for lines, redrawn below them and cut to the width") {
  Terminal terminal;
  Console console(terminal.tty.get(), terminal.tty.get());
  CHECK(console.is_terminal());
  CHECK(console.columns() == 20);
  console.status("step 1");
  console.flush();
  CHECK(read_all(terminal.screen) == "step 1\x1b[K");
  console.status("step 2");
  console.flush();
  CHECK(read_all(terminal.screen) == "\rstep 2\x1b[K");
  console.line(1, "", "line");
  console.line(2, "", "warning");
  console.flush();
  CHECK(read_all(terminal.screen) == "\r\x1b[Kline\nwarning\nstep 2\x1b[K");
  console.status("0123456789012345678901234");
  console.flush();
  CHECK(read_all(terminal.screen) == "\r0123456789012345678\x1b[K");
  console.finish(-1);
  CHECK(read_all(terminal.screen) == "\n");
}

TEST_CASE("an empty status removes the status line") {
  Terminal terminal;
  Console console(terminal.tty.get(), terminal.tty.get());
  console.status("step 1");
  console.flush();
  console.status("");
  console.finish(-1);
  CHECK(read_all(terminal.screen) == "step 1\x1b[K\r\x1b[K");
}

TEST_CASE("a dumb terminal has no status line") {
  Terminal terminal;
  ::setenv("TERM", "dumb", 1);
  CHECK_FALSE(Console(terminal.tty.get(), terminal.tty.get()).is_terminal());
}

TEST_CASE("columns are code points, and escape sequences take none") {
  CHECK(fit_columns("abc", 5) == "abc");
  CHECK(fit_columns("abc", 2) == "ab");
  CHECK(fit_columns("\u2588\u2588\u2588", 2) == "\u2588\u2588");
  CHECK(fit_columns("\x1b[31mab\x1b[0mc", 2) == "\x1b[31mab\x1b[0m");
  CHECK(fit_columns("a", 0).empty());
}

TEST_CASE("a line written in pieces is shown whole, and logged at once") {
  const TemporaryDirectory dir;
  Pipe worker, out;
  Console console(out.write.get(), out.write.get());
  WorkerOutput output(std::move(worker.read), 1, dir.path / "log", "[3] ", false);
  write_text(worker.write, "first\nsec");
  CHECK(output.pump(console, 1 << 20) == WorkerOutput::Pumped::kNothingNow);
  console.flush();
  CHECK(read_all(out.read) == "[3] first\n");
  CHECK(trainer::read_file(dir.path / "log") == "first\nsec");
  write_text(worker.write, "ond\n\nlast");
  output.pump(console, 1 << 20);
  worker.write.reset();
  CHECK(output.pump(console, 1 << 20) == WorkerOutput::Pumped::kEnd);
  output.flush_partial(console);
  console.flush();
  CHECK(read_all(out.read) == "[3] second\n[3] \n[3] last\n");
  CHECK(trainer::read_file(dir.path / "log") == "first\nsecond\n\nlast");
}

TEST_CASE("status lines are drawn for the worker that may, and never logged") {
  const TemporaryDirectory dir;
  Terminal terminal;
  Console console(terminal.tty.get(), terminal.tty.get());
  for (const bool shows : {true, false}) {
    Pipe worker;
    WorkerOutput output(std::move(worker.read), 1, dir.path / "log", "", shows);
    for (const char* text : {"a\n\rbar", " 1\nb\n", "\rbar 2\n\rbar 3\n", "c\r\n"}) {
      write_text(worker.write, text);
      output.pump(console, 1 << 20);
    }
    CHECK(trainer::read_file(dir.path / "log") == "a\nb\nc\r\n");
    console.flush();
    CHECK(read_all(terminal.screen) == (shows ? "a\nb\nc\r\nbar 3\x1b[K" : "\r\x1b[Ka\nb\nc\r\nbar 3\x1b[K"));
  }
}

TEST_CASE("standard error has no status lines") {
  const TemporaryDirectory dir;
  Pipe worker, out;
  Console console(out.write.get(), out.write.get());
  WorkerOutput output(std::move(worker.read), 2, dir.path / "log", "", true);
  write_text(worker.write, "\rtext\n");
  output.pump(console, 1 << 20);
  console.flush();
  CHECK(read_all(out.read) == "\rtext\n");
  CHECK(trainer::read_file(dir.path / "log") == "\rtext\n");
}

TEST_CASE("a log that cannot be written is named") {
  Pipe worker;
  CHECK_THROWS_MATCHES(
      WorkerOutput(std::move(worker.read), 1, "/no/such/log", "", false), trainer::SpecError,
      Catch::Matchers::Message("launch: cannot write the log /no/such/log: No such file or directory"));
}
