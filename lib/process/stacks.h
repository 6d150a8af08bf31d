#pragma once

#include <sys/types.h>

#include <string>

namespace trainer::process {

// The native stacks of all threads of a process, for people: what a rank that hangs is doing. Threads with equal stacks
// are told once ("12 threads: ..."); at most 40 frames of each. The process is stopped for the moment of the look and left
// as it was found, running or stopped. A thread that the kernel does not stop in time (uninterruptible sleep) is told with
// what it waits for there. Needs no privilege for this process's own descendants.
//
// Takes up to `timeout_s` (about half a second for a process with LibTorch, most of it for names), so call it on a thread that may wait. Never throws: where
// there are no stacks the text says why (no such process, not allowed, no libdw on this machine).
std::string stacks_of(pid_t pid, double timeout_s);

// 'R' runs, 'S' sleeps, 'D' sleeps uninterruptibly, 'T' was stopped by a signal, 'Z' ended, ... of proc(5); '?': there is no
// such process.
char state_of(pid_t pid);

}  // namespace trainer::process
