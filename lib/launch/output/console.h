#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainer::launch {

// The agent's standard output and error: whole lines of many workers, and on a terminal one status line (the
// progress bar) below them. Writing never blocks: what a slow reader does not take is kept, in order, for the
// next flush. Once some MiB are kept the stream is full, and who writes should wait. A reader that then reads next to
// nothing has stalled: until it is back, lines that are in a log too are only counted.
class Console {
 public:
  // `logs`: where what is not shown can be read, for people.
  explicit Console(int output = 1, int error = 2, std::string logs = "");
  bool is_terminal() const { return terminal_; }
  int64_t columns() const;

  // `text` without its newline. fd: 1 or 2, as the worker wrote it.
  void line(int fd, std::string_view prefix, std::string_view text, bool is_logged = false);
  // Replaces the status line; empty removes it. Nothing off a terminal.
  void status(std::string_view text);

  // Writes what can be written now, the status line redrawn last. False: wait until one of blocked_fds() is writable.
  bool flush();
  std::array<int, 2> blocked_fds() const;  // -1: none

  // Whether who writes lines should wait. Those that are logged need not for a reader that has stalled.
  bool is_full(bool is_logged) const;
  // While it is full: what a reader takes between the two calls tells whether it has stalled.
  void begin_patience();
  void end_patience();
  // Whether the reader got every line so far.
  bool has_shown_all() const { return shown_all_; }

  // Leaves the last status on the screen and writes everything that the reader takes within `timeout_ms` (-1:
  // for ever).
  void finish(int timeout_ms);

 private:
  struct Chunk {
    int fd;
    std::string bytes;
  };
  // Standard output or error.
  struct Stream {
    int fd;
    size_t waiting = 0;  // bytes that are pending
    size_t taken = 0;    // since begin_patience()
    bool has_stalled = false;
    int64_t not_shown = 0;  // lines
  };
  Stream& stream_of(int fd) { return streams_[fd == streams_[1].fd ? 1 : 0]; }
  int output() const { return streams_[0].fd; }
  void put(int fd, std::string_view bytes);
  bool tell_not_shown();
  void erase_status();
  bool write_pending();

  std::array<Stream, 2> streams_;
  std::string logs_;
  bool terminal_;
  bool shown_all_ = true;
  bool drawn_ = false;    // the status line is on the screen (or pending)
  bool changed_ = false;  // status_ differs from what is drawn
  std::string status_;
  std::vector<Chunk> pending_;
};

// The first `columns` columns of UTF-8 text; escape sequences take none.
std::string_view fit_columns(std::string_view text, int64_t columns);

}  // namespace trainer::launch
