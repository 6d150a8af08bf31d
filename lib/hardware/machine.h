#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainer::hardware {

struct Gpu {
  std::string name;
  std::string uuid;
  int64_t memory_bytes = 0;
  int64_t used_bytes = -1;  // by any process, not counting what the driver reserves; -1: unknown
  std::string pci_id = {};  // in sysfs's form, "0000:dc:00.0"; empty: unknown, as of a MIG instance
};

// This node, as far as this process may use it.
struct Machine {
  std::string cpu;           // model name
  int64_t cores = 1;         // usable_cores()
  int64_t memory_bytes = 0;  // memory_limit_bytes()
  std::vector<Gpu> gpus;     // of cuda_driver()
  std::string driver = {};   // version of the GPU driver, empty without one
};

Machine detect();

// One line for people: "AMD EPYC 9B14, 2 cores, 7.8 GiB; 4 x NVIDIA H200 139.8 GiB".
std::string describe(const Machine& machine);
// "2 x NVIDIA H200 139.8 GiB, 1 x MIG instance 0 B"; "no GPU".
std::string describe(const std::vector<Gpu>& gpus);

std::string cpu_name();
// min(affinity mask, CPU quota rounded up); at least 1. A container's quota is invisible to
// std::thread::hardware_concurrency(). Rounded up, because threads that are throttled for a part of each period do
// more than threads that are not there: 1.5 CPUs keep two busy three quarters of the time.
int64_t usable_cores();
int64_t usable_cores(int64_t affinity, double quota);
// min(physical memory, memory limit of the control groups).
int64_t memory_limit_bytes();

}  // namespace trainer::hardware
