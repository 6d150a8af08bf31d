// Stands for libnvidia-ml.so.1 on a machine of three GPUs, of which the second is lost from the bus.
#include <cstdio>

extern "C" {

struct FakeMemory {
  unsigned long long total, free, used;
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

}  // extern "C"
