#include "model/recompute.h"

#include <ATen/Context.h>
#include <torch/custom_class.h>

#include <mutex>
#include <utility>

namespace trainer::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The state of the device's default generator, which on CUDA dropout in attention draws from; on CPUs none
// does.
at::Tensor generator_state(const c10::Device& device) {
  if (device.is_cpu()) return {};
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(const c10::Device& device, const at::Tensor& state) {
  if (!state.defined()) return;
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

struct Capsule : torch::CustomClassHolder {
  Capsule(Computation f, size_t n, c10::Device d) : compute(std::move(f)), num_inputs(n), device(d) {}
  Computation compute;
  size_t num_inputs;
  c10::Device device;
  at::Tensor generator = generator_state(device);
};

struct RecomputeFunction : torch::autograd::Function<RecomputeFunction> {
  // `tensors`: the inputs, then the parameters.
  static variable_list forward(AutogradContext* context, at::TensorList tensors,
                               const c10::intrusive_ptr<Capsule>& capsule) {
    context->save_for_backward(tensors.vec());
    context->saved_data["capsule"] = c10::IValue::make_capsule(capsule);
    return capsule->compute(tensors.slice(0, capsule->num_inputs).vec());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto held = context->saved_data["capsule"].toCapsule();
    const auto& capsule = static_cast<const Capsule&>(*held);
    variable_list tensors = context->get_saved_variables();
    for (size_t i = 0; i < capsule.num_inputs; ++i) {
      tensors[i] = tensors[i].detach().requires_grad_();
    }
    const at::Tensor now = generator_state(capsule.device);
    set_generator_state(capsule.device, capsule.generator);
    variable_list outputs;
    {
      const at::AutoGradMode with_gradients(true);
      outputs =
          capsule.compute({tensors.begin(), tensors.begin() + static_cast<int64_t>(capsule.num_inputs)});
    }
    set_generator_state(capsule.device, now);

    variable_list result =
        torch::autograd::grad(outputs, tensors, gradients, std::nullopt, false, /*allow_unused=*/true);
    result.emplace_back();  // of the capsule
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> recompute(const Computation& compute, const std::vector<at::Tensor>& inputs,
                                  const std::vector<at::Tensor>& parameters) {
  if (!at::GradMode::is_enabled()) return compute(inputs);
  variable_list tensors = inputs;
  tensors.insert(tensors.end(), parameters.begin(), parameters.end());
  return RecomputeFunction::apply(
      at::TensorList(tensors),
      c10::make_intrusive<Capsule>(compute, inputs.size(), parameters.at(0).device()));
}

}  // namespace trainer::model
