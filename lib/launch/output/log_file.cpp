#include "launch/output/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/format.h"

namespace trainer::launch {
namespace {

Descriptor create(const std::filesystem::path& path) {
  return Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
}

}  // namespace

LogFile::LogFile(std::filesystem::path path, int64_t max_bytes)
    : path_(std::move(path)), file_(create(path_)), max_bytes_(max_bytes) {
  if (!file_.is_open())
    fail<SpecError>("launch: cannot write the log {}: {}", path_.string(), std::strerror(errno));
  ::unlink((path_.string() + ".1").c_str());  // an earlier run's
}

std::string LogFile::write(std::string_view bytes) {
  if (!file_.is_open() || bytes.empty()) return "";
  if (max_bytes_ > 0 && size_ > 0 && size_ + static_cast<int64_t>(bytes.size()) > max_bytes_) {
    const size_t newline = bytes.find('\n');
    // A line without an end is cut rather than let the file grow without one.
    const size_t rest = newline != std::string_view::npos ? newline + 1
                        : size_ < 2 * max_bytes_          ? bytes.size()
                                                          : 0;
    append(bytes.substr(0, rest));
    bytes.remove_prefix(rest);
    if (newline != std::string_view::npos || rest == 0) rotate();
  }
  if (missing_ > 0) {
    const int64_t missing = missing_;
    if (!append(fmt::format("\n[{} are missing here: the disk was full]\n", binary_bytes(missing)))) {
      missing_ += static_cast<int64_t>(bytes.size());
      return "";
    }
    missing_ = 0;
    append(bytes);
    return fmt::format("is logged again; {} are missing", binary_bytes(missing));
  }
  if (append(bytes)) return "";
  missing_ = static_cast<int64_t>(bytes.size());
  return fmt::format("is no longer logged: {}: {}", path_.string(), std::strerror(errno));
}

bool LogFile::append(std::string_view bytes) {
  if (!write_all(file_.get(), bytes)) return false;
  size_ += static_cast<int64_t>(bytes.size());
  return true;
}

void LogFile::rotate() {
  if (::rename(path_.c_str(), (path_.string() + ".1").c_str()) != 0) return;
  Descriptor next = create(path_);
  if (!next.is_open()) return;  // the renamed file goes on
  file_ = std::move(next);
  size_ = 0;
}

}  // namespace trainer::launch
