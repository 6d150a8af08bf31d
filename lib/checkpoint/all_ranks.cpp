#include "checkpoint/all_ranks.h"

#include <ATen/ATen.h>

#include <cstring>
#include <exception>

#include "core/error.h"
#include "dist/failure.h"

namespace trainer::checkpoint {
namespace {

std::vector<std::string> gather(dist::Communicator& communicator, const std::string& text) {
  const at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  if (!text.empty()) std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  const at::Tensor sizes = communicator.all_gather_rows(at::full({1}, bytes.size(0), at::kLong));
  const at::Tensor all = communicator.all_gather_rows(bytes);
  std::vector<std::string> texts;
  const auto* at = reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>());
  for (int64_t rank = 0; rank < sizes.size(0); ++rank) {
    const auto size = static_cast<size_t>(sizes[rank].item<int64_t>());
    texts.emplace_back(at, size);
    at += size;
  }
  return texts;
}

}  // namespace

std::vector<std::string> on_all_ranks(dist::Communicator& communicator,
                                      const std::function<std::string()>& work) {
  constexpr char kDone = '+', kFailed = '-';
  std::string outcome;
  try {
    outcome = kDone + work();
  } catch (const Error& error) {
    outcome = kFailed + std::string(error.what());
  } catch (const std::exception& error) {
    outcome = kFailed + dist::first_line(error);
  }
  std::vector<std::string> outcomes = gather(communicator, outcome);
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    std::string& text = outcomes[rank];
    const bool failed = text.front() == kFailed;
    text.erase(0, 1);
    if (failed) fail<CheckpointError>("{}{}", rank > 0 ? fmt::format("rank {}: ", rank) : "", text);
  }
  return outcomes;
}

std::string on_main_rank(dist::Communicator& communicator, const std::function<std::string()>& work) {
  return on_all_ranks(communicator, [&] { return communicator.rank() == 0 ? work() : std::string(); })
      .front();
}

}  // namespace trainer::checkpoint
