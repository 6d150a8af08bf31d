#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launch/coordinator/messages.h"

namespace trainer::launch {

// Finds ranks that hold up the others: in data parallelism all ranks take equally long for a step, but who is slow
// waits less for its peers. So the time outside of waiting is compared, interval by interval.
class Stragglers {
 public:
  explicit Stragglers(double factor) : factor_(factor) {}

  // Forgets all; an attempt of `num_nodes` begins.
  void begin(int64_t num_nodes);
  // A node's ranks at the end of an interval. When the last node of the interval has told: a line for each rank that
  // was busy at least `factor` times as long as the median rank.
  std::vector<std::string> add(int64_t node_rank, const Status& status);

 private:
  std::vector<std::string> compare() const;

  double factor_;
  int64_t num_nodes_ = 1;
  struct Busy {
    int64_t total_ns = 0;
    int64_t interval_ns = 0;
    int64_t node_rank = 0;
  };
  std::map<int64_t, Busy> busy_;           // by rank
  std::map<int64_t, int64_t> nodes_told_;  // by interval
};

}  // namespace trainer::launch
