#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "data/batch.h"
#include "dist/communicator.h"
#include "embedding/layout.h"
#include "embedding/replicated.h"
#include "embedding/tables.h"
#include "job/embedding_plan.h"
#include "tensors/slices.h"

// B samples of this rank, which may differ between ranks and be 0; F features; C pooled columns, the sum of their tables' dims.

namespace trainer::embedding {

struct ShardedOptions {
  spec::EmbeddingBackend backend = spec::EmbeddingBackend::kAuto;
  TableOptimizer optimizer;
  Placement placement;
  spec::GradientCompression compression =
      spec::GradientCompression::kNone;  // of pooled rows and their gradients
  uint64_t seed = 0;                     // of the first weights
};

// Embedding tables that lie on the ranks as a plan says. The same numbers come out for any plan and any number of ranks, but
// for the order of sums (and for compression). A single process looks up and updates its tables directly, without a copy.
//
// Everything here but prefetch's ids and what is said to be local is collective, in one order on all ranks: for each
// micro-batch start, finish, backward through what finish returned; after the last one gradient_flag and step.
//
// Why nothing can deadlock: all exchanges are on a channel of their own, so the gradient reducer's, which autograd begins
// between ours, need no common order with them. On the channel each rank begins the same exchanges in the same order, which
// follows from the order of the calls alone (an exchange is begun in a call, never in a thread or a callback of another one),
// and waits only for one that it has begun itself, which the others begin without waiting for anything later. On CUDA the
// kernels of both communicators wait on the device for their peers: there each is launched in the same order on all ranks
// too, since autograd runs equal graphs in equal order, and both fit on a device at once.
class ShardedEmbedding {
 public:
  // Collective: DistributedError when the ranks' plans differ. The tables are made in place, never twice.
  ShardedEmbedding(const std::vector<TableConfig>& tables, const EmbeddingPlan& plan,
                   const ShardedOptions& options, dist::Communicator& communicator, at::Device device);
  ~ShardedEmbedding();

  // Optional, ahead of start, as in the micro-batch before: begins to exchange the ids, which no update changes. Records are
  // those that start will get. In several processes records' ids, offsets and weights are on the host (where they are routed).
  void prefetch(const data::Records& records, int64_t batch);
  // Looks up, and begins to exchange what comes out: compute what doesn't need it, then finish.
  void start(const data::Records& records, int64_t batch);
  // [B, C] fp32 on the device, of the last start: features in their order. Its backward begins to send the gradients to the
  // owners, who keep them for step(). Without gradients (NoGradGuard) nothing is kept.
  at::Tensor finish();

  // [] fp32: 0, or NaN when a gradient kept by any rank is inf or NaN.
  at::Tensor gradient_flag();
  // One optimizer step from the gradients kept since the last, which are then forgotten. As Tables::step().
  void step(const at::Tensor& lr, const at::Tensor& grad_scale, const at::Tensor& found_inf);

  // Local: this rank's shards and their optimizer's state, to be saved and loaded: "embeddings.<table>.weight",
  // "embeddings.<table>.<state>". The storage itself.
  std::vector<tensors::Slice> slices();
  // Local: of this rank's weights and of their optimizer's state.
  int64_t weight_bytes() const;
  int64_t state_bytes() const;
  std::string backend() const;

 private:
  struct Round;  // one micro-batch
  friend struct PooledBackward;

  std::unique_ptr<Tables> make(const Owner& owner, const ShardedOptions& options, std::vector<Table>& shards);
  void check_equal_plans(const EmbeddingPlan& plan);
  void prepare_row_sums(const ShardedOptions& options);
  void add_row_sums(std::span<at::Tensor> sums);
  std::shared_ptr<Round> begin(const data::Records& records, int64_t batch);
  void send_ids(Round& round);
  void send_ids_ahead();
  void send_gradients(const std::shared_ptr<Round>& round, at::Tensor gradient);
  void receive_gradients();
  at::Tensor by_column(const at::Tensor& by_feature) const;  // [B, F] -> [B, C]

  std::vector<TableConfig> tables_;
  Layout layout_;
  spec::GradientCompression compression_;
  at::Device device_;
  std::unique_ptr<dist::Communicator> channel_;
  std::unique_ptr<Tables> owned_, replicated_;  // null: none here
  std::vector<Table> owned_shards_, replicated_shards_;
  std::unique_ptr<ReplicatedUpdate> replicated_update_;
  bool has_means_ = false;
  at::Tensor is_mean_;       // [F] fp32
  at::Tensor feature_dims_;  // [F] int64

  // Of columns of tables under row-wise Adagrad.
  RowSums row_sums_;
  std::vector<std::vector<size_t>> sharers_;  // by rank: those of row_sums_.tables that it has columns of too
  bool has_row_sums_ = false;                 // of any rank
  bool row_sums_added_ = false;               // in this step

  std::deque<std::shared_ptr<Round>> ahead_;  // prefetched
  std::shared_ptr<Round> started_;
  std::vector<std::shared_ptr<Round>> kept_;  // with gradients, for step()
};

}  // namespace trainer::embedding
