#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hardware/machine.h"
#include "hardware/topology.h"
#include "spec/job_spec.h"

namespace trainer::launch {

// Where one worker runs: process::SpawnOptions has the same two lists.
struct Binding {
  hardware::IdList cpus;
  hardware::IdList memory_nodes;  // preferred, so that a full one ends no job
  int64_t num_cores = 0;          // physical ones of `cpus`
  bool operator==(const Binding&) const = default;
};

struct Placement {
  spec::NumaBinding binding = spec::NumaBinding::kNone;  // what was done: never kAuto
  std::vector<Binding> workers;                          // by local rank; empty: none is bound
  std::string warning;  // why the workers are not bound as was asked; empty: they are
};

// Binds workers to CPUs with torchrun's meanings of launch.numa_binding, worker i next to GPU i: node is all CPUs
// of the GPU's NUMA node, socket all of its socket, exclusive the node's cores shared out among its GPUs,
// core-complex one group of the node's cores that share a cache. Without GPUs (or with fewer than workers) cores
// take their place: nodes, sockets and core complexes are dealt out in order, exclusive is an equal share of all
// cores, kept within a node where that is an equal share too. auto is exclusive when it helps (GPUs of several
// nodes, or several workers without GPUs) and can be done, else none. Always within `topology`, which is what this
// process may use; what can't be done as asked binds no worker, with a warning.
Placement place_workers(spec::NumaBinding binding, int64_t num_workers, const hardware::Topology& topology,
                        const std::vector<hardware::PciPlace>& gpus);

// The same for this machine.
Placement place_workers(spec::NumaBinding binding, int64_t num_workers,
                        const std::vector<hardware::Gpu>& gpus);

// OMP_NUM_THREADS of a worker: its share of the usable cores (affinity and quota), at most its physical cores.
int64_t worker_threads(const Placement& placement, int64_t local_rank, int64_t num_workers, int64_t cores);

// "exclusive: 0 on CPUs 0-3,8-11, memory of node 0; 1 on CPUs 4-7,12-15, memory of node 1"; empty when none is bound.
std::string describe(const Placement& placement);

}  // namespace trainer::launch
