#include "model/embedding.h"

#include <torch/torch.h>

namespace trainer::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// grad[ids[n]] += rows[n]; all dense fp32. In order: the same sum whatever the number of threads.
void add_rows(const at::Tensor& grad, const at::Tensor& ids, const at::Tensor& rows, int64_t padding_id) {
  const int64_t channels = rows.size(1);
  const auto* id = ids.const_data_ptr<int64_t>();
  const auto* from = rows.const_data_ptr<float>();
  auto* to = grad.mutable_data_ptr<float>();
  for (int64_t n = 0; n < rows.size(0); ++n) {
    if (id[n] == padding_id) continue;
    for (int64_t c = 0; c < channels; ++c) to[id[n] * channels + c] += from[n * channels + c];
  }
}

class Embedding : public torch::autograd::Function<Embedding> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& weight, const at::Tensor& ids,
                            int64_t padding_id) {
    ctx->save_for_backward({weight, ids});
    ctx->saved_data["padding_id"] = padding_id;
    return weight.index_select(0, ids);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &weight = saved[0], &ids = saved[1];
    const int64_t padding_id = ctx->saved_data["padding_id"].toInt();
    const at::Tensor rows = gradients[0].contiguous();
    const at::Tensor& grad = weight.grad();
    if (grad.defined() && grad.is_contiguous() && grad.scalar_type() == at::kFloat) {
      add_rows(grad, ids, rows, padding_id);
      return {{}, {}, {}};  // hooks of weight run all the same
    }
    return {at::embedding_dense_backward(rows, ids, weight.size(0), padding_id, false), {}, {}};
  }
};

}  // namespace

at::Tensor word_embedding(const at::Tensor& weight, const at::Tensor& ids, int64_t padding_id) {
  if (!weight.is_cpu()) return at::embedding(weight, ids, padding_id);
  return Embedding::apply(weight, ids.contiguous(), padding_id);
}

}  // namespace trainer::model
