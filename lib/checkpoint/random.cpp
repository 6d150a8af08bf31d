#include "checkpoint/random.h"

#include <ATen/Context.h>

#include <mutex>

namespace trainer::checkpoint {

tensors::NamedTensors random_state(c10::Device device) {
  const auto state_of = [](c10::Device of) {
    at::Generator generator = at::globalContext().defaultGenerator(of);
    const std::lock_guard lock(generator.mutex());
    return generator.get_state();
  };
  tensors::NamedTensors state{{"cpu", state_of(c10::kCPU)}};
  if (!device.is_cpu()) state.emplace_back("cuda", state_of(device));
  return state;
}

void set_random_state(c10::Device device, const std::string& name, const at::Tensor& state) {
  at::Generator generator =
      at::globalContext().defaultGenerator(name == "cpu" ? c10::Device(c10::kCPU) : device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace trainer::checkpoint
