#include "core/log.h"

#include <unistd.h>

#include <cerrno>
#include <string>

namespace trainer {

void write_line(int fd, std::string_view text) {
  std::string line(text);
  line += '\n';
  for (size_t done = 0; done < line.size();) {
    const ssize_t n = ::write(fd, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody listens any more; training goes on
    done += static_cast<size_t>(n);
  }
}

}  // namespace trainer
