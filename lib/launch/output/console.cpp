#include "launch/output/console.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>

namespace trainer::launch {
namespace {

bool is_writable(int fd) {
  pollfd poll_fd{fd, POLLOUT, 0};
  return ::poll(&poll_fd, 1, 0) > 0;
}

}  // namespace

Console::Console(int output, int error) : output_(output), error_(error) {
  const char* term = std::getenv("TERM");
  terminal_ = ::isatty(output) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

int64_t Console::columns() const {
  winsize size{};
  return ::ioctl(output_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void Console::put(int fd, std::string_view bytes) {
  if (pending_.empty() || pending_.back().fd != fd) pending_.push_back({fd, {}});
  pending_.back().bytes += bytes;
}

void Console::erase_status() {
  if (!drawn_) return;
  put(output_, "\r\x1b[K");
  drawn_ = false;
  changed_ = true;
}

void Console::line(int fd, std::string_view prefix, std::string_view text) {
  erase_status();
  const int target = fd == 1 ? output_ : error_;
  put(target, prefix);
  put(target, text);
  put(target, "\n");
}

void Console::status(std::string_view text) {
  if (!terminal_ || text == status_) return;
  status_ = text;
  changed_ = true;
}

bool Console::flush() {
  if (changed_ && write_pending()) {  // a slow terminal sees only the newest status
    changed_ = false;
    if (drawn_) put(output_, "\r");
    // One column is left free: some terminals wrap when the last is written.
    put(output_, fit_columns(status_, columns() - 1));
    put(output_, "\x1b[K");  // what is left of a longer one
    drawn_ = !status_.empty();
  }
  return write_pending();
}

// A stream whose reader is behind does not hold up the other: a job's last words may be for a healthy file.
bool Console::write_pending() {
  bool behind[2] = {false, false};  // standard output, error
  for (Chunk& chunk : pending_) {
    bool& is_behind = behind[chunk.fd == error_ ? 1 : 0];
    if (is_behind) continue;
    size_t written = 0;
    while (written < chunk.bytes.size() && is_writable(chunk.fd)) {
      // A pipe that polls as writable takes PIPE_BUF bytes without blocking.
      const ssize_t n = ::write(chunk.fd, chunk.bytes.data() + written,
                                std::min<size_t>(chunk.bytes.size() - written, PIPE_BUF));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) break;
      written = n < 0 ? chunk.bytes.size()
                      : written + static_cast<size_t>(n);  // the reader is gone: the job goes on
    }
    chunk.bytes.erase(0, written);
    is_behind = !chunk.bytes.empty();
  }
  std::erase_if(pending_, [](const Chunk& chunk) { return chunk.bytes.empty(); });
  return pending_.empty();
}

void Console::finish(int timeout_ms) {
  flush();
  if (!status_.empty() && terminal_) put(output_, "\n");
  while (!write_pending()) {
    pollfd wait{blocked_fd(), POLLOUT, 0};
    if (::poll(&wait, 1, timeout_ms) <= 0) return;
  }
}

std::string_view fit_columns(std::string_view text, int64_t columns) {
  size_t i = 0;
  while (i < text.size()) {
    if (text[i] == '\x1b') {  // ESC [ parameters letter
      ++i;
      if (i < text.size() && text[i] == '[') ++i;
      while (i < text.size() && (text[i] < '@' || text[i] > '~')) ++i;
      if (i < text.size()) ++i;
      continue;
    }
    if (columns-- <= 0) break;
    ++i;
    while (i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80)
      ++i;  // rest of the code point
  }
  return text.substr(0, i);
}

}  // namespace trainer::launch
