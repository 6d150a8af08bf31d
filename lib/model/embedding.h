#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trainer::model {

// Rows `ids` [N] of `weight` [V, C], as at::embedding; row `padding_id` (-1: none) gets no gradient. On a
// CPU, backward adds to the rows of weight.grad() that were used, where there is a gradient to add to: a
// dense gradient of a large vocabulary, made and added each time, costs more than a layer. So it serves
// backward(), not torch::autograd::grad().
at::Tensor word_embedding(const at::Tensor& weight, const at::Tensor& ids, int64_t padding_id);

}  // namespace trainer::model
