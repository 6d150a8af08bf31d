#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace trainer::embedding {

// Fills a block of a table, in place, with uniform numbers within 1 / sqrt(rows of the whole table) of 0, as DLRM's reference
// does (github.com/facebookresearch/dlrm). A weight is a function of the seed, the table's name and its row and column in the
// whole table: any split has the same weights. col_begin is a multiple of 4.
void initialize(const at::Tensor& weight, const std::string& table, uint64_t seed, int64_t total_rows,
                int64_t row_begin, int64_t col_begin);

}  // namespace trainer::embedding
