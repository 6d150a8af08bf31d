#include "core/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/sync.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

Descriptor open_file(const fs::path& path, int flags) {
  return Descriptor(::open(path.c_str(), flags | O_CLOEXEC, 0644));
}

void sync_path(const fs::path& path, int flags) {
  const Descriptor fd = open_file(path, flags);
  if (!fd.is_open() || ::fsync(fd.get()) != 0) {
    fail<CheckpointError>("{}: cannot flush to disk: {}", path.string(), std::strerror(errno));
  }
}

size_t open_size(const Descriptor& fd, const fs::path& path) {
  struct stat info {};
  if (!fd.is_open() && (errno == ENOENT || errno == ENOTDIR)) {
    fail<SpecError>("{}: cannot open: {}", path.string(), std::strerror(errno));
  }
  if (!fd.is_open() || ::fstat(fd.get(), &info) != 0) {
    fail<DataError>("{}: cannot open: {}", path.string(), std::strerror(errno));
  }
  if (S_ISDIR(info.st_mode)) fail<DataError>("{}: is a directory, expected a file", path.string());
  return static_cast<size_t>(info.st_size);
}

}  // namespace

void sync_file(const fs::path& path) {
  sync_path(path, O_RDONLY);
}

void sync_directory(const fs::path& path) {
  sync_path(path, O_RDONLY | O_DIRECTORY);
}

std::string read_file(const fs::path& path) {
  const Descriptor fd = open_file(path, O_RDONLY);
  std::string contents(open_size(fd, path), '\0');
  size_t done = 0;
  for (;;) {
    if (done == contents.size()) contents.resize(done + 4096);  // pipes and /proc report no size
    const ssize_t n = ::read(fd.get(), contents.data() + done, contents.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail<DataError>("{}: cannot read: {}", path.string(), std::strerror(errno));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  contents.resize(done);
  return contents;
}

void write_file_atomic(const fs::path& path, std::string_view contents) {
  const fs::path temporary = path.string() + fmt::format(".tmp{}", ::getpid());
  {
    const Descriptor fd = open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    if (!fd.is_open())
      fail<CheckpointError>("{}: cannot create: {}", temporary.string(), std::strerror(errno));
    if (!write_all(fd.get(), contents)) {
      const int error = errno;
      ::unlink(temporary.c_str());
      fail<CheckpointError>("{}: cannot write: {}", path.string(), std::strerror(error));
    }
    if (::fsync(fd.get()) != 0) {
      fail<CheckpointError>("{}: cannot flush to disk: {}", path.string(), std::strerror(errno));
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    fail<CheckpointError>("{}: cannot rename into place: {}", path.string(), std::strerror(errno));
  }
}

void replace_directory(const fs::path& source, const fs::path& target) {
  for (const auto& entry : fs::recursive_directory_iterator(source)) {
    entry.is_directory() ? sync_directory(entry.path()) : sync_file(entry.path());
  }
  sync_directory(source);
  const fs::path old = target.string() + ".old";
  std::error_code error;
  fs::remove_all(old, error);
  if (fs::exists(target)) fs::rename(target, old, error);
  if (!error) fs::rename(source, target, error);
  if (error) fail<CheckpointError>("{}: cannot put into place: {}", target.string(), error.message());
  fs::remove_all(old, error);
  sync_directory(target.has_parent_path() ? target.parent_path() : fs::path("."));
}

MappedFile::MappedFile(const fs::path& path) {
  const Descriptor fd = open_file(path, O_RDONLY);
  size_ = open_size(fd, path);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) fail<DataError>("{}: cannot map: {}", path.string(), std::strerror(errno));
  data_ = static_cast<const char*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

DirectoryLock::DirectoryLock(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  const fs::path path = directory / ".lock";
  fd_ = open_file(path, O_RDWR | O_CREAT);
  if (!fd_.is_open()) {
    fail<SpecError>("{}: cannot write here: {}", directory.string(), std::strerror(errno));
  }
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) return;
  if (errno == EWOULDBLOCK) {
    fail<SpecError>("{}: is in use by another run; hint: give this one another job.output_dir",
                    directory.string());
  }
  fail<SpecError>("{}: cannot lock: {}", path.string(), std::strerror(errno));
}

}  // namespace trainer
