#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "dist/communicator.h"

namespace trainer::test {

// A store on a free port of 127.0.0.1, hosted apart from the ranks as an agent does.
struct StorePort {
  int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  int64_t port = 0;
  c10::intrusive_ptr<c10d::TCPStore> store;
  StorePort() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    ::bind(fd, reinterpret_cast<sockaddr*>(&address), length);
    ::listen(fd, 64);
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
    port = ntohs(address.sin_port);
    // c10d's flight recorder, one a process, keeps a map without a lock: ranks that are threads would race.
    ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(port);
    options.isServer = true;
    options.waitWorkers = false;
    options.masterListenFd = fd;  // it takes the socket over
    store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }
};

inline Job job_of(int64_t rank, int64_t size, int64_t port, double timeout_s = 20) {
  Job job;
  job.world.rank = job.world.local_rank = rank;
  job.world.size = job.world.local_size = size;
  job.world.master_port = port;
  job.backend = "gloo";
  job.spec.parallel.timeout_s = timeout_s;
  return job;
}

// Runs f as every rank of a job, a thread each; returns what each threw, "" where nothing.
inline std::vector<std::string> run_ranks(int64_t size, const std::function<void(dist::Communicator&)>& f,
                                          double timeout_s = 20) {
  const StorePort store;
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto communicator = dist::join(job_of(rank, size, store.port, timeout_s), true);
        f(*communicator);
      } catch (const std::exception& e) {
        errors[static_cast<size_t>(rank)] = e.what();
      }
    });
  }
  for (auto& t : threads) t.join();
  return errors;
}

}  // namespace trainer::test
