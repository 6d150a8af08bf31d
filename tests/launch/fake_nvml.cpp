// Stands for libnvidia-ml.so.1 on a machine of three GPUs, of which the second is lost from the bus.
#include <cstdio>

extern "C" {

struct FakeMemory {
  unsigned long long total, free, used;
};
struct FakeMemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct FakePciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

int nvmlInit_v2() {
  return 0;
}
int nvmlShutdown() {
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 3;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  static int devices[3] = {0, 1, 2};
  *device = &devices[index];
  return index == 1 ? 15 /* NVML_ERROR_GPU_IS_LOST */ : 0;
}
int nvmlDeviceGetName(void* device, char* name, unsigned size) {
  std::snprintf(name, size, "%s", *static_cast<int*>(device) == 0 ? "Fake A" : "Fake B");
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned size) {
  std::snprintf(uuid, size, "GPU-%d", *static_cast<int*>(device));
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, FakeMemory* memory) {
  *memory = {80ull << 30, 0, 0};
  return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void* device, FakeMemoryV2* memory) {
  if (memory->version != (sizeof(FakeMemoryV2) | 2U << 24))
    return 25;  // NVML_ERROR_ARGUMENT_VERSION_MISMATCH
  memory->used = *static_cast<int*>(device) == 0 ? 3ull << 30 : 0;
  return 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, FakePciInfo* info) {
  info->domain = 0;
  info->bus = 0xdc + static_cast<unsigned>(*static_cast<int*>(device));
  info->device = 0;
  return 0;
}
int nvmlSystemGetDriverVersion(char* version, unsigned size) {
  std::snprintf(version, size, "580.82.07");
  return 0;
}

}  // extern "C"
