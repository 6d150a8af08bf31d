#include "hardware/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

#include "core/format.h"
#include "hardware/cgroup.h"
#include "hardware/cuda_devices.h"

namespace trainer::hardware {
namespace {

int64_t affinity_count() {
  constexpr int kMaxCpus = 8192;  // cpu_set_t ends at 1024 and the call fails on larger machines
  cpu_set_t* set = CPU_ALLOC(kMaxCpus);
  const size_t bytes = CPU_ALLOC_SIZE(kMaxCpus);
  const bool ok = ::sched_getaffinity(0, bytes, set) == 0;
  const int64_t count = ok ? CPU_COUNT_S(bytes, set) : ::sysconf(_SC_NPROCESSORS_ONLN);
  CPU_FREE(set);
  return count;
}

}  // namespace

Machine detect() {
  CudaDriver driver = cuda_driver();
  return {cpu_name(), usable_cores(), memory_limit_bytes(), std::move(driver.gpus),
          std::move(driver.version)};
}

std::string describe(const Machine& machine) {
  return fmt::format("{}, {} core{}, {}; {}", machine.cpu, machine.cores, machine.cores == 1 ? "" : "s",
                     binary_bytes(machine.memory_bytes), describe(machine.gpus));
}

std::string describe(const std::vector<Gpu>& gpus) {
  std::string text;
  for (size_t i = 0, n = 0; i < gpus.size(); i += n) {  // equal neighbours are counted together
    for (n = 1; i + n < gpus.size() && gpus[i + n].name == gpus[i].name; ++n) {
    }
    text += fmt::format("{}{} x {} {}", text.empty() ? "" : ", ", n, gpus[i].name,
                        binary_bytes(gpus[i].memory_bytes));
  }
  return text.empty() ? "no GPU" : text;
}

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

int64_t usable_cores() {
  return usable_cores(affinity_count(), read_cgroup_limits().cpus);
}

int64_t usable_cores(int64_t affinity, double quota) {
  const double whole = std::ceil(quota);
  return std::max<int64_t>(1, whole < static_cast<double>(affinity) ? static_cast<int64_t>(whole) : affinity);
}

int64_t memory_limit_bytes() {
  const int64_t physical = ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE);
  return std::min(physical, read_cgroup_limits().memory_bytes);
}

}  // namespace trainer::hardware
