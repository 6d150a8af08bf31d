#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>

namespace trainer::hardware {

// What the control groups of this process allow: the tightest limit on the way from its group to the root.
struct CgroupLimits {
  double cpus = std::numeric_limits<double>::infinity();
  int64_t memory_bytes = std::numeric_limits<int64_t>::max();
  int64_t free_pids = std::numeric_limits<int64_t>::max();  // processes and threads that may still be started
  int64_t oom_kills = 0;  // processes of this group that the kernel killed for memory so far
};

// cgroup v2, v1 and both mixed. `root` is "/" but in tests. Never throws: what cannot be read limits nothing.
CgroupLimits read_cgroup_limits(const std::filesystem::path& root = "/");

}  // namespace trainer::hardware
