#include "launch/coordinator/stragglers.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainer::launch {

void Stragglers::begin(int64_t num_nodes) {
  num_nodes_ = num_nodes;
  busy_.clear();
  nodes_told_.clear();
}

std::vector<std::string> Stragglers::add(int64_t node_rank, const Status& status) {
  for (const RankStatus& rank : status.ranks) {
    Busy& busy = busy_[rank.rank];
    busy.interval_ns = rank.busy_ns - busy.total_ns;
    busy.total_ns = rank.busy_ns;
    busy.node_rank = node_rank;
  }
  if (++nodes_told_[status.interval] < num_nodes_) return {};
  nodes_told_.erase(nodes_told_.begin(), nodes_told_.upper_bound(status.interval));
  return compare();
}

std::vector<std::string> Stragglers::compare() const {
  std::vector<int64_t> times;
  for (const auto& [rank, busy] : busy_) times.push_back(busy.interval_ns);
  if (times.size() < 2) return {};
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
  std::nth_element(times.begin(), middle, times.end());
  const auto median = static_cast<double>(*middle);
  std::vector<std::string> lines;
  for (const auto& [rank, busy] : busy_) {
    const auto time = static_cast<double>(busy.interval_ns);
    if (median <= 0 || time < factor_ * median) continue;
    lines.push_back(
        fmt::format("slow: rank {} (node {}) was busy for {:.1f} s, {:.1f} times as long as the median rank",
                    rank, busy.node_rank, 1e-9 * time, time / median));
  }
  return lines;
}

}  // namespace trainer::launch
