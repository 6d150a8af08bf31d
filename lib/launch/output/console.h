#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainer::launch {

// The agent's standard output and error: whole lines of many workers, and on a terminal one status line (the
// progress bar) below them. Writing never blocks: what a slow reader does not take is kept, in order, for the
// next flush.
class Console {
 public:
  explicit Console(int output = 1, int error = 2);
  bool is_terminal() const { return terminal_; }
  int64_t columns() const;

  // `text` without its newline. fd: 1 or 2, as the worker wrote it.
  void line(int fd, std::string_view prefix, std::string_view text);
  // Replaces the status line; empty removes it. Nothing off a terminal.
  void status(std::string_view text);

  // Writes what can be written now, the status line redrawn last. False: wait until blocked_fd() is writable.
  bool flush();
  int blocked_fd() const { return pending_.front().fd; }
  // Leaves the last status on the screen and writes everything that the reader takes within `timeout_ms` (-1:
  // for ever).
  void finish(int timeout_ms);

 private:
  struct Chunk {
    int fd;
    std::string bytes;
  };
  void put(int fd, std::string_view bytes);
  void erase_status();
  bool write_pending();

  int output_, error_;
  bool terminal_;
  bool drawn_ = false;    // the status line is on the screen (or pending)
  bool changed_ = false;  // status_ differs from what is drawn
  std::string status_;
  std::vector<Chunk> pending_;
};

// The first `columns` columns of UTF-8 text; escape sequences take none.
std::string_view fit_columns(std::string_view text, int64_t columns);

}  // namespace trainer::launch
