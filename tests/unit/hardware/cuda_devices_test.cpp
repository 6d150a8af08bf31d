#include "hardware/cuda_devices.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/file.h"

using namespace trainer::hardware;

TEST_CASE("CUDA_VISIBLE_DEVICES leaves visible what torch.cuda counts") {
  const auto reference =
      nlohmann::json::parse(trainer::read_file(TEST_DATA "/hardware/cuda_visible_devices.json"));
  const auto uuids = reference["uuids"].get<std::vector<std::string>>();
  REQUIRE(reference["cases"].size() > 20);
  for (const auto& item : reference["cases"]) {
    const auto value = item["value"].get<std::string>();
    CAPTURE(value);
    CHECK(visible_devices(value, uuids) == item["visible"].get<std::vector<int64_t>>());
  }
}

TEST_CASE("a MIG instance is one device") {
  CHECK(visible_devices("MIG-1234", {"GPU-1"}) == std::vector<int64_t>{-1});
}

TEST_CASE("without NVML there is no GPU") {
  CHECK(cuda_devices("libno-such-nvml.so").empty());
}

TEST_CASE("NVML's devices are listed, but the lost ones and those that CUDA_VISIBLE_DEVICES hides") {
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  std::vector<Gpu> gpus = cuda_devices(FAKE_NVML);
  REQUIRE(gpus.size() == 2);
  CHECK(gpus[0].name == "Fake A");
  CHECK(gpus[0].uuid == "GPU-0");
  CHECK(gpus[0].memory_bytes == int64_t{80} << 30);
  CHECK(gpus[0].used_bytes == int64_t{3} << 30);
  CHECK(gpus[0].pci_id == "0000:dc:00.0");
  CHECK(gpus[1].name == "Fake B");
  CHECK(gpus[1].used_bytes == 0);
  CHECK(gpus[1].pci_id == "0000:de:00.0");

  ::setenv("CUDA_VISIBLE_DEVICES", "GPU-2", 1);
  gpus = cuda_devices(FAKE_NVML);
  REQUIRE(gpus.size() == 1);
  CHECK(gpus[0].name == "Fake B");
  ::setenv("CUDA_VISIBLE_DEVICES", "MIG-7", 1);
  CHECK(cuda_devices(FAKE_NVML)[0].name == "MIG instance");
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  CHECK(cuda_devices(FAKE_NVML).empty());
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_CASE("the driver's version is NVML's, and empty without a driver") {
  CHECK(cuda_driver(FAKE_NVML).version == "580.82.07");
  CHECK(cuda_driver("libno-such-nvml.so").version.empty());
}
