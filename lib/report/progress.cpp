#include "report/progress.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "core/error.h"

namespace trainer::report {
namespace {

constexpr size_t kPageBytes = 4096;

void* map(int fd) {
  const int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* memory = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) fail<SpecError>("launch: cannot map a page of memory: {}", std::strerror(errno));
  return memory;
}

}  // namespace

const char* to_string(Phase phase) {
  switch (phase) {
    case Phase::kStarting:
      return "starting";
    case Phase::kJoining:
      return "joining the other ranks";
    case Phase::kLoading:
      return "loading the model and the data";
    case Phase::kDataWait:
      return "waiting for data";
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kSync:
      return "waiting for the other ranks";
    case Phase::kOptimizer:
      return "optimizer";
    case Phase::kEvaluation:
      return "evaluation";
    case Phase::kCheckpoint:
      return "checkpoint";
    case Phase::kLog:
      return "log";
    case Phase::kFinishing:
      return "finishing";
  }
  return "?";
}

void Progress::Unmap::operator()(ProgressPage* page) const {
  ::munmap(page, kPageBytes);
}

Progress Progress::create() {
  Progress progress;
  progress.fd_ = Descriptor(::memfd_create("trainer-progress", MFD_CLOEXEC));
  if (!progress.fd_.is_open() || ::ftruncate(progress.fd_.get(), kPageBytes) != 0)
    fail<SpecError>("launch: cannot make shared memory: {}", std::strerror(errno));
  progress.page_.reset(new (map(progress.fd_.get())) ProgressPage);
  return progress;
}

Progress Progress::from_environment() {
  Progress progress;
  const char* text = std::getenv("TRAINER_PROGRESS_FD");
  int fd = -1;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), fd);
  if (fd >= 0 && ::lseek(fd, 0, SEEK_END) == static_cast<off_t>(kPageBytes)) {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    progress.fd_ = Descriptor(fd);
    progress.page_.reset(static_cast<ProgressPage*>(map(fd)));
    progress.page_->beat();
    progress.page_->attached = 1;
  } else {
    progress.page_.reset(new (map(-1)) ProgressPage);
  }
  ::unsetenv("TRAINER_PROGRESS_FD");
  return progress;
}

}  // namespace trainer::report
