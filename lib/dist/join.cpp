// Joining the ranks of a job: store, roll-call, backends, and the collectives on top.
#include <ATen/Functions.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdlib>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "dist/communicator.h"
#include "dist/cuda_plugin.h"
#include "dist/failure.h"
#include "dist/network.h"

namespace trainer::dist {
namespace {

using c10d::ProcessGroup;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

StorePtr connect_store(const World& world, const Waiting& who, bool agent_hosts_store) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(world.master_port);
  options.isServer = world.rank == 0 && !agent_hosts_store;
  options.numWorkers = static_cast<size_t>(world.size);
  options.waitWorkers = false;  // roll_call waits, and names who is missing
  options.timeout = to_ms(who.timeout_s);
  StorePtr store;
  try {
    store = c10::make_intrusive<c10d::TCPStore>(world.master_addr, options);
  } catch (const std::exception& e) {
    fail<DistributedError>(
        "rank {} of {}: cannot {} the job's store at {}:{} (MASTER_ADDR:MASTER_PORT) within {} s: {}",
        who.rank, who.size, options.isServer ? "host" : "reach", world.master_addr, world.master_port,
        who.timeout_s, first_line(e));
  }
  // An agent's store outlives attempts; keys of a failed one must not be seen.
  const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return c10::make_intrusive<c10d::PrefixStore>(fmt::format("trainer/{}", attempt != nullptr ? attempt : "0"),
                                                store);
}

void roll_call(c10d::Store& store, const World& world, const Waiting& who) {
  std::vector<std::string> keys;
  for (int64_t r = 0; r < who.size; ++r) keys.push_back(fmt::format("joined/{}", r));
  try {
    store.set(keys[static_cast<size_t>(who.rank)], std::vector<uint8_t>{1});
    store.wait(keys, to_ms(who.timeout_s));
  } catch (const std::exception& e) {
    std::string missing;
    int64_t num_missing = 0;
    collective(who, "joining", [&] {
      for (int64_t r = 0; r < who.size; ++r) {
        if (store.check({keys[static_cast<size_t>(r)]})) continue;
        missing += fmt::format("{}{}", num_missing++ == 0 ? "" : ", ", r);
      }
    });
    if (num_missing == 0) fail_collective(who, "joining", e);
    fail<DistributedError>(
        "rank {} of {}: {} of {} ranks joined at {}:{} within {} s (parallel.timeout_s); missing: {}",
        who.rank, who.size, who.size - num_missing, who.size, world.master_addr, world.master_port,
        who.timeout_s, missing);
  }
}

c10::intrusive_ptr<c10d::Backend> make_gloo(const StorePtr& store, const World& world, const Waiting& who) {
  using c10d::ProcessGroupGloo;
  auto options = ProcessGroupGloo::Options::create(to_ms(who.timeout_s));
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  const std::string address = interface != nullptr ? interface : reachable_address(world);
  const std::string operation = fmt::format("connecting Gloo at {}", address);
  return collective(who, operation.c_str(), [&]() -> c10::intrusive_ptr<c10d::Backend> {
    options->devices.push_back(interface != nullptr ? ProcessGroupGloo::createDeviceForInterface(address)
                                                    : ProcessGroupGloo::createDeviceForHostname(address));
    return c10::make_intrusive<ProcessGroupGloo>(store, static_cast<int>(who.rank),
                                                 static_cast<int>(who.size), options);
  });
}

// Its keys in the store begin with its name.
c10::intrusive_ptr<ProcessGroup> make_group(const std::string& name, const StorePtr& store,
                                            const World& world, const Waiting& who, bool nccl) {
  // Gloo carries the CPU tensors of every job: counts, texts, barriers.
  auto group =
      c10::make_intrusive<ProcessGroup>(store, static_cast<int>(who.rank), static_cast<int>(who.size));
  const auto prefixed = [&](const char* backend) -> StorePtr {
    return c10::make_intrusive<c10d::PrefixStore>(fmt::format("{}/{}", name, backend), store);
  };
  group->setBackend(c10::DeviceType::CPU, ProcessGroup::BackendType::GLOO,
                    make_gloo(prefixed("cpu"), world, who));
  group->setDefaultBackend(ProcessGroup::BackendType::GLOO);
  if (nccl) {
    // The device of the tensors to come, which need not be local_rank's: a task may see only its own GPU.
    const auto device = c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice().index();
    const NcclOptions options{static_cast<int>(who.rank), static_cast<int>(who.size),
                              to_ms(who.timeout_s).count(), device};
    auto backend =
        collective(who, "connecting NCCL", [&] { return make_nccl_backend(prefixed("cuda"), options); });
    group->setBackend(c10::DeviceType::CUDA, ProcessGroup::BackendType::NCCL, backend);
    group->setDefaultBackend(ProcessGroup::BackendType::NCCL);
  }
  group->setGroupName(name);
  return group;
}

class C10dPending : public Pending {
 public:
  C10dPending(c10::intrusive_ptr<c10d::Work> work, std::string operation, const Waiting& who)
      : work_(std::move(work)), operation_(std::move(operation)), who_(who) {}
  void wait() override {
    collective(who_, operation_.c_str(), [&] { work_->wait(); });
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::string operation_;
  Waiting who_;
};

class C10dCommunicator : public Communicator {
 public:
  C10dCommunicator(c10::intrusive_ptr<ProcessGroup> group, StorePtr store, World world, const Waiting& who,
                   bool nccl)
      : group_(std::move(group)),
        store_(std::move(store)),
        world_(std::move(world)),
        who_(who),
        nccl_(nccl) {}

