#include "launch/output.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/log.h"

namespace trainer::launch {
namespace {

constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kMaxLineBytes = 16 << 20;  // a longer line is shown in pieces, so that memory stays bounded

}  // namespace

WorkerOutput::WorkerOutput(Descriptor pipe, int fd, const std::filesystem::path& log, std::string prefix,
                           bool shows_status)
    : pipe_(std::move(pipe)),
      log_(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644)),
      fd_(fd),
      prefix_(std::move(prefix)),
      shows_status_(shows_status) {
  if (!log_.is_open())
    fail<SpecError>("launch: cannot write the log {}: {}", log.string(), std::strerror(errno));
}

WorkerOutput::Pumped WorkerOutput::pump(Console& console, size_t max_bytes) {
  if (!pipe_.is_open()) return Pumped::kEnd;
  std::array<char, kReadBytes> buffer;
  for (size_t total = 0; total < max_bytes;) {
    const ssize_t n = ::read(pipe_.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return Pumped::kNothingNow;
    if (n <= 0) return Pumped::kEnd;
    total += static_cast<size_t>(n);
    take({buffer.data(), static_cast<size_t>(n)}, console);
  }
  return Pumped::kMore;
}

void WorkerOutput::take(std::string_view bytes, Console& console) {
  size_t logged = 0;  // bytes[0, logged) are in the log or are status lines
  for (size_t begin = 0; begin < bytes.size();) {
    if (partial_.empty() && fd_ == 1 && bytes[begin] == kStatusMark && !in_status_) {
      in_status_ = true;
      write_log(bytes.substr(logged, begin - logged), console);
      logged = begin;
    }
    const size_t newline = bytes.find('\n', begin);
    const size_t end = newline == std::string_view::npos ? bytes.size() : newline;
    const std::string_view piece = bytes.substr(begin, end - begin);
    if (in_status_) logged = std::min(end + 1, bytes.size());
    if (newline == std::string_view::npos) {
      partial_ += piece;
      if (partial_.size() > kMaxLineBytes) flush_partial(console);
    } else if (partial_.empty()) {
      show(piece, console);
    } else {
      partial_ += piece;
      show(partial_, console);
      partial_.clear();
    }
    begin = end + 1;
  }
  write_log(bytes.substr(std::min(logged, bytes.size())), console);
}

void WorkerOutput::show(std::string_view line, Console& console) {
  if (!in_status_) {
    console.line(fd_, prefix_, line);
  } else if (shows_status_) {
    console.status(line.substr(1));
  }
  in_status_ = false;
}

void WorkerOutput::flush_partial(Console& console) {
  if (partial_.empty()) return;
  show(partial_, console);
  partial_.clear();
}

void WorkerOutput::write_log(std::string_view bytes, Console& console) {
  if (!log_.is_open() || write_all(log_.get(), bytes)) return;
  console.line(2, prefix_,
               fmt::format("warning: {} is no longer logged: {}",
                           fd_ == 1 ? "standard output" : "standard error", std::strerror(errno)));
  log_.reset();
}

}  // namespace trainer::launch
