#include "hardware/cuda_devices.h"

#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <sstream>

namespace trainer::hardware {
namespace {

// The part of NVML's stable C interface that is used here (nvml.h is not needed to build).
struct NvmlMemory {
  unsigned long long total, free, used;
};
using NvmlDevice = struct nvmlDevice_st*;

class Nvml {
 public:
  explicit Nvml(const char* library) : handle_(::dlopen(library, RTLD_NOW | RTLD_LOCAL)) {
    ready_ = load(init_, "nvmlInit_v2") && load(shutdown_, "nvmlShutdown") &&
             load(count_, "nvmlDeviceGetCount_v2") && load(device_, "nvmlDeviceGetHandleByIndex_v2") &&
             load(name_, "nvmlDeviceGetName") && load(uuid_, "nvmlDeviceGetUUID") &&
             load(memory_, "nvmlDeviceGetMemoryInfo") && init_() == 0;
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
      gpus.push_back({name, uuid, static_cast<int64_t>(memory.total)});
    }
    return gpus;
  }

 private:
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

std::vector<Gpu> cuda_devices(const char* nvml_library) {
  std::vector<Gpu> gpus = Nvml(nvml_library).gpus();
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  if (value == nullptr || gpus.empty()) return gpus;
  std::vector<std::string> uuids;
  for (const Gpu& gpu : gpus) uuids.push_back(gpu.uuid);
  std::vector<Gpu> visible;
  for (const int64_t i : visible_devices(value, uuids)) {
    visible.push_back(i == kMig ? Gpu{"MIG instance", "", 0} : gpus[static_cast<size_t>(i)]);
  }
  return visible;
}

int64_t cuda_device_count() {
  return static_cast<int64_t>(cuda_devices().size());
}

}  // namespace trainer::hardware
