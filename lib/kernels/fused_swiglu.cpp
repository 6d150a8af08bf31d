#include <torch/torch.h>

#include "core/math.h"
#include "kernels/fused.h"
#include "kernels/parallel.h"

namespace trainer::kernels::fused {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Calls body(row) for all rows, some 32768 elements an item.
template <class Body>
void for_rows(const at::Tensor& y, const Body& body) {
  const int64_t rows_per_item = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, y.size(1)));
  parallel_items(ceil_div(y.size(0), rows_per_item), [&](int64_t item) {
    const int64_t first = item * rows_per_item, last = std::min(y.size(0), first + rows_per_item);
    for (int64_t row = first; row < last; ++row) body(row);
  });
}

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up) {
    const at::Tensor from = gate_up.contiguous();
    const int64_t n = from.size(1) / 2;
    at::Tensor y = at::empty({from.size(0), n}, from.options());
    with_type(from, [&]<class T>(T) {
      for_rows(y, [&](int64_t row) {
        cpu_kernels().of<T>().swiglu_forward(data<T>(from) + row * 2 * n, mutable_data<T>(y) + row * n, n);
      });
    });
    context->save_for_backward({from});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const at::Tensor from = context->get_saved_variables()[0], dy = grads[0].contiguous();
    const int64_t n = dy.size(1);
    at::Tensor dfrom = at::empty_like(from);
    with_type(from, [&]<class T>(T) {
      for_rows(dy, [&](int64_t row) {
        cpu_kernels().of<T>().swiglu_backward(data<T>(from) + row * 2 * n, data<T>(dy) + row * n,
                                              mutable_data<T>(dfrom) + row * 2 * n, n);
      });
    });
    return {dfrom};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_up) {
  return SwigluFunction::apply(gate_up);
}

}  // namespace trainer::kernels::fused
