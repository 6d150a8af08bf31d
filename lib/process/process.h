#pragma once

#include <csignal>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/descriptor.h"

namespace trainer::process {

// What a child has of its own, beyond its arguments and environment.
struct SpawnOptions {
  sigset_t signal_mask;
  int input = -1;                  // its standard input; -1: /dev/null
  std::vector<int> inherited_fds;  // it keeps them, under the same numbers; others close on exec, or should
  // Where it may run and which NUMA nodes it takes memory from while they have some; empty: as the caller.
  std::vector<int> cpus;
  std::vector<int> memory_nodes;
};

// A child that leads a session and process group of its own, and is killed when the thread
// that spawned it ends. The read ends of its output are non-blocking.
struct Process {
  pid_t pid = 0;
  Descriptor pidfd;
  Descriptor output;  // read ends of its standard output and error
  Descriptor error;
  // errno of the kernel refusing options.cpus or memory_nodes (seccomp, a cpuset that has shrunk): the child
  // runs all the same, unbound. 0: bound as asked.
  int binding_error = 0;
};

// Throws SpecError when the program can't be run.
Process spawn(const std::vector<std::string>& argv, const std::map<std::string, std::string>& env,
              const SpawnOptions& options);

// Readable when the process ends; closed when there is none.
Descriptor open_pidfd(pid_t pid);

}  // namespace trainer::process
