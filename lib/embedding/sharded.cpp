#include "embedding/sharded.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <torch/csrc/autograd/function.h>
#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"
#include "embedding/initialize.h"
#include "embedding/pooled.h"
#include "embedding/routing.h"

namespace trainer::embedding {
namespace {

size_t index(int64_t i) {
  return static_cast<size_t>(i);
}

// Of a batch of no samples, whatever its records are.
data::Records or_empty(const data::Records& records, int64_t batch) {
  if (batch > 0) return records;
  data::Records empty;
  empty.ids = at::empty({0}, at::kLong);
  empty.offsets = at::zeros({1}, at::kLong);
  return empty;
}

Lookup to_device(const Lookup& lookup, at::Device device) {
  const auto move = [&](const at::Tensor& t) {
    return t.defined() ? t.to(device, t.scalar_type(), true) : t;
  };
  return {move(lookup.ids), move(lookup.offsets), move(lookup.weights), lookup.batch};
}

bool is_columns(const Shard& shard, const std::vector<TableConfig>& tables) {
  return shard.place.cols < tables[index(shard.table)].dim;
}

}  // namespace

struct ShardedEmbedding::Round {
  at::Tensor ids;  // of its records, which it is known by
  int64_t batch = 0;
  at::Tensor inverse;  // [B, F]: what pooled rows are multiplied by; undefined: 1

  // Ids to the owners.
  Routed routed;
  at::Tensor sizes;  // [W, num_sizes]
  std::unique_ptr<dist::Pending> sizes_pending, ids_pending;
  at::Tensor received;

  Lookup owned, replicated;      // of all ranks' samples; of this rank's
  std::vector<int64_t> batches;  // B_r
  at::Tensor owned_pooled, replicated_pooled;
  std::unique_ptr<Exchange> pooled, gradients;
  at::Tensor owned_gradient, replicated_gradient;
};

struct PooledBackward : torch::autograd::Node {
  ShardedEmbedding& embedding;
  std::shared_ptr<ShardedEmbedding::Round> round;

  PooledBackward(ShardedEmbedding& e, std::shared_ptr<ShardedEmbedding::Round> r)
      : embedding(e), round(std::move(r)) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::NoGradGuard no_grad;
    embedding.send_gradients(round, gradients[0]);
    return {};
  }
  void release_variables() override { round.reset(); }
};

ShardedEmbedding::ShardedEmbedding(const std::vector<TableConfig>& tables, const EmbeddingPlan& plan,
                                   const ShardedOptions& options, dist::Communicator& communicator,
                                   at::Device device)
    : tables_(tables),
      layout_(make_layout(tables, plan)),
      compression_(options.compression),
      device_(device),
      channel_(communicator.channel("embeddings")) {
  check_equal_plans(plan);
  const Owner& owner = layout_.owners[index(channel_->rank())];
  if (!owner.shards.empty()) owned_ = make(owner, options, owned_shards_);
  if (!layout_.replicated.shards.empty()) {
    replicated_ = make(layout_.replicated, options, replicated_shards_);
    replicated_update_ = std::make_unique<ReplicatedUpdate>(layout_.replicated, replicated_shards_, device_);
  }
  prepare_row_sums(options);

  at::Tensor is_mean = at::zeros({static_cast<int64_t>(layout_.feature_dims.size())}, at::kFloat);
  for (const TableConfig& t : tables_) {
    if (t.pooling != spec::Pooling::kMean) continue;
    has_means_ = true;
    for (const int64_t f : t.features) is_mean[f] = 1;
  }
  is_mean_ = is_mean.to(device_);
  feature_dims_ = at::tensor(layout_.feature_dims, at::kLong).to(device_);
}

ShardedEmbedding::~ShardedEmbedding() = default;

std::unique_ptr<Tables> ShardedEmbedding::make(const Owner& owner, const ShardedOptions& options,
                                               std::vector<Table>& shards) {
  for (const Shard& s : owner.shards) {
    const TableConfig& t = tables_[index(s.table)];
    shards.push_back({t.name, s.place.rows, s.place.cols, t.dtype, s.place.row_begin, s.place.col_begin});
  }
  std::vector<int64_t> feature_tables;
  for (const Piece& piece : owner.pieces) feature_tables.push_back(piece.shard);
  auto made =
      make_tables(options.backend, shards, feature_tables, options.optimizer, device_, options.placement);
  for (size_t i = 0; i < shards.size(); ++i) {
    const Table& s = shards[i];
    initialize(made->weight(static_cast<int64_t>(i)), s.name, options.seed,
               tables_[index(owner.shards[i].table)].rows, s.row_begin, s.column_begin);
  }
  return made;
}

