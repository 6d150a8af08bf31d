#include "launch/output/console.h"

#include <fcntl.h>
#include <pty.h>
#include <termios.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "core/descriptor.h"
#include "core/error.h"
#include "core/file.h"
#include "launch/output/output.h"
#include "pipe.h"
#include "temporary_directory.h"

using namespace trainer::launch;
using trainer::Descriptor;

namespace {

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
  CHECK(console.blocked_fds()[1] == out.write.get());
  std::string text;
  for (int i = 0; i < 1000 && !console.flush(); ++i) text += read_all(out.read);
  text += read_all(out.read);
  CHECK(text.size() == 1'000'000);
}

TEST_CASE("a reader that stalls misses logged lines only, once enough is kept for it, and is told how many") {
  Pipe out, err;
  Console console(out.write.get(), err.write.get(), "the/logs");
  const std::string line(9999, 'x');
  const auto write_lines = [&](int n) {
    for (int i = 0; i < n; ++i) console.line(1, "", line, true);
  };
  write_lines(400);
  console.flush();
  console.begin_patience();
  console.end_patience();
  CHECK_FALSE(console.is_full(false));  // there is room
  write_lines(100);
  console.flush();
  CHECK(console.is_full(true));
  console.begin_patience();
  size_t read = 0;
  const auto read_on = [&] {
    const std::string text = read_all(out.read);
    read += text.size();
    console.flush();
    return text;
  };
  read_on();
  read_on();
  console.end_patience();
  CHECK(console.is_full(true));  // it reads
  console.begin_patience();
  console.end_patience();
  CHECK_FALSE(console.is_full(true));
  CHECK(console.is_full(false));  // who has no log still waits
  CHECK(console.has_shown_all());
  write_lines(7);
  CHECK_FALSE(console.has_shown_all());
  console.line(1, "", "from nowhere else");
  console.line(2, "", "another stream", true);
  console.flush();
  CHECK(read_all(err.read) == "another stream\n");
  std::string last;
  for (int i = 0; i < 1000 && console.blocked_fds()[0] >= 0; ++i) last += read_on();
  last += read_on();
  CHECK_THAT(
      last,
      Catch::Matchers::EndsWith(
          "x\nfrom nowhere else\n[7 lines are not shown here: nobody read on; the logs are in the/logs]\n"));
  CHECK(read == 5'000'000 + 18 + 71);
  CHECK_FALSE(console.is_full(false));
  console.line(1, "", "again", true);
  console.flush();
  CHECK(read_all(out.read) == "again\n");
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
  WorkerOutput output(std::move(worker.read), {.log = dir.path / "log", .prefix = "[3] "});
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
    WorkerOutput output(std::move(worker.read),
                        {.log = dir.path / "log", .has_status = true, .shows_status = shows});
    for (const char* text : {"a\n\rbar", " 1\nb\n", "\rbar 2\n\rbar 3\n", "c\r\n"}) {
      write_text(worker.write, text);
      output.pump(console, 1 << 20);
    }
    CHECK(trainer::read_file(dir.path / "log") == "a\nb\nc\r\n");
    console.flush();
    CHECK(read_all(terminal.screen) == (shows ? "a\nb\nc\r\nbar 3\x1b[K" : "\r\x1b[Ka\nb\nc\r\nbar 3\x1b[K"));
  }
}

TEST_CASE("the newest lines of standard error are kept, also where no file takes them") {
  Pipe worker, out;
  Console console(out.write.get(), out.write.get());
  WorkerOutput output(std::move(worker.read), {.fd = 2, .shows_lines = false});
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "line " + std::to_string(i) + "\n";
  write_text(worker.write, text + "the end");
  output.pump(console, 1 << 20);
  output.flush_partial(console);
  const std::vector<std::string> lines = output.last_lines();
  REQUIRE(lines.size() == 20);
  CHECK(lines.front() == "line 981");
  CHECK(lines.back() == "the end");
}

TEST_CASE("a stream that may have no status lines passes as it stands") {
  const TemporaryDirectory dir;
  Pipe worker, out;
  Console console(out.write.get(), out.write.get());
  WorkerOutput output(std::move(worker.read), {.fd = 2, .log = dir.path / "log", .shows_status = true});
  write_text(worker.write, "\rtext\n");
  output.pump(console, 1 << 20);
  console.flush();
  CHECK(read_all(out.read) == "\rtext\n");
  CHECK(trainer::read_file(dir.path / "log") == "\rtext\n");
}

