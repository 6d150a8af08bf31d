#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <string>
#include <vector>

namespace trainer::embedding {

// FBGEMM's operators are in the shared libraries of a Python package, fbgemm-gpu or fbgemm-gpu-cpu, of the version that goes with
// LibTorch's. Where that may be: TRAINER_FBGEMM (the package's folder) alone when it is set, else beside LibTorch and among the packages of
// the python3 on PATH.
std::vector<std::filesystem::path> fbgemm_directories();

// Loads them from the first folder that has them, for good. Returns why there are none for the device and how to get them, or nothing:
// then the dispatcher has them.
std::string load_fbgemm(c10::Device device,
                        const std::vector<std::filesystem::path>& directories = fbgemm_directories());

}  // namespace trainer::embedding
