#include "launch/output/console.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <utility>

namespace trainer::launch {
namespace {

constexpr size_t kFullBytes = 4 << 20;
constexpr size_t kAliveBytes = 64 << 10;  // a reader that takes less in the time of patience has stalled
constexpr size_t kChunkBytes = 64 << 10;  // about; what is left of one is moved for each write

bool is_writable(int fd) {
  pollfd poll_fd{fd, POLLOUT, 0};
  return ::poll(&poll_fd, 1, 0) > 0;
}

}  // namespace

Console::Console(int output, int error, std::string logs)
    : streams_{{{output}, {error}}}, logs_(std::move(logs)) {
  const char* term = std::getenv("TERM");
  terminal_ = ::isatty(output) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

int64_t Console::columns() const {
  winsize size{};
  return ::ioctl(output(), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void Console::put(int fd, std::string_view bytes) {
  if (pending_.empty() || pending_.back().fd != fd || pending_.back().bytes.size() > kChunkBytes)
    pending_.push_back({fd, {}});
  pending_.back().bytes += bytes;
  stream_of(fd).waiting += bytes.size();
}

void Console::erase_status() {
  if (!drawn_) return;
  put(output(), "\r\x1b[K");
  drawn_ = false;
  changed_ = true;
}

void Console::line(int fd, std::string_view prefix, std::string_view text, bool is_logged) {
  const int target = streams_[fd == 1 ? 0 : 1].fd;
  if (Stream& stream = stream_of(target); is_logged && stream.has_stalled) {
    ++stream.not_shown;
    shown_all_ = false;
    return;
  }
  erase_status();
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
    if (drawn_) put(output(), "\r");
    // One column is left free: some terminals wrap when the last is written.
    put(output(), fit_columns(status_, columns() - 1));
    put(output(), "\x1b[K");  // what is left of a longer one
    drawn_ = !status_.empty();
  }
  return write_pending();
}

std::array<int, 2> Console::blocked_fds() const {
  std::array<int, 2> fds{-1, -1};
  for (size_t i = 0; i < 2; ++i) {
    if (streams_[i].waiting > 0) fds[i] = streams_[i].fd;
  }
  return fds;
}

bool Console::is_full(bool is_logged) const {
  return std::any_of(streams_.begin(), streams_.end(), [&](const Stream& stream) {
    return stream.waiting >= kFullBytes && !(is_logged && stream.has_stalled);
  });
}

void Console::begin_patience() {
  for (Stream& stream : streams_) stream.taken = 0;
}

void Console::end_patience() {
  for (Stream& stream : streams_) {
    if (stream.waiting >= kFullBytes && stream.taken < kAliveBytes) stream.has_stalled = true;
  }
}

// Where a reader that had stalled has read what was kept for it.
bool Console::tell_not_shown() {
  bool told = false;
  for (size_t i = 0; i < 2; ++i) {
    Stream& stream = streams_[i];
    if (!stream.has_stalled || stream.waiting > 0) continue;
    stream.has_stalled = false;
    const int64_t lines = std::exchange(stream.not_shown, 0);
    if (lines == 0) continue;
    line(i == 0 ? 1 : 2, "",
         fmt::format("[{} line{} not shown here: nobody read on; the logs are in {}]", lines,
                     lines == 1 ? " is" : "s are", logs_));
    told = true;
  }
  return told;
}

// A stream whose reader is behind does not hold up the other: a job's last words may be for a healthy file.
bool Console::write_pending() {
  bool behind[2] = {false, false};  // standard output, error
  for (Chunk& chunk : pending_) {
    Stream& stream = stream_of(chunk.fd);
    bool& is_behind = behind[&stream - streams_.data()];
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
    stream.waiting -= written;
    stream.taken += written;
    is_behind = !chunk.bytes.empty();
  }
  std::erase_if(pending_, [](const Chunk& chunk) { return chunk.bytes.empty(); });
  return tell_not_shown() ? write_pending() : pending_.empty();
}

void Console::finish(int timeout_ms) {
  flush();
  if (!status_.empty() && terminal_) put(output(), "\n");
  while (!write_pending()) {
    const auto [out, err] = blocked_fds();
    std::array<pollfd, 2> wait{{{out, POLLOUT, 0}, {err, POLLOUT, 0}}};  // -1 is passed over
    if (::poll(wait.data(), wait.size(), timeout_ms) <= 0) return;
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
