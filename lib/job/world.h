#pragma once

#include <cstdint>
#include <string>

namespace trainer {

// This process's place among all workers, as torchrun's environment gives it.
struct World {
  int64_t rank = 0;
  int64_t size = 1;
  int64_t local_rank = 0;
  int64_t local_size = 1;
  int64_t node_rank = 0;
  int64_t num_nodes = 1;
  std::string master_addr = "127.0.0.1";
  int64_t master_port = 0;

  bool is_main() const { return rank == 0; }
};

}  // namespace trainer
