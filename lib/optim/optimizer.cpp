#include "optim/optimizer.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

namespace trainer::optim {
namespace {

using Tensors = std::vector<at::Tensor>;
using Names = std::vector<std::string>;

// State and book-keeping shared by all: one zeroed tensor per parameter and slot, and the number of steps
// that each parameter took. The update itself is one of LibTorch's fused kernels, a single pass over memory.
class FusedOptimizer : public Optimizer {
 public:
  FusedOptimizer(const spec::Optimizer& options, std::vector<ParameterGroup> groups, Names slots)
      : options_(options), slot_names_(std::move(slots)) {
    for (auto& group : groups) {
      Group g;
      g.weight_decay = group.weight_decay;
      g.slots.resize(slot_names_.size());
      for (auto& slot : g.slots) {
        for (const auto& p : group.parameters) slot.push_back(at::zeros_like(p.detach()));
      }
      if (!group.parameters.empty()) {
        const auto n = static_cast<int64_t>(group.parameters.size());
        g.step_counts = at::zeros({n}, group.parameters[0].options().requires_grad(false));
        g.steps = g.step_counts.unbind();
      }
      g.parameters = std::move(group.parameters);
      g.names = std::move(group.names);
      groups_.push_back(std::move(g));
    }
  }

  void step(const at::Tensor& lr, const at::Tensor& grad_scale, const at::Tensor& found_inf) override {
    const at::NoGradGuard no_grad;
    const at::Tensor advance = 1 - found_inf;
    for (auto& group : groups_) {
      Args a{{}, {},         Tensors{}, std::vector<Tensors>(group.slots.size()), group.weight_decay,
             lr, grad_scale, found_inf};
      for (size_t i = 0; i < group.parameters.size(); ++i) {
        const at::Tensor& grad = group.parameters[i].grad();
        if (!grad.defined()) continue;
        a.parameters.push_back(group.parameters[i].detach());
        a.gradients.push_back(grad);
        a.steps.push_back(group.steps[i]);
        for (size_t s = 0; s < group.slots.size(); ++s) a.slots[s].push_back(group.slots[s][i]);
      }
      if (a.parameters.empty()) continue;
      if (a.parameters.size() == group.parameters.size()) {
        group.step_counts.add_(advance);
      } else {
        for (auto& steps : a.steps) steps.add_(advance);
      }
      update(a);
    }
  }

  tensors::NamedTensors state() override {
    tensors::NamedTensors state;
    for (const auto& group : groups_) {
      for (size_t i = 0; i < group.parameters.size(); ++i) {
        const std::string& name = group.names.at(i);
        state.emplace_back(name + ".step", group.steps[i]);
        for (size_t s = 0; s < slot_names_.size(); ++s) {
          state.emplace_back(fmt::format("{}.{}", name, slot_names_[s]), group.slots[s][i]);
        }
      }
    }
    return state;
  }

  int64_t state_bytes() const override {
    size_t bytes = 0;
    for (const auto& group : groups_) {
      if (group.step_counts.defined()) bytes += group.step_counts.nbytes();
      for (const auto& slot : group.slots) {
        for (const auto& t : slot) bytes += t.nbytes();
      }
    }
    return static_cast<int64_t>(bytes);
  }

 protected:
  // Those of a group's parameters that have gradients.
  struct Args {
    Tensors parameters, gradients, steps;
    std::vector<Tensors> slots;
    double weight_decay;
    const at::Tensor &lr, &grad_scale, &found_inf;
  };
  virtual void update(Args& a) = 0;

  spec::Optimizer options_;

 private:
  struct Group {
    double weight_decay = 0;
    Tensors parameters;
    Names names;
    std::vector<Tensors> slots;  // [slot][parameter]
    at::Tensor step_counts;      // [parameters] fp32
    Tensors steps;               // its elements, as [] views
  };
  Names slot_names_;
  std::vector<Group> groups_;
};

class AdamW : public FusedOptimizer {
 public:
  AdamW(const spec::Optimizer& options, std::vector<ParameterGroup> groups)
      : FusedOptimizer(options, std::move(groups), {"exp_avg", "exp_avg_sq"}) {}
  void update(Args& a) override {
    at::_fused_adamw_(a.parameters, a.gradients, a.slots[0], a.slots[1], /*max_exp_avg_sqs=*/{}, a.steps,
                      a.lr, options_.beta1, options_.beta2, a.weight_decay, options_.eps, /*amsgrad=*/false,
                      /*maximize=*/false, a.grad_scale, a.found_inf);
  }
};

class Sgd : public FusedOptimizer {
 public:
  Sgd(const spec::Optimizer& options, std::vector<ParameterGroup> groups)
      : FusedOptimizer(options, std::move(groups),
                       options.momentum != 0 ? Names{"momentum_buffer"} : Names{}) {}
  // The momentum buffers start as zeros, so the first step is as any other: 0 × momentum + gradient.
  void update(Args& a) override {
    at::_fused_sgd_(a.parameters, a.gradients, a.slots.empty() ? Tensors{} : a.slots[0], a.weight_decay,
                    options_.momentum, a.lr, /*dampening=*/0.0, options_.nesterov, /*maximize=*/false,
                    /*is_first_step=*/false, a.grad_scale, a.found_inf);
  }
};

class Adagrad : public FusedOptimizer {
 public:
  Adagrad(const spec::Optimizer& options, std::vector<ParameterGroup> groups)
      : FusedOptimizer(options, std::move(groups), {"sum"}) {}
  void update(Args& a) override {
    at::_fused_adagrad_(a.parameters, a.gradients, a.slots[0], a.steps, a.lr, /*lr_decay=*/0.0,
                        a.weight_decay, options_.eps, /*maximize=*/false, a.grad_scale, a.found_inf);
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const spec::Optimizer& options,
                                          std::vector<ParameterGroup> groups) {
  switch (options.type) {
    case spec::OptimizerType::kSgd:
      return std::make_unique<Sgd>(options, std::move(groups));
    case spec::OptimizerType::kAdagrad:
      return std::make_unique<Adagrad>(options, std::move(groups));
    case spec::OptimizerType::kAdamW:
      break;
  }
  return std::make_unique<AdamW>(options, std::move(groups));
}

}  // namespace trainer::optim
