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

// A collective under way. May be destroyed without wait(), as after an error.
class Pending {
 public:
  virtual ~Pending() = default;
  // Until its tensors are there; on CUDA the current stream waits, the host doesn't. Throws as the collectives do.
  virtual void wait() = 0;
};

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
  // Begins to exchange rows: of `sent`, the first sent_rows[0] go to rank 0, the next sent_rows[1] to rank 1, ...; `received`
  // gets those of rank 0, then those of rank 1, ... Each pair of ranks agrees on its number, which may be 0. Both contiguous,
  // of equal dtype, not to be touched before wait(). `what` is for messages.
  virtual std::unique_ptr<Pending> all_to_all_rows(at::Tensor received, at::Tensor sent,
                                                   std::vector<int64_t> received_rows,
                                                   std::vector<int64_t> sent_rows, const char* what) = 0;
  virtual void barrier() = 0;
  // Collective. The same ranks with connections of their own: what is under way here and there needs no common order.
  // `name` must be new. Must not outlive this one's job.
  virtual std::unique_ptr<Communicator> channel(const std::string& name) = 0;
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
