#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hardware/machine.h"

namespace trainer::hardware {

struct CudaDriver {
  std::string version;  // "580.82.07"; empty without a driver
  // GPUs that a CUDA program started from this process would see, in NVML's order: all of the driver's,
  // restricted by CUDA_VISIBLE_DEVICES.
  std::vector<Gpu> gpus;
};

// Asks NVML, so no CUDA context is made and no CUDA library is needed; without a driver all is empty.
CudaDriver cuda_driver(const char* nvml_library = "libnvidia-ml.so.1");
std::vector<Gpu> cuda_devices(const char* nvml_library = "libnvidia-ml.so.1");
int64_t cuda_device_count();

// Indices in `uuids` that a value of CUDA_VISIBLE_DEVICES leaves visible, as the CUDA runtime reads it:
// indices or unique UUID prefixes; the list ends at the first entry that names no device ("-1",
// "NoDevFiles") or is of another kind than the first; a device named twice leaves none. -1 stands for a MIG
// instance ("MIG-..."), which the list of GPUs does not hold.
std::vector<int64_t> visible_devices(const std::string& value, const std::vector<std::string>& uuids);

}  // namespace trainer::hardware
