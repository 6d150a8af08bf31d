#include "hardware/cgroup.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "temporary_directory.h"

namespace fs = std::filesystem;
using trainer::hardware::CgroupLimits;
using trainer::hardware::read_cgroup_limits;

namespace {

// A file system root with some files of /proc and /sys.
using FakeRoot = TemporaryDirectory;

}  // namespace

TEST_CASE("without control groups nothing is limited") {
  const FakeRoot root;
  const CgroupLimits limits = read_cgroup_limits(root.path);
  CHECK(std::isinf(limits.cpus));
  CHECK(limits.memory_bytes == std::numeric_limits<int64_t>::max());
  CHECK(limits.oom_kills == 0);
}

TEST_CASE("cgroup v2: the tightest limit on the way to the root counts") {
  const FakeRoot root;
  root.write("proc/self/cgroup", "0::/pod/container\n");
  root.write("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  root.write("sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
  root.write("sys/fs/cgroup/pod/container/memory.max", "8589934592\n");
  root.write("sys/fs/cgroup/pod/memory.max", "max\n");
  root.write("sys/fs/cgroup/pod/container/memory.events",
             "low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n");
  const CgroupLimits limits = read_cgroup_limits(root.path);
  CHECK(limits.cpus == 1.5);
  CHECK(limits.memory_bytes == 8589934592);
  CHECK(limits.oom_kills == 2);
}

TEST_CASE("cgroup v2 in a container's namespace: the mount's root is the own group") {
  const FakeRoot root;
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/cpu.max", "400000 100000\n");
  root.write("sys/fs/cgroup/memory.max", "1073741824\n");
  CHECK(read_cgroup_limits(root.path).cpus == 4.0);
  CHECK(read_cgroup_limits(root.path).memory_bytes == 1073741824);
}

TEST_CASE("cgroup v1: quota over period, and the host's path is not mounted in the container") {
  const FakeRoot root;
  root.write("proc/self/cgroup",
             "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
  root.write("sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  const CgroupLimits limits = read_cgroup_limits(root.path);
  CHECK(limits.cpus == 2.5);
  CHECK(limits.memory_bytes == 2147483648);
  CHECK(limits.oom_kills == 1);
}

TEST_CASE("cgroup v1: a quota of -1 is none") {
  const FakeRoot root;
  root.write("proc/self/cgroup", "1:cpu:/\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(std::isinf(read_cgroup_limits(root.path).cpus));
}

TEST_CASE("mixed v1 and v2: memory from v1, CPU from the unified mount") {
  const FakeRoot root;
  root.write("proc/self/cgroup", "4:memory:/job\n0::/job\n");
  root.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000\n");
  root.write("sys/fs/cgroup/unified/job/cpu.max", "50000 100000\n");
  const CgroupLimits limits = read_cgroup_limits(root.path);
  CHECK(limits.cpus == 0.5);
  CHECK(limits.memory_bytes == 1000);
}

TEST_CASE("the processes that may still be started are those of the tightest group, v1 and v2") {
  const FakeRoot v2;
  v2.write("proc/self/cgroup", "0::/pod/container\n");
  v2.write("sys/fs/cgroup/pod/container/pids.max", "max\n");
  v2.write("sys/fs/cgroup/pod/container/pids.current", "7\n");
  CHECK(read_cgroup_limits(v2.path).free_pids == std::numeric_limits<int64_t>::max());
  v2.write("sys/fs/cgroup/pod/pids.max", "100\n");
  v2.write("sys/fs/cgroup/pod/pids.current", "30\n");
  CHECK(read_cgroup_limits(v2.path).free_pids == 70);

  const FakeRoot v1;
  v1.write("proc/self/cgroup", "5:pids:/docker/abc\n");
  v1.write("sys/fs/cgroup/pids/pids.max", "20\n");
  v1.write("sys/fs/cgroup/pids/pids.current", "25\n");
  CHECK(read_cgroup_limits(v1.path).free_pids == 0);
}
