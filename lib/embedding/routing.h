#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "data/batch.h"
#include "embedding/layout.h"
#include "embedding/tables.h"

// Ids on their way from the sample's rank to the owners of the rows. B samples of this rank, P pieces of an owner.

namespace trainer::embedding {

// What one rank sends to all.
struct Routed {
  // To each owner [B, whether the bags have weights, ids of each of its pieces], end to end: it can then tell where things
  // are in what follows.
  at::Tensor sizes;  // int64, on the host
  // To each owner the lengths of the bags [P, B], then the ids as rows of its shards, piece by piece, then the weights' bits.
  at::Tensor
      buffer;  // int32, or int64 where a shard has more rows than that counts; on the host, pinned where said
  std::vector<int64_t> elements;  // of buffer, to each owner
};

// Rows of all shards fit into it.
at::ScalarType id_type(const Layout& layout);

// `records` on the host. Throws DataError for an id that is no row of its table.
Routed route(const Layout& layout, const data::Records& records, int64_t batch, bool pinned);

// Elements of the sizes that an owner gets from each rank.
inline int64_t num_sizes(const Owner& owner) {
  return 2 + static_cast<int64_t>(owner.pieces.size());
}
// Elements of the buffer that follow from them. sizes: [W, num_sizes], on the host.
std::vector<int64_t> num_elements(const Owner& owner, const at::Tensor& sizes);

// The bags of all ranks' samples, rank by rank, of `received`, which may be on the tables' device.
Lookup unpack(const Owner& owner, const at::Tensor& sizes, const at::Tensor& received);

// The bags of the replicated tables. `records` on the host. Throws DataError as route().
Lookup select(const Owner& replicated, const data::Records& records, int64_t batch);

}  // namespace trainer::embedding
