#include "dist/reduced_gradients.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <functional>
#include <limits>
#include <sstream>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "core/clock.h"
#include "core/error.h"
#include "dist/failure.h"

namespace trainer::dist {
namespace {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// ---- Equal models ----

std::string describe(const NamedTensors& parameters, const std::vector<at::Tensor>& buffers) {
  std::ostringstream text;
  for (const auto& [name, t] : parameters)
    text << "parameter " << name << ' ' << t.dtype() << ' ' << t.sizes() << '\n';
  for (size_t i = 0; i < buffers.size(); ++i) {
    text << "buffer " << i << ' ' << buffers[i].dtype() << ' ' << buffers[i].sizes() << '\n';
  }
  return text.str();
}

int64_t fnv1a(const std::string& text) {
  uint64_t hash = 14695981039346656037ULL;
  for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211ULL;
  return static_cast<int64_t>(hash);
}

// One number a rank is gathered; the descriptions only when the numbers differ. Every rank throws the same
// message.
void check_equal(Communicator& communicator, const std::string& text) {
  const at::Tensor hashes = communicator.all_gather_rows(at::full({1}, fnv1a(text), at::kLong));
  const at::Tensor different = (hashes != hashes[0]).nonzero();
  if (different.numel() == 0) return;
  const int64_t other = different[0].item<int64_t>();

  const auto bytes = [&](bool mine) {
    const auto size = mine ? static_cast<int64_t>(text.size()) : 0;
    return at::from_blob(const_cast<char*>(text.data()), {size}, at::kByte);
  };
  // Only rank 0 and the first that differs have something to say.
  const auto text_of = [&](int64_t rank) {
    const at::Tensor all = communicator.all_gather_rows(bytes(communicator.rank() == rank));
    return std::string(reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>()),
                       static_cast<size_t>(all.numel()));
  };
  std::istringstream a(text_of(0)), b(text_of(other));
  const auto next = [](std::istringstream& in) {
    std::string line;
    return std::getline(in, line) ? line : std::string("nothing more");
  };
  std::string line_a, line_b;
  do {
    line_a = next(a);
    line_b = next(b);
  } while (line_a == line_b && a && b);
  fail<DistributedError>(
      "the ranks hold different models: '{}' on rank 0, '{}' on rank {}; every node needs the same job "
      "file and model files",
      line_a, line_b, other);
}

// ---- Reduction ----

// A hook, since the Reducer's own reduction divides by the world size: a plain sum, at half the bytes when
// compressed. Notes when the last bucket was sent: what backward takes after that is waiting.
class SumHook : public c10d::CppCommHookInterface<GroupPtr> {
 public:
  SumHook(GroupPtr group, spec::GradientCompression compression, int64_t& sent_ns,
          std::function<void()> on_waiting)
      : CppCommHookInterface(std::move(group)),
        compression_(compression),
        sent_ns_(sent_ns),
        on_waiting_(std::move(on_waiting)) {}

  FuturePtr runHook(c10d::GradBucket& bucket) override {
    FuturePtr sum = send(bucket);
    sent_ns_ = monotonic_ns();
    if (bucket.isLast() && on_waiting_) on_waiting_();
    return sum;
  }

 private:
  FuturePtr send(c10d::GradBucket& bucket) {
    const at::Tensor& buffer = bucket.getBufferRef();
    if (compression_ == spec::GradientCompression::kNone) {
      std::vector<at::Tensor> tensors = {buffer};
      return state_->allreduce(tensors)->getFuture();
    }
    const bool fp16 = compression_ == spec::GradientCompression::kFp16;
    std::vector<at::Tensor> small = {buffer.to(fp16 ? at::kHalf : at::kBFloat16)};
    const FuturePtr reduced = state_->allreduce(small)->getFuture();
    const auto restore = [buffer](c10::ivalue::Future& done) -> c10::IValue {
      const at::Tensor target = buffer;
      target.copy_(c10d::detail::parseCppCommHookResult(done.value()));
      return target;
    };
    return reduced->then(restore, c10::TensorType::get());
  }

  spec::GradientCompression compression_;
  int64_t& sent_ns_;
  std::function<void()> on_waiting_;
};

// c10d's would learn the order of gradients in the first backward, all in one bucket, and then make its buckets anew. Here
// they are in reverse order of the parameters, which is about the order that gradients come in, from the first step on: no
// step is summed otherwise than another, so that a resumed job's sums are rounded as the uninterrupted one's.
class Reducer : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;
  // Once, before the first step. A collective.
  void order_buckets(size_t num_parameters) {
    for (size_t i = num_parameters; i > 0; --i) push_rebuilt_params(i - 1);
    rebuild_buckets();
  }
};

