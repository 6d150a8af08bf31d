#include "launch/output/output.h"

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
constexpr size_t kLastLines = 20, kLastLineBytes = 2 << 10;
constexpr size_t kMaxLineBytes = 16 << 20;  // a longer line is shown in pieces, so that memory stays bounded

}  // namespace

OutputOptions output_options(const WorkerPlan& plan, const Assignment& assignment, int64_t local_rank,
                             int fd) {
  const auto i = static_cast<size_t>(local_rank);
  const auto has = [&](const std::vector<Streams>& streams, bool otherwise) {
    return i < streams.size() ? (streams[i] & fd) != 0 : otherwise;
  };
  const std::vector<int64_t>& shown = plan.shown_ranks;
  OutputOptions options;
  options.fd = fd;
  if (plan.log_to_files && has(plan.files, true))
    options.log = worker_log_dir(plan, assignment, local_rank) / (fd == 1 ? "stdout.log" : "stderr.log");
  options.log_max_bytes = plan.log_max_bytes;
  options.prefix = line_prefix(assignment, local_rank);
  options.shows_lines = !has(plan.file_only, false) &&
                        (shown.empty() || std::find(shown.begin(), shown.end(), local_rank) != shown.end());
  options.has_status = plan.is_trainer && fd == 1;
  options.shows_status = options.shows_lines && assignment.first_rank + local_rank == 0;
  options.filters = fd == 1 ? plan.stdout_filters : plan.stderr_filters;
  options.filtered_log = filtered_log(plan, assignment, fd);
  return options;
}

WorkerOutput::WorkerOutput(Descriptor pipe, OutputOptions options)
    : options_(std::move(options)), pipe_(std::move(pipe)) {
  if (!options_.log.empty()) log_ = LogFile(options_.log, options_.log_max_bytes);
  if (options_.filters.empty()) return;
  // Appended to: the other workers' lines are there too.
  filtered_ =
      Descriptor(::open(options_.filtered_log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!filtered_.is_open())
    fail<SpecError>("launch: cannot write the log {}: {}", options_.filtered_log.string(),
                    std::strerror(errno));
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
    if (options_.has_status && partial_.empty() && bytes[begin] == kStatusMark && !in_status_) {
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
  if (!options_.has_status && console.is_terminal()) show_redrawn(console);
}

// Programs draw progress bars by \r: on a terminal the last that stands there is the status, and what it replaced is
// gone.
void WorkerOutput::show_redrawn(Console& console) {
  const size_t last = partial_.rfind('\r');
  if (last == std::string::npos) return;
  const bool is_end = last + 1 == partial_.size();  // the line is about to be drawn over, or ended by \r\n
  const size_t before = is_end && last > 0 ? partial_.rfind('\r', last - 1) : last;
  if (before != std::string::npos) partial_.erase(0, is_end ? before + 1 : last);
  if (!options_.shows_status) return;
  std::string_view text = partial_;
  if (!text.empty() && text.front() == '\r') text.remove_prefix(1);
  if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  if (text.empty()) return;
  console.status(options_.prefix + std::string(text));
  redraws_ = true;
}

void WorkerOutput::show(std::string_view line, Console& console) {
  if (in_status_) {
    if (options_.shows_status) console.status(line.substr(1));
    in_status_ = false;
    return;
  }
  if (std::exchange(redraws_, false)) console.status("");
  if (!options_.has_status && console.is_terminal() && !line.empty()) {
    const size_t last = line.rfind('\r', line.size() - (line.size() > 1 && line.back() == '\r' ? 2 : 1));
    if (last != std::string_view::npos) line.remove_prefix(last + 1);
  }
  if (options_.fd == 2) {  // what fails says so there
    if (last_lines_.size() == kLastLines) last_lines_.pop_front();
    last_lines_.emplace_back(line.substr(0, kLastLineBytes));
  }
  if (options_.shows_lines) console.line(options_.fd, options_.prefix, line, is_logged());
  if (!filtered_.is_open()) return;
  const auto is_in = [&](const std::string& filter) { return line.find(filter) != std::string_view::npos; };
  if (!std::any_of(options_.filters.begin(), options_.filters.end(), is_in)) return;
  static_cast<void>(write_all(filtered_.get(), options_.prefix + std::string(line) + "\n"));
}

void WorkerOutput::flush_partial(Console& console) {
  if (partial_.empty()) return;
  show(partial_, console);
  partial_.clear();
}

void WorkerOutput::write_log(std::string_view bytes, Console& console) {
  const std::string news = log_.write(bytes);
  if (news.empty()) return;
  console.line(2, options_.prefix,
               fmt::format("warning: {} {}", options_.fd == 1 ? "standard output" : "standard error", news));
}

}  // namespace trainer::launch