void ShardedEmbedding::check_equal_plans(const EmbeddingPlan& plan) {
  uint64_t hash = 14695981039346656037ULL;
  const auto add = [&](int64_t value) { hash = (hash ^ static_cast<uint64_t>(value)) * 1099511628211ULL; };
  for (size_t t = 0; t < tables_.size(); ++t) {
    add(tables_[t].rows);
    add(tables_[t].dim);
    add(static_cast<int64_t>(plan.tables[t].sharding));
    for (const TableShard& s : plan.tables[t].shards) {
      for (const int64_t value : {s.rank, s.row_begin, s.rows, s.col_begin, s.cols}) add(value);
    }
  }
  const at::Tensor hashes = channel_->all_gather_rows(at::full({1}, static_cast<int64_t>(hash), at::kLong));
  const at::Tensor different = (hashes != hashes[0]).nonzero();
  if (different.numel() == 0) return;
  fail<DistributedError>(
      "ranks 0 and {} place the embedding tables differently; all need the same tables, batch and memory for "
      "them "
      "(parallel.embedding_memory_gb)",
      different[0].item<int64_t>());
}

// ---- Forward ----

void ShardedEmbedding::prefetch(const data::Records& records, int64_t batch) {
  if (channel_->size() == 1) return;
  ahead_.push_back(begin(records, batch));
}

std::shared_ptr<ShardedEmbedding::Round> ShardedEmbedding::begin(const data::Records& given, int64_t batch) {
  const data::Records records = or_empty(given, batch);
  auto round = std::make_shared<Round>();
  round->ids = given.ids;
  round->batch = batch;
  if (has_means_) {
    const auto features = static_cast<int64_t>(layout_.feature_dims.size());
    const at::Tensor lengths = records.offsets.diff().view({features, batch}).t().to(device_, at::kFloat);
    round->inverse =
        at::where(is_mean_ > 0, lengths.clamp_min(1), at::ones({}, is_mean_.options())).reciprocal_();
  }
  if (channel_->size() == 1) {
    round->owned = to_device({records.ids, records.offsets, records.weights, batch}, device_);
    return round;
  }
  if (replicated_) round->replicated = to_device(select(layout_.replicated, records, batch), device_);
  round->routed = route(layout_, records, batch, device_.is_cuda());
  const Owner& me = layout_.owners[index(channel_->rank())];
  std::vector<int64_t> sent;
  for (const Owner& owner : layout_.owners) sent.push_back(num_sizes(owner));
  round->sizes = at::empty({channel_->size(), num_sizes(me)}, at::kLong);
  const std::vector<int64_t> received(index(channel_->size()), num_sizes(me));
  round->sizes_pending = channel_->all_to_all_rows(round->sizes.view(-1), round->routed.sizes, received, sent,
                                                   "sizes of embedding ids");
  return round;
}

void ShardedEmbedding::send_ids(Round& round) {
  if (!round.sizes_pending) return;
  round.sizes_pending->wait();
  round.sizes_pending.reset();
  const auto elements = num_elements(layout_.owners[index(channel_->rank())], round.sizes);
  const at::Tensor sent = round.routed.buffer.to(device_, round.routed.buffer.scalar_type(), true);
  round.received = at::empty({c10::sum_integers(elements)}, sent.options());
  round.ids_pending =
      channel_->all_to_all_rows(round.received, sent, elements, round.routed.elements, "embedding ids");
  round.routed = {};
}

void ShardedEmbedding::send_ids_ahead() {
  for (const auto& round : ahead_) send_ids(*round);
}

void ShardedEmbedding::start(const data::Records& records, int64_t batch) {
  const at::NoGradGuard no_grad;
  const auto found = std::find_if(ahead_.begin(), ahead_.end(), [&](const std::shared_ptr<Round>& r) {
    return r->ids.is_same(records.ids) && r->batch == batch;
  });
  if (found != ahead_.end()) {
    started_ = *found;
    ahead_.erase(found);
  } else {
    started_ = begin(records, batch);
  }
  Round& round = *started_;
  if (channel_->size() == 1) {
    round.owned_pooled = owned_->forward(round.owned);
    return;
  }
  send_ids(round);
  round.ids_pending->wait();
  round.ids_pending.reset();
  const Owner& me = layout_.owners[index(channel_->rank())];
  round.owned = unpack(me, round.sizes, round.received);
  round.received.reset();
  for (int64_t r = 0; r < channel_->size(); ++r) round.batches.push_back(round.sizes[r][0].item<int64_t>());
  const at::Tensor pooled =
      owned_ ? owned_->forward(round.owned)
             : at::empty({round.owned.batch, 0}, at::TensorOptions(device_).dtype(at::kFloat));
  std::vector<std::vector<int64_t>> sizes;
  for (const Owner& owner : layout_.owners) sizes.push_back({batch, owner.columns});
  round.pooled = std::make_unique<Exchange>(*channel_, compression_, pooled.split_with_sizes(round.batches),
                                            std::move(sizes), "pooled embeddings");
  if (replicated_) round.replicated_pooled = replicated_->forward(round.replicated);
  send_ids_ahead();
}

