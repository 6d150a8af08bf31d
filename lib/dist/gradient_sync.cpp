#include "dist/gradient_sync.h"

#include <ATen/Functions.h>

#include <utility>

#include "dist/reduced_gradients.h"

namespace trainer::dist {
namespace {

// One process: autograd's own gradients are the sum.
class LocalGradients : public GradientSync {
 public:
  explicit LocalGradients(const std::vector<std::pair<std::string, at::Tensor>>& parameters) {
    for (const auto& [name, p] : parameters) parameters_.push_back(p);
    had_gradient_.resize(parameters_.size());
  }
  void before_forward(bool) override {}
  double backward(const at::Tensor& loss, bool) override {
    loss.backward();
    return 0;
  }
  std::vector<at::Tensor> gradients() override {
    std::vector<at::Tensor> result;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor& grad = parameters_[i].mutable_grad();
      if (!grad.defined() && had_gradient_[i]) grad = at::zeros_like(parameters_[i].detach());
      had_gradient_[i] = grad.defined();
      result.push_back(grad);
    }
    return result;
  }
  // Freed, not zeroed: the next backward hands over its own tensors and saves a pass over memory.
  void zero_grad() override {
    for (const auto& p : parameters_) p.mutable_grad().reset();
  }

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<bool> had_gradient_;
};

}  // namespace

std::unique_ptr<GradientSync> make_gradient_sync(
    Communicator& communicator, const spec::Parallel& options,
    const std::vector<std::pair<std::string, at::Tensor>>& parameters, const std::vector<at::Tensor>& buffers,
    std::function<void()> on_waiting) {
  if (communicator.size() > 1)
    return make_reduced_gradients(communicator, options, parameters, buffers, std::move(on_waiting));
  return std::make_unique<LocalGradients>(parameters);
}

}  // namespace trainer::dist
