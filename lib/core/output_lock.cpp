#include "core/output_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace trainer {

OutputLock::OutputLock(const std::string& output) : path_(output + ".lock") {
  struct stat held {
  }, named{};
  do {  // again where its last holder has just removed it
    fd_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!fd_.is_open()) fail<DataError>("{}: cannot create: {}", path_, std::strerror(errno));
    if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) fail<DataError>("{}: cannot lock: {}", path_, std::strerror(errno));
      fail<SpecError>("--output: {} is in use by another prepare; expected another one, or to wait for it",
                      output);
    }
  } while (::fstat(fd_.get(), &held) != 0 || ::stat(path_.c_str(), &named) != 0 ||
           held.st_ino != named.st_ino);
}

OutputLock::~OutputLock() {
  if (fd_.is_open()) ::unlink(path_.c_str());
}

}  // namespace trainer