at::Tensor ShardedEmbedding::finish() {
  const auto round = std::exchange(started_, nullptr);
  at::Tensor all;
  {
    const at::NoGradGuard no_grad;
    if (channel_->size() == 1) {
      all = std::exchange(round->owned_pooled, {});
    } else {
      all = at::empty({round->batch, layout_.columns}, at::TensorOptions(device_).dtype(at::kFloat));
      const std::vector<at::Tensor> pooled = round->pooled->wait();
      round->pooled.reset();
      for (size_t o = 0; o < pooled.size(); ++o) gather_columns(layout_.owners[o], pooled[o], all);
      if (replicated_) gather_columns(layout_.replicated, std::exchange(round->replicated_pooled, {}), all);
    }
    if (round->inverse.defined()) all.mul_(by_column(round->inverse));
  }
  if (at::GradMode::is_enabled()) {
    torch::autograd::create_gradient_edge(
        all, std::shared_ptr<torch::autograd::Node>(new PooledBackward(*this, round),
                                                    torch::autograd::deleteNode));
  }
  return all;
}

at::Tensor ShardedEmbedding::by_column(const at::Tensor& by_feature) const {
  return by_feature.repeat_interleave(feature_dims_, 1, layout_.columns);
}

// ---- Backward and update ----

void ShardedEmbedding::send_gradients(const std::shared_ptr<Round>& round, at::Tensor gradient) {
  const auto options = at::TensorOptions(device_).dtype(at::kFloat);
  if (!gradient.defined()) gradient = at::zeros({round->batch, layout_.columns}, options);
  gradient = round->inverse.defined() ? gradient * by_column(round->inverse) : gradient.contiguous();
  kept_.push_back(round);
  if (channel_->size() == 1) {
    round->owned_gradient = std::move(gradient);
    return;
  }
  std::vector<at::Tensor> blocks;
  for (const Owner& owner : layout_.owners) blocks.push_back(owner_columns(owner, gradient));
  std::vector<std::vector<int64_t>> sizes;
  for (const int64_t b : round->batches)
    sizes.push_back({b, layout_.owners[index(channel_->rank())].columns});
  round->gradients = std::make_unique<Exchange>(*channel_, compression_, blocks, std::move(sizes),
                                                "gradients of pooled embeddings");
  if (replicated_) round->replicated_gradient = owner_columns(layout_.replicated, gradient);
  send_ids_ahead();
}

void ShardedEmbedding::receive_gradients() {
  for (const auto& round : kept_) {
    if (!round->gradients) continue;
    round->owned_gradient = at::cat(round->gradients->wait());
    round->gradients.reset();
  }
}

at::Tensor ShardedEmbedding::gradient_flag() {
  const at::NoGradGuard no_grad;
  receive_gradients();
  at::Tensor flag = at::zeros({}, at::TensorOptions(device_).dtype(at::kFloat));
  for (const auto& round : kept_) {
    for (const at::Tensor& g : {round->owned_gradient, round->replicated_gradient}) {
      if (!g.defined() || g.numel() == 0) continue;
      const auto [least, most] = g.aminmax();
      flag.add_((least * 0).add_(most * 0));  // NaN of NaN and inf
    }
  }
  channel_->all_reduce_sum(flag);
  return flag;
}

void ShardedEmbedding::step(const at::Tensor& lr, const at::Tensor& grad_scale, const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  receive_gradients();
  std::vector<Lookup> lookups, replicated_lookups;
  std::vector<at::Tensor> gradients, replicated_gradients;
  for (const auto& round : kept_) {
    lookups.push_back(std::move(round->owned));
    gradients.push_back(std::move(round->owned_gradient));
    if (!replicated_) continue;
    replicated_lookups.push_back(std::move(round->replicated));
    replicated_gradients.push_back(std::move(round->replicated_gradient));
  }
  kept_.clear();
  row_sums_added_ = false;
  if (owned_) {
    owned_->step(lookups, gradients, lr, grad_scale, found_inf,
                 row_sums_.tables.empty() ? nullptr : &row_sums_);
  }
  if (has_row_sums_ && !row_sums_added_) add_row_sums({});
  if (replicated_) {
    replicated_update_->step(*replicated_, *channel_, replicated_lookups, replicated_gradients, lr,
                             grad_scale, found_inf);
  }
  send_ids_ahead();
}

