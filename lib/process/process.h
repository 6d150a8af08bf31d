#pragma once

#include <csignal>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/descriptor.h"

namespace trainer::process {

// A child that leads a session and process group of its own, reads /dev/null, and is killed when the thread
// that spawned it ends. The read ends of its output are non-blocking.
struct Process {
  pid_t pid = 0;
  Descriptor pidfd;
  Descriptor output;  // read ends of its standard output and error
  Descriptor error;
};

// `signal_mask`: the child's. `inherited_fd`: one descriptor that the child keeps; -1: none. Of the caller's
// others it sees only those without close-on-exec. Throws SpecError when the program can't be run.
Process spawn(const std::vector<std::string>& argv, const std::map<std::string, std::string>& env,
              const sigset_t& signal_mask, int inherited_fd);

// Readable when the process ends; closed when there is none.
Descriptor open_pidfd(pid_t pid);

}  // namespace trainer::process
