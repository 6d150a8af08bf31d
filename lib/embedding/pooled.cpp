#include "embedding/pooled.h"

#include <ATen/Functions.h>
#include <c10/util/accumulate.h>

#include <utility>

namespace trainer::embedding {
namespace {

using spec::GradientCompression;

at::ScalarType type_of(GradientCompression compression) {
  switch (compression) {
    case GradientCompression::kNone:
      return at::kFloat;
    case GradientCompression::kFp16:
      return at::kHalf;
    case GradientCompression::kBf16:
      return at::kBFloat16;
  }
  return at::kFloat;
}

// fp16: the message begins with its fp32 factor, and ends at a multiple of 4 bytes.
constexpr int64_t kHeader = 2;
int64_t message_elements(GradientCompression compression, int64_t values) {
  if (compression != GradientCompression::kFp16 || values == 0) return values;
  return kHeader + values + values % 2;
}

// 1 where there is inf or NaN, which must arrive as such.
at::Tensor factor_of(const at::Tensor& block) {
  constexpr double kLargest = 16384;  // of 65504
  const at::Tensor factor = (kLargest / block.abs().amax()).log2().floor().clamp(-60, 60).exp2();
  return at::where(factor.isfinite(), factor, at::ones({}, factor.options()));
}

void write_message(GradientCompression compression, const at::Tensor& block, at::Tensor message) {
  if (block.numel() == 0) return;
  if (compression == GradientCompression::kFp16) {
    const at::Tensor factor = factor_of(block);
    message.narrow(0, 0, kHeader).view(at::kFloat).copy_(factor.view(1));
    message.narrow(0, kHeader, block.numel()).view(block.sizes()).copy_(block * factor);
  } else {
    message.view(block.sizes()).copy_(block);
  }
}

at::Tensor read_message(GradientCompression compression, const at::Tensor& message,
                        const std::vector<int64_t>& size) {
  const int64_t values = c10::multiply_integers(size);
  if (compression != GradientCompression::kFp16 || values == 0) return message.view(size).to(at::kFloat);
  const at::Tensor factor = message.narrow(0, 0, kHeader).view(at::kFloat);
  return message.narrow(0, kHeader, values).view(size).to(at::kFloat).div_(factor);
}

}  // namespace

Exchange::Exchange(dist::Communicator& communicator, GradientCompression compression,
                   const std::vector<at::Tensor>& blocks, std::vector<std::vector<int64_t>> sizes,
                   const char* what)
    : compression_(compression), sizes_(std::move(sizes)) {
  const auto options = blocks.front().options().dtype(type_of(compression));
  std::vector<int64_t> to;
  for (const at::Tensor& block : blocks) to.push_back(message_elements(compression, block.numel()));
  for (const auto& size : sizes_)
    elements_.push_back(message_elements(compression, c10::multiply_integers(size)));
  const at::Tensor sent = at::empty({c10::sum_integers(to)}, options);
  int64_t at = 0;
  for (size_t r = 0; r < blocks.size(); at += to[r++])
    write_message(compression, blocks[r], sent.narrow(0, at, to[r]));
  received_ = at::empty({c10::sum_integers(elements_)}, options);
  pending_ = communicator.all_to_all_rows(received_, sent, elements_, to, what);
}

std::vector<at::Tensor> Exchange::wait() {
  pending_->wait();
  pending_.reset();
  std::vector<at::Tensor> blocks;
  int64_t at = 0;
  for (size_t r = 0; r < sizes_.size(); at += elements_[r++])
    blocks.push_back(read_message(compression_, received_.narrow(0, at, elements_[r]), sizes_[r]));
  return blocks;
}

void gather_columns(const Owner& owner, const at::Tensor& pooled, const at::Tensor& all) {
  for (const Run& run : owner.runs) {
    const at::Tensor from = pooled.narrow(1, run.owner_column, run.cols),
                     to = all.narrow(1, run.column, run.cols);
    run.is_added ? to.add_(from) : to.copy_(from);
  }
}

at::Tensor owner_columns(const Owner& owner, const at::Tensor& all) {
  const at::Tensor result = at::empty({all.size(0), owner.columns}, all.options());
  for (const Run& run : owner.runs)
    result.narrow(1, run.owner_column, run.cols).copy_(all.narrow(1, run.column, run.cols));
  return result;
}

}  // namespace trainer::embedding