  // Destroying a backend waits for operations in flight, whose peers may be gone: not longer than kTeardown
  // here.
  ~C10dCommunicator() override {
    std::promise<void> done;
    auto finished = done.get_future();
    std::thread([group = std::move(group_), done = std::move(done),
                 failed = std::uncaught_exceptions() > 0]() mutable {
      try {
        failed ? group->abort() : group->shutdown();  // NCCL's; Gloo has neither
        group.reset();
      } catch (const std::exception&) {  // the job is done, or has a better error to report
      }
      done.set_value();
    }).detach();
    finished.wait_for(kTeardown);
  }

  int64_t rank() const override { return who_.rank; }
  int64_t size() const override { return who_.size; }
  c10d::ProcessGroup* process_group() override { return group_.get(); }

  void all_reduce_sum(at::Tensor tensor) override {
    collective(who_, "all_reduce", [&] {
      std::vector<at::Tensor> tensors = {std::move(tensor)};
      group_->allreduce(tensors)->wait();
    });
  }

  void broadcast(const std::vector<at::Tensor>& tensors, int64_t root) override {
    const at::NoGradGuard no_grad;
    constexpr size_t kBufferBytes = 32 << 20;
    collective(who_, "broadcast",
               [&] { c10d::broadcast_coalesced(group_, tensors, kBufferBytes, static_cast<int>(root)); });
  }

  at::Tensor all_gather_rows(const at::Tensor& rows) override {
    return collective(who_, "all_gather", [&] {
      at::Tensor counts = at::empty({who_.size}, at::kLong);
      gather_equal(counts, at::full({1}, rows.size(0), at::kLong));
      const int64_t most = counts.max().item<int64_t>();
      auto sizes = rows.sizes().vec();
      sizes[0] = most - rows.size(0);
      const at::Tensor padded = sizes[0] == 0 ? rows.contiguous() : at::cat({rows, rows.new_zeros(sizes)});
      sizes[0] = most * who_.size;
      at::Tensor all = rows.new_empty(sizes);
      if (most > 0) gather_equal(all, padded);
      std::vector<at::Tensor> parts;
      for (int64_t r = 0; r < who_.size; ++r)
        parts.push_back(all.narrow(0, r * most, counts[r].item<int64_t>()));
      return at::cat(parts);
    });
  }

  std::unique_ptr<Pending> all_to_all_rows(at::Tensor received, at::Tensor sent,
                                           std::vector<int64_t> received_rows, std::vector<int64_t> sent_rows,
                                           const char* what) override {
    std::string operation = fmt::format("all_to_all of {}", what);
    auto work = collective(who_, operation.c_str(),
                           [&] { return group_->alltoall_base(received, sent, received_rows, sent_rows); });
    return std::make_unique<C10dPending>(std::move(work), std::move(operation), who_);
  }

  void barrier() override {
    collective(who_, "barrier", [&] {  // on the CPU also when the job runs on CUDA
      std::vector<at::Tensor> token = {at::zeros({1})};
      group_->allreduce(token)->wait();
    });
  }

  std::unique_ptr<Communicator> channel(const std::string& name) override {
    return std::make_unique<C10dCommunicator>(make_group(name, store_, world_, who_, nccl_), store_, world_,
                                              who_, nccl_);
  }

  std::optional<int64_t> first_proposal(const std::string& key, std::optional<int64_t> proposal) override {
    return collective(who_, "the job's store", [&]() -> std::optional<int64_t> {
      if (proposal) return std::stoll(store_->compareSet(key, std::string(), std::to_string(*proposal)));
      if (!store_->check({key})) return std::nullopt;
      return std::stoll(store_->get_to_str(key));
    });
  }

 private:
  static constexpr std::chrono::seconds kTeardown{3};

  void gather_equal(at::Tensor& output, at::Tensor input) { group_->_allgather_base(output, input)->wait(); }

  c10::intrusive_ptr<ProcessGroup> group_;
  StorePtr store_;
  World world_;
  Waiting who_;
  bool nccl_;
};

}  // namespace

std::unique_ptr<Communicator> join(const Job& job, bool agent_hosts_store) {
  const World& world = job.world;
  if (world.size == 1) return make_single_process();
  quiet_c10d();
  const Waiting who{world.rank, world.size, job.spec.parallel.timeout_s};
  if (world.num_nodes > 1 && world.local_rank == 0) {
    log_info("joining {} ranks on {} nodes at {}:{}, waiting at most {} s (parallel.timeout_s)", world.size,
             world.num_nodes, world.master_addr, world.master_port, who.timeout_s);
  }
  const StorePtr store = connect_store(world, who, agent_hosts_store);
  roll_call(*store, world, who);

  if (job.backend == "nccl") explain_watchdog(who);
  auto communicator =
      std::make_unique<C10dCommunicator>(make_group("trainer", store, world, who, job.backend == "nccl"),
                                         store, world, who, job.backend == "nccl");
  communicator->barrier();  // a rank that could not connect is found here, not in the first step
  return communicator;
}

}  // namespace trainer::dist