void ShardedEmbedding::prepare_row_sums(const ShardedOptions& options) {
  if (options.optimizer.type != spec::TableOptimizerType::kRowwiseAdagrad) return;
  sharers_.resize(layout_.owners.size());
  const auto& mine = layout_.owners[index(channel_->rank())].shards;
  for (const Owner& owner : layout_.owners) {
    for (const Shard& s : owner.shards) has_row_sums_ |= is_columns(s, tables_);
  }
  for (size_t i = 0; i < mine.size(); ++i) {
    if (!is_columns(mine[i], tables_)) continue;
    for (size_t r = 0; r < layout_.owners.size(); ++r) {
      const auto& shards = layout_.owners[r].shards;
      if (std::any_of(shards.begin(), shards.end(), [&](const Shard& s) { return s.table == mine[i].table; }))
        sharers_[r].push_back(row_sums_.tables.size());
    }
    row_sums_.tables.push_back(static_cast<int64_t>(i));
    row_sums_.total_dims.push_back(tables_[index(mine[i].table)].dim);
  }
  row_sums_.add = [this](std::span<at::Tensor> sums) { add_row_sums(sums); };
}

// Every rank takes part, most with nothing. Sums are added in the order of the ranks, so that all who share a table get the
// same.
void ShardedEmbedding::add_row_sums(std::span<at::Tensor> sums) {
  row_sums_added_ = true;
  const at::Tensor none = at::empty({0}, at::TensorOptions(device_).dtype(at::kFloat));
  std::vector<at::Tensor> blocks;
  std::vector<std::vector<int64_t>> sizes;
  for (const auto& shared : sharers_) {
    std::vector<at::Tensor> parts = {none};
    if (!sums.empty()) {
      for (const size_t i : shared) parts.push_back(sums[i]);
    }
    blocks.push_back(at::cat(parts));
    sizes.push_back({blocks.back().size(0)});
  }
  Exchange exchange(*channel_, spec::GradientCompression::kNone, blocks, std::move(sizes),
                    "sums of squares of rows");
  const std::vector<at::Tensor> received = exchange.wait();
  for (const at::Tensor& s : sums) s.zero_();
  for (size_t r = 0; r < received.size() && !sums.empty(); ++r) {
    int64_t at = 0;
    for (const size_t i : sharers_[r]) {
      sums[i].add_(received[r].narrow(0, at, sums[i].size(0)));
      at += sums[i].size(0);
    }
  }
}

// ---- What lies here ----

std::vector<tensors::Slice> ShardedEmbedding::slices() {
  std::vector<tensors::Slice> result;
  const int64_t rank = channel_->rank();
  const auto add = [&](const Shard& shard, const std::string& what, const at::Tensor& tensor, bool is_copy) {
    const TableConfig& t = tables_[index(shard.table)];
    tensors::Slice s;
    s.name = fmt::format("embeddings.{}.{}", t.name, what);
    if (tensor.dim() >= 1) s.shape.push_back(t.rows), s.row_begin = shard.place.row_begin;
    if (tensor.dim() == 2) s.shape.push_back(t.dim), s.col_begin = shard.place.col_begin;
    s.tensor = tensor;
    s.is_copy = is_copy;
    result.push_back(std::move(s));
  };
  const auto add_all = [&](const Owner& owner, Tables& tables, bool is_replicated) {
    for (size_t i = 0; i < owner.shards.size(); ++i) {
      const Shard& shard = owner.shards[i];
      const bool is_copy = is_replicated && rank != 0;
      add(shard, "weight", tables.weight(static_cast<int64_t>(i)), is_copy);
      for (const auto& [name, tensor] : tables.state(static_cast<int64_t>(i))) {
        // Of what has fewer dimensions than the table the ranks that share it have the same.
        const bool is_first = (tensor.dim() >= 1 || shard.place.row_begin == 0) &&
                              (tensor.dim() >= 2 || shard.place.col_begin == 0);
        add(shard, name, tensor, is_copy || !is_first);
      }
    }
  };
  if (owned_) add_all(layout_.owners[index(rank)], *owned_, false);
  if (replicated_) add_all(layout_.replicated, *replicated_, true);
  return result;
}

int64_t ShardedEmbedding::weight_bytes() const {
  int64_t bytes = 0;
  for (const auto* shards : {&owned_shards_, &replicated_shards_}) {
    for (const Table& t : *shards) bytes += t.rows * t.dim * element_bytes(t.dtype);
  }
  return bytes;
}

int64_t ShardedEmbedding::state_bytes() const {
  return (owned_ ? owned_->state_bytes() : 0) + (replicated_ ? replicated_->state_bytes() : 0);
}

std::string ShardedEmbedding::backend() const {
  return owned_ ? owned_->backend() : replicated_ ? replicated_->backend() : "none";
}

}  // namespace trainer::embedding