TEST_CASE("a log that cannot be written is named") {
  Pipe worker;
  CHECK_THROWS_MATCHES(
      WorkerOutput(std::move(worker.read), {.log = "/no/such/log"}), trainer::SpecError,
      Catch::Matchers::Message("launch: cannot write the log /no/such/log: No such file or directory"));
}

TEST_CASE("what another program draws over is the status, and only its end is a line") {
  Terminal terminal;
  Console console(terminal.tty.get(), terminal.tty.get());
  Pipe worker;
  WorkerOutput output(std::move(worker.read), {.fd = 2, .prefix = "[0:0] ", .shows_status = true});
  const auto shown = [&](const char* text) {
    write_text(worker.write, text);
    output.pump(console, 1 << 20);
    console.flush();
    return read_all(terminal.screen);
  };
  CHECK(shown("\r 1%") == "[0:0]  1%\x1b[K");
  CHECK(shown("\r 2%\r 3%") == "\r[0:0]  3%\x1b[K");
  CHECK(shown("\r100%\nnext\n") == "\r\x1b[K[0:0] 100%\n[0:0] next\n\x1b[K");
  CHECK(shown("a\r") == "[0:0] a\x1b[K");  // as others draw
  CHECK(shown("b\r") == "\r[0:0] b\x1b[K");
}

TEST_CASE("lines that the console does not show are logged, and filtered lines are logged twice") {
  const TemporaryDirectory dir;
  Pipe first, second, out;
  Console console(out.write.get(), out.write.get());
  OutputOptions options{.log = dir.path / "0", .prefix = "[0:0] ", .shows_lines = false};
  options.filters = {"apple", "fig"};
  options.filtered_log = dir.path / "filtered";
  WorkerOutput hidden(std::move(first.read), options);
  options.log = dir.path / "1";
  options.prefix = "[0:1] ";
  options.shows_lines = true;
  WorkerOutput shown(std::move(second.read), options);
  write_text(first.write, "an apple\na pear\n");
  hidden.pump(console, 1 << 20);
  write_text(second.write, "a fig\na plum\n");
  shown.pump(console, 1 << 20);
  console.flush();
  CHECK(read_all(out.read) == "[0:1] a fig\n[0:1] a plum\n");
  CHECK(trainer::read_file(dir.path / "0") == "an apple\na pear\n");
  CHECK(trainer::read_file(dir.path / "1") == "a fig\na plum\n");
  CHECK(trainer::read_file(dir.path / "filtered") == "[0:0] an apple\n[0:1] a fig\n");
}

TEST_CASE("a filtered log that cannot be written is named") {
  Pipe worker;
  OutputOptions options;
  options.filters = {"a"};
  options.filtered_log = "/no/such/log";
  CHECK_THROWS_MATCHES(
      WorkerOutput(std::move(worker.read), options), trainer::SpecError,
      Catch::Matchers::Message("launch: cannot write the log /no/such/log: No such file or directory"));
}

TEST_CASE("the plan says what of a worker's output goes where") {
  WorkerPlan plan;
  plan.log_dir = "logs";
  plan.nproc = 3;
  plan.file_only = {0, 1, 3};
  plan.files = {3, 3, 2};
  plan.shown_ranks = {0, 1};
  plan.log_max_bytes = 7;
  plan.stderr_filters = {"x"};
  const Assignment assignment{.world_size = 3};
  const auto options = [&](int64_t rank, int fd) { return output_options(plan, assignment, rank, fd); };
  CHECK(options(0, 1).log == "logs/attempt_0/0/stdout.log");
  CHECK(options(0, 2).log == "logs/attempt_0/0/stderr.log");
  CHECK(options(2, 1).log.empty());
  CHECK(options(0, 1).log_max_bytes == 7);
  CHECK(options(1, 2).prefix == "[0:1] ");
  CHECK(options(0, 1).shows_lines);
  CHECK_FALSE(options(1, 1).shows_lines);  // to the file only
  CHECK(options(1, 2).shows_lines);
  CHECK_FALSE(options(2, 2).shows_lines);
  CHECK(options(0, 1).has_status);
  CHECK_FALSE(options(0, 2).has_status);
  CHECK(options(0, 1).shows_status);
  CHECK_FALSE(options(1, 2).shows_status);
  CHECK(options(0, 1).filters.empty());
  CHECK(options(0, 2).filtered_log == "logs/attempt_0/filtered_stderr.log");
  plan.shown_ranks = {1};
  CHECK_FALSE(options(0, 1).shows_lines);
  plan.is_trainer = false;
  CHECK_FALSE(options(0, 1).has_status);
  plan.log_to_files = false;
  CHECK(options(0, 1).log.empty());
}
