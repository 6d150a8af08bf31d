#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "job/job.h"

namespace c10d {
class ProcessGroup;
}

namespace trainer::dist {

// The collectives of a job. All are called by every rank in the same order; each waits at most
// parallel.timeout_s and throws DistributedError naming the rank, the peers and the operation.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  // In place. On CUDA it is queued on the current stream: no host wait.
  virtual void all_reduce_sum(at::Tensor tensor) = 0;
  virtual void broadcast(const std::vector<at::Tensor>& tensors, int64_t root) = 0;
  // Rows of all ranks, in order of rank: [n_r, ...] on each -> [sum n_r, ...] on all. n_r may differ, and be
  // 0.
  virtual at::Tensor all_gather_rows(const at::Tensor& rows) = 0;
  virtual void barrier() = 0;
  // No collective: the number that the first rank to propose one under `key` proposed, by the job's store; nothing when
  // none has. `proposal`: this rank's.
  virtual std::optional<int64_t> first_proposal(const std::string& key, std::optional<int64_t> proposal) = 0;
  // c10d's group, for the gradient reducer; null when size() is 1.
  virtual c10d::ProcessGroup* process_group() = 0;
};

// One process: every collective is the identity.
std::unique_ptr<Communicator> make_single_process();

// Joins the job's ranks by the TCPStore at world.master_addr:master_port (`agent_hosts_store`: all ranks are
// clients; else rank 0 hosts it). Gloo or NCCL by job.backend. Blocks until all ranks have joined, at most
// timeout_s.
std::unique_ptr<Communicator> join(const Job& job, bool agent_hosts_store);

}  // namespace trainer::dist
