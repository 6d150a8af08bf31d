#include "hardware/cgroup.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace trainer::hardware {
namespace {

namespace fs = std::filesystem;

// The group and its ancestors, innermost first. Inside a container /proc/self/cgroup may name the host's
// path, which is not mounted: then only the mount's root is found, and that is the container's own group.
std::vector<fs::path> ancestry(const fs::path& mount, const std::string& group) {
  std::vector<fs::path> directories;
  for (fs::path path = fs::path(group).relative_path(); !path.empty(); path = path.parent_path()) {
    directories.push_back(mount / path);
  }
  directories.push_back(mount);
  return directories;
}

bool read_number(const fs::path& file, int64_t& value) {
  return static_cast<bool>(std::ifstream(file) >> value);
}

// Value of a "key value" line.
int64_t keyed_number(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  std::string name;
  int64_t value = 0;
  while (in >> name >> value) {
    if (name == key) return value;
  }
  return 0;
}

// v1 and v2 have the same files.
void read_pids(const fs::path& directory, CgroupLimits& limits) {
  int64_t most = 0, current = 0;
  if (read_number(directory / "pids.max", most) && read_number(directory / "pids.current", current)) {
    limits.free_pids = std::min(limits.free_pids, std::max<int64_t>(0, most - current));
  }
}

void read_v2(const fs::path& mount, const std::string& group, CgroupLimits& limits) {
  for (const fs::path& directory : ancestry(mount, group)) {
    double quota = 0, period = 0;
    if (std::ifstream(directory / "cpu.max") >> quota >> period &&
        period > 0) {  // "max 100000" does not parse
      limits.cpus = std::min(limits.cpus, quota / period);
    }
    int64_t bytes = 0;
    if (read_number(directory / "memory.max", bytes))
      limits.memory_bytes = std::min(limits.memory_bytes, bytes);
    limits.oom_kills = std::max(limits.oom_kills, keyed_number(directory / "memory.events", "oom_kill"));
    read_pids(directory, limits);
  }
}

void read_v1_cpu(const fs::path& mount, const std::string& group, CgroupLimits& limits) {
  for (const fs::path& directory : ancestry(mount, group)) {
    int64_t quota = 0, period = 0;
    if (read_number(directory / "cpu.cfs_quota_us", quota) && quota > 0 &&
        read_number(directory / "cpu.cfs_period_us", period) && period > 0) {
      limits.cpus = std::min(limits.cpus, static_cast<double>(quota) / static_cast<double>(period));
    }
  }
}

void read_v1_memory(const fs::path& mount, const std::string& group, CgroupLimits& limits) {
  for (const fs::path& directory : ancestry(mount, group)) {
    int64_t bytes = 0;
    if (read_number(directory / "memory.limit_in_bytes", bytes)) {
      limits.memory_bytes = std::min(limits.memory_bytes, bytes);
    }
    limits.oom_kills = std::max(limits.oom_kills, keyed_number(directory / "memory.oom_control", "oom_kill"));
  }
}

}  // namespace

CgroupLimits read_cgroup_limits(const fs::path& root) {
  CgroupLimits limits;
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // hierarchy:controllers:group
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      read_v2(mounts, group, limits);
      read_v2(mounts / "unified", group, limits);
    }
    std::istringstream names(controllers);
    for (std::string name; std::getline(names, name, ',');) {
      if (name == "cpu")
        read_v1_cpu(fs::exists(mounts / controllers) ? mounts / controllers : mounts / name, group, limits);
      if (name == "pids") {
        for (const fs::path& directory : ancestry(mounts / name, group)) read_pids(directory, limits);
      }
      if (name == "memory") read_v1_memory(mounts / name, group, limits);
    }
  }
  return limits;
}

}  // namespace trainer::hardware
