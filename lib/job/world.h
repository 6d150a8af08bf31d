#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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
  bool operator==(const World&) const = default;
};

// The world when another program started this process as one of several workers; nothing when it stands
// alone. Who may have started it, in this order:
//   an agent or torchrun: TRAINER_WORKER=1, or TORCHELASTIC_RUN_ID and LOCAL_RANK; then RANK, WORLD_SIZE,
//     LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE, MASTER_ADDR, MASTER_PORT. RANK and
//     WORLD_SIZE alone make no worker: some schedulers set them for a whole node.
//   srun or mpirun when the command line (is_agent) or PET_NNODES, PET_NODE_RANK or PET_RDZV_ENDPOINT speaks of
//     nodes: nobody, they started an agent on each node.
//   srun with more than one task: SLURM_*. Rank 0's host is the step's first node; the port is MASTER_PORT,
//     or made from the job's and the step's numbers.
//   mpirun (Open MPI) with more than one process: OMPI_COMM_WORLD_*, MASTER_ADDR (when on several nodes) and
//     MASTER_PORT, or one made from the run's PMIX_NAMESPACE (29500, torch's default, without).
// Throws SpecError with every variable that is missing or malformed.
std::optional<World> world_from_environment(bool is_agent = false);

// The first host of a Slurm list: "gpu[07-09,12],login" is gpu07; empty when malformed.
std::string slurm_first_host(std::string_view list);

}  // namespace trainer
