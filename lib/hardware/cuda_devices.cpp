#include "hardware/cuda_devices.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <utility>

namespace trainer::hardware {
namespace {

// The part of NVML's stable C interface that is used here (nvml.h is not needed to build).
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlMemoryV2 {
  unsigned version;  // its size, and 2 in the highest byte
  unsigned long long total, reserved, free, used;
};
struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
using NvmlDevice = struct nvmlDevice_st*;

class Nvml {
 public:
  explicit Nvml(const char* library) : handle_(::dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
    ready_ = load(init_, "nvmlInit_v2") && load(shutdown_, "nvmlShutdown") &&
             load(count_, "nvmlDeviceGetCount_v2") && load(device_, "nvmlDeviceGetHandleByIndex_v2") &&
             load(name_, "nvmlDeviceGetName") && load(uuid_, "nvmlDeviceGetUUID") &&
             load(memory_, "nvmlDeviceGetMemoryInfo") && init_() == 0;
    // Not all of older drivers and of what passes for NVML elsewhere.
    load(memory_v2_, "nvmlDeviceGetMemoryInfo_v2");
    load(pci_info_, "nvmlDeviceGetPciInfo_v3");
    load(driver_version_, "nvmlSystemGetDriverVersion");
  }
  ~Nvml() {
    if (ready_) shutdown_();
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::vector<Gpu> gpus() const {
    std::vector<Gpu> gpus;
    unsigned count = 0;
    if (!ready_ || count_(&count) != 0) return gpus;
    for (unsigned i = 0; i < count; ++i) {
      NvmlDevice device = nullptr;
      char name[96] = "", uuid[96] = "";
      NvmlMemory memory{};
      if (device_(i, &device) != 0) continue;  // lost from the bus, or not this user's
      name_(device, name, sizeof name);
      uuid_(device, uuid, sizeof uuid);
      memory_(device, &memory);
      gpus.push_back({name, uuid, static_cast<int64_t>(memory.total), used_bytes(device), pci_id(device)});
    }
    return gpus;
  }

  std::string driver_version() const {
    char version[80] = "";
    if (!ready_ || driver_version_ == nullptr || driver_version_(version, sizeof version) != 0) return {};
    return version;
  }

 private:
  int64_t used_bytes(NvmlDevice device) const {
    NvmlMemoryV2 memory{sizeof(NvmlMemoryV2) | 2U << 24, 0, 0, 0, 0};
    if (memory_v2_ == nullptr || memory_v2_(device, &memory) != 0) return -1;
    return static_cast<int64_t>(memory.used);
  }

  std::string pci_id(NvmlDevice device) const {
    NvmlPciInfo info{};
    if (pci_info_ == nullptr || pci_info_(device, &info) != 0) return {};
    return fmt::format("{:04x}:{:02x}:{:02x}.0", info.domain, info.bus, info.device);
  }

  template <class F>
  bool load(F*& function, const char* symbol) {
    function = handle_ == nullptr ? nullptr : reinterpret_cast<F*>(::dlsym(handle_, symbol));
    return function != nullptr;
  }

  void* handle_;
  bool ready_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*device_)(unsigned, NvmlDevice*) = nullptr;
  int (*name_)(NvmlDevice, char*, unsigned) = nullptr;
  int (*uuid_)(NvmlDevice, char*, unsigned) = nullptr;
  int (*memory_)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*memory_v2_)(NvmlDevice, NvmlMemoryV2*) = nullptr;
  int (*pci_info_)(NvmlDevice, NvmlPciInfo*) = nullptr;
  int (*driver_version_)(char*, unsigned) = nullptr;
};

constexpr int64_t kMig = -1;
constexpr int64_t kNone = -2;

int64_t find_device(const std::string& entry, const std::vector<std::string>& uuids) {
  if (entry.rfind("MIG-", 0) == 0) return kMig;
  if (entry.rfind("GPU-", 0) == 0) {
    int64_t found = kNone;
    for (size_t i = 0; i < uuids.size(); ++i) {
      if (uuids[i].rfind(entry, 0) != 0) continue;
      if (found != kNone) return kNone;  // ambiguous
      found = static_cast<int64_t>(i);
    }
    return found;
  }
  char* end = nullptr;
  const long index = std::strtol(entry.c_str(), &end, 10);
  const bool is_device = end != entry.c_str() && index >= 0 && index < static_cast<long>(uuids.size());
  return is_device ? index : kNone;
}

}  // namespace

std::vector<int64_t> visible_devices(const std::string& value, const std::vector<std::string>& uuids) {
  std::vector<int64_t> visible;
  std::string first_kind;
  std::istringstream in(value);
  for (std::string entry; std::getline(in, entry, ',');) {
    entry.erase(0, entry.find_first_not_of(" \t"));
    const std::string kind = entry.substr(0, entry.find('-') == 3 ? 3 : 0);  // "GPU", "MIG" or an index
    if (visible.empty()) first_kind = kind;
    const int64_t device = kind == first_kind ? find_device(entry, uuids) : kNone;
    if (device == kNone) break;
    if (device != kMig && std::count(visible.begin(), visible.end(), device) > 0) return {};
    visible.push_back(device);
  }
  return visible;
}

CudaDriver cuda_driver(const char* nvml_library) {
  const Nvml nvml(nvml_library);
  CudaDriver driver{nvml.driver_version(), nvml.gpus()};
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  if (value == nullptr || driver.gpus.empty()) return driver;
  std::vector<std::string> uuids;
  for (const Gpu& gpu : driver.gpus) uuids.push_back(gpu.uuid);
  std::vector<Gpu> visible;
  for (const int64_t i : visible_devices(value, uuids)) {
    visible.push_back(i == kMig ? Gpu{"MIG instance", "", 0} : driver.gpus[static_cast<size_t>(i)]);
  }
  driver.gpus = std::move(visible);
  return driver;
}

std::vector<Gpu> cuda_devices(const char* nvml_library) {
  return cuda_driver(nvml_library).gpus;
}

int64_t cuda_device_count() {
  return static_cast<int64_t>(cuda_devices().size());
}

}  // namespace trainer::hardware