class ReducedGradients : public GradientSync {
 public:
  ReducedGradients(Communicator& communicator, const spec::Parallel& options, const NamedTensors& parameters,
                   const std::vector<at::Tensor>& buffers, std::function<void()> on_waiting)
      : who_{communicator.rank(), communicator.size(), options.timeout_s},
        static_graph_(options.static_graph) {
    check_equal(communicator, describe(parameters, buffers));
    std::unordered_map<size_t, std::string> names;
    for (const auto& [name, p] : parameters) {
      names.emplace(parameters_.size(), name);
      names_.push_back(name);
      parameters_.push_back(p);
    }
    std::vector<at::Tensor> all = parameters_;
    all.insert(all.end(), buffers.begin(), buffers.end());
    communicator.broadcast(all, 0);

    // The first buckets stay only where parameters may be unused: there c10d makes none anew.
    const auto cap = static_cast<int64_t>(options.bucket_cap_mb * 1024 * 1024);
    const bool rebuilt = options.static_graph || !options.find_unused_parameters;
    const std::vector<size_t> limits =
        rebuilt ? std::vector<size_t>{std::numeric_limits<int64_t>::max()}
                : std::vector<size_t>{c10d::kDefaultFirstBucketBytes, static_cast<size_t>(cap)};
    const std::vector<bool> sparse(parameters_.size(), false);
    auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters_, limits, sparse));
    std::reverse(buckets.begin(), buckets.end());
    auto group = GroupPtr::reclaim_copy(communicator.process_group());
    const auto reducer = std::make_shared<Reducer>(
        parameters_, std::move(buckets), group, sparse, cap, options.find_unused_parameters,
        /*gradient_as_bucket_view=*/true, std::move(names), c10d::kDefaultFirstBucketBytes,
        /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
        /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
    reducer_ = reducer;
    reducer_->register_comm_hook(
        std::make_unique<SumHook>(group, options.gradient_compression, sent_ns_, std::move(on_waiting)));
    logger_ = std::make_shared<c10d::Logger>(reducer_);
    reducer_->set_logger(logger_);
    if (static_graph_) reducer_->set_static_graph();
    if (rebuilt)
      collective(who_, "agreeing on gradient buckets", [&] { reducer->order_buckets(parameters_.size()); });
  }

  void before_forward(bool last) override {
    if (!last) return;
    collective(who_, "preparing a step", [&] { reducer_->prepare_for_forward(); });
  }

  double backward(const at::Tensor& loss, bool last) override {
    if (!last) {
      loss.backward();
      return 0;
    }
    try {
      reducer_->prepare_for_backward({loss});
      sent_ns_ = 0;
      loss.backward();
      // The first backward of a static graph only counts uses; then all is reduced at once.
      if (static_graph_ && !std::exchange(graph_known_, true)) reducer_->delay_all_reduce();
    } catch (const std::exception& e) {
      // LibTorch's own errors are those of this rank's computation, unless c10d says otherwise; Gloo's are
      // not c10's.
      const bool local = dynamic_cast<const c10::Error*>(&e) != nullptr;
      if (local && dynamic_cast<const c10::DistError*>(&e) == nullptr) throw;
      fail_collective(who_, "gradient all_reduce", e);
    }
    const double wait_s = sent_ns_ == 0 ? 0 : static_cast<double>(monotonic_ns() - sent_ns_) * 1e-9;
    check_complete();
    return wait_s;
  }

  std::vector<at::Tensor> gradients() override {
    std::vector<at::Tensor> result;
    for (const auto& p : parameters_) result.push_back(p.grad());
    return result;
  }

  void zero_grad() override {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> defined;
    for (const auto& p : parameters_) {
      if (p.grad().defined()) defined.push_back(p.grad());
    }
    if (!defined.empty()) at::_foreach_zero_(defined);
  }

 private:
  // Without find_unused_parameters the Reducer waits for every parameter; what it waits for in vain, it says
  // only in the next step, when wrong gradients are in the weights.
  void check_complete() {
    try {
      reducer_->check_finalized();
    } catch (const std::exception& e) {
      const std::string text = e.what(), mark = fmt::format("did not receive grad for rank {}: ", who_.rank);
      std::string unused;
      if (const size_t at = text.find(mark); at != std::string::npos) {
        std::istringstream indices(text.substr(at + mark.size()));
        for (size_t i; indices >> i && i < names_.size();) unused += (unused.empty() ? "" : ", ") + names_[i];
      }
      fail<DistributedError>(
          "rank {} of {}: parameters took no part in the loss, so their gradients were never reduced: {}; "
          "set parallel.find_unused_parameters: true, or freeze them",
          who_.rank, who_.size, unused.empty() ? "(not known which)" : unused);
    }
  }

  Waiting who_;
  bool static_graph_;
  bool graph_known_ = false;
  int64_t sent_ns_ = 0;  // the last bucket of this backward; the Reducer's hook sets it
  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;  // the Reducer writes to it unasked, with unused parameters
};

}  // namespace

std::unique_ptr<GradientSync> make_reduced_gradients(Communicator& communicator,
                                                     const spec::Parallel& options,
                                                     const NamedTensors& parameters,
                                                     const std::vector<at::Tensor>& buffers,
                                                     std::function<void()> on_waiting) {
  return std::make_unique<ReducedGradients>(communicator, options, parameters, buffers,
                                            std::move(on_waiting));
}

}  // namespace trainer::dist
