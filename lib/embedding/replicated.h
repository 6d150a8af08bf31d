#pragma once

#include <memory>
#include <span>
#include <vector>

#include "dist/communicator.h"
#include "embedding/layout.h"
#include "embedding/tables.h"

namespace trainer::embedding {

// The update of tables that every rank holds: the dense gradients of all ranks, with a column of how often each row was
// touched, are summed, and each rank then changes the touched rows in the same way, to the bit.
class ReplicatedUpdate {
 public:
  ReplicatedUpdate(const Owner& owner, const std::vector<Table>& tables, at::Device device);
  // Collective. Lookups and gradients are this rank's own, as Tables::step() takes them.
  void step(Tables& tables, dist::Communicator& communicator, std::span<const Lookup> lookups,
            std::span<const at::Tensor> gradients, const at::Tensor& lr, const at::Tensor& grad_scale,
            const at::Tensor& found_inf);

 private:
  void add(const Lookup& lookup, const at::Tensor& gradient);

  std::vector<Piece> pieces_;
  int64_t columns_;
  at::Tensor buffer_;              // all dense gradients, end to end: one all-reduce
  std::vector<at::Tensor> dense_;  // views of it: [rows, dim + 1] of each table
};

}  // namespace trainer::embedding
