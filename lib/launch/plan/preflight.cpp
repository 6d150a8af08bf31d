#include "launch/plan/preflight.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/descriptor.h"
#include "core/format.h"
#include "hardware/cgroup.h"
#include "launch/plan/preflight_network.h"

namespace trainer::launch {
namespace {

namespace fs = std::filesystem;
using Status = Check::Status;
using Checks = std::vector<Check>;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kOthersOnGpu = kGiB;               // less is a display or a monitor
constexpr int64_t kScarceDisk = kGiB;                // a checkpoint of the small models
constexpr int64_t kLockedMemoryForRdma = kGiB;       // NCCL's registered buffers of a rank, with room
constexpr int64_t kSharedMemoryPerGpu = 256 * kMiB;  // NCCL's segments between the GPUs of a node
constexpr int64_t kSharedMemoryPerProgram =
    64 * kMiB;                             // batches of a Python DataLoader: Docker's default is too small
constexpr int64_t kThreadsPerWorker = 64;  // of CUDA, NCCL, Gloo and autograd

const char* plural(int64_t n) {
  return n == 1 ? "" : "s";
}

void check_gpus(const PreflightInput& input, Checks& checks) {
  if (!input.uses_gpus) return;
  const std::vector<hardware::Gpu>& gpus = input.machine.gpus;
  const auto count = static_cast<int64_t>(gpus.size());
  if (count < input.nproc) {
    const bool no_driver = input.machine.driver.empty();
    checks.push_back({"GPUs", Status::kError,
                      no_driver ? "there is no NVIDIA driver (libnvidia-ml.so.1)"
                                : fmt::format("{} worker{} for {} GPU{} that can be seen", input.nproc,
                                              plural(input.nproc), count, plural(count)),
                      no_driver ? "install it; a container needs --gpus all and the NVIDIA container toolkit"
                                : "see nvidia-smi and CUDA_VISIBLE_DEVICES, or lower launch.nproc_per_node"});
    return;
  }
  checks.push_back({"GPUs", Status::kOk,
                    fmt::format("{}, driver {}", hardware::describe(gpus), input.machine.driver), ""});
  for (int64_t i = 0; i < input.nproc; ++i) {
    const hardware::Gpu& gpu = gpus[static_cast<size_t>(i)];
    if (gpu.used_bytes < kOthersOnGpu) continue;
    checks.push_back({"GPUs", Status::kWarning,
                      fmt::format("GPU {} ({}): {} of {} are used by others", i, gpu.name,
                                  binary_bytes(gpu.used_bytes), binary_bytes(gpu.memory_bytes)),
                      "see nvidia-smi for processes that an earlier job left"});
  }
}

// By making a file, as permissions alone say nothing of what a file server allows. errno; 0 when it could be made.
int write_error(const fs::path& directory) {
  if (Descriptor(::open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600)).is_open()) return 0;
  // NFS and others know no file without a name.
  std::string name = (directory / ".trainer_preflight_XXXXXX").string();
  const Descriptor file(::mkstemp(name.data()));
  if (!file.is_open()) return errno;
  ::unlink(name.c_str());
  return 0;
}

Check check_directory(const char* name, const fs::path& path, const char* mend) {
  std::error_code error;
  fs::path existing = fs::absolute(path, error);
  while (!fs::exists(existing, error) && existing.has_relative_path()) existing = existing.parent_path();
  const auto fault = [&](const std::string& found) {
    return Check{name, Status::kError, path.string() + ": " + found, mend};
  };
  if (!fs::is_directory(existing, error)) return fault(existing.string() + " is not a directory");
  if (const int reason = write_error(existing); reason != 0) {
    return fault(fmt::format("cannot write in {}: {}", existing.string(), std::strerror(reason)));
  }
  struct statvfs disk {};
  if (::statvfs(existing.c_str(), &disk) != 0 || disk.f_blocks == 0)
    return {name, Status::kOk, path.string() + " can be written", ""};
  const auto free_bytes = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  if (free_bytes < kScarceDisk) {
    return {name, Status::kWarning,
            fmt::format("{}: only {} are free there", path.string(), binary_bytes(free_bytes)),
            "free some space, or choose another disk"};
  }
  return {name, Status::kOk,
          fmt::format("{} can be written, {} free", path.string(), binary_bytes(free_bytes)), ""};
}

Check check_shared_memory(const PreflightInput& input) {
  const int64_t needed = input.nproc * (input.uses_gpus ? kSharedMemoryPerGpu : kSharedMemoryPerProgram);
  const int64_t size = input.limits.shm_bytes, free_bytes = input.limits.shm_free_bytes;
  if (size < 0) {
    return {"/dev/shm", Status::kWarning, "there is no /dev/shm",
            "mount a tmpfs there; a container needs --shm-size"};
  }
  if (size < needed) {
    return {"/dev/shm", Status::kWarning,
            fmt::format("{} for {} worker{}, which may end with a bus error; {} would do", binary_bytes(size),
                        input.nproc, plural(input.nproc), binary_bytes(needed)),
            "docker run --shm-size, or in Kubernetes an emptyDir of medium Memory at /dev/shm"};
  }
  if (free_bytes < needed) {
    return {"/dev/shm", Status::kWarning,
            fmt::format("{} of {} are free, {} are needed", binary_bytes(free_bytes), binary_bytes(size),
                        binary_bytes(needed)),
            "remove what dead jobs left there (nccl-*, torch_*)"};
  }
  return {"/dev/shm", Status::kOk,
          fmt::format("{} of {} are free", binary_bytes(free_bytes), binary_bytes(size)), ""};
}

void check_limits(const PreflightInput& input, Checks& checks) {
  const NodeLimits& limits = input.limits;
  // The agent holds up to eight a worker, a worker up to four a peer (Gloo's and NCCL's connections).
  const int64_t files = std::max(8 * input.nproc, 4 * input.nproc * input.num_nodes) + 128;
  if (limits.open_files < files) {
    checks.push_back({"open files", Status::kWarning,
                      fmt::format("the limit is {}; {} ranks may need {}", limits.open_files,
                                  input.nproc * input.num_nodes, files),
                      fmt::format("ulimit -n {}, or the service's LimitNOFILE", 2 * files)});
  }
  if (input.uses_rdma && limits.locked_memory_bytes < kLockedMemoryForRdma) {
    checks.push_back(
        {"locked memory", Status::kError,
         fmt::format("the limit is {}; InfiniBand and RoCE need more for their buffers",
                     binary_bytes(limits.locked_memory_bytes)),
         "ulimit -l unlimited; a container needs --ulimit memlock=-1, a service LimitMEMLOCK=infinity"});
  }
  const int64_t pids = input.nproc * kThreadsPerWorker + input.machine.cores;
  if (limits.free_pids < pids) {
    checks.push_back({"processes", Status::kWarning,
                      fmt::format("the container lets {} more start; {} worker{} may need {} threads",
                                  limits.free_pids, input.nproc, plural(input.nproc), pids),
                      "docker run --pids-limit, or Kubernetes' podPidsLimit"});
  }
}

}  // namespace

NodeLimits read_node_limits(const fs::path& root) {
  NodeLimits limits;
  struct statvfs shm {};
  if (::statvfs((root / "dev/shm").c_str(), &shm) == 0) {
    limits.shm_bytes = static_cast<int64_t>(shm.f_blocks * shm.f_frsize);
    limits.shm_free_bytes = static_cast<int64_t>(shm.f_bavail * shm.f_frsize);
  }
  const auto soft_limit = [](auto resource) {
    rlimit limit{};
    const bool bounded = ::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return bounded ? static_cast<int64_t>(limit.rlim_cur) : NodeLimits::kNoLimit;
  };
  limits.open_files = soft_limit(RLIMIT_NOFILE);
  limits.locked_memory_bytes = soft_limit(RLIMIT_MEMLOCK);
  constexpr int kIpcLock = 14;  // the capability that lifts the limit
  std::ifstream status(root / "proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("CapEff:") && (std::strtoull(line.c_str() + 7, nullptr, 16) >> kIpcLock & 1) != 0) {
      limits.locked_memory_bytes = NodeLimits::kNoLimit;
    }
  }
  limits.free_pids = hardware::read_cgroup_limits(root).free_pids;
  return limits;
}

std::vector<Check> check_node(const PreflightInput& input) {
  Checks checks;
  check_network(input, checks);
  check_gpus(input, checks);
  if (!input.output_dir.empty()) {
    checks.push_back(check_directory("output directory", input.output_dir,
                                     "choose another job.output_dir, or mount a volume there"));
  }
  if (!input.log_dir.empty()) {
    checks.push_back(check_directory("log directory", input.log_dir, "choose another launch.log_dir"));
  }
  // A CPU job of this program keeps nothing there.
  if (input.uses_gpus || !input.is_trainer) checks.push_back(check_shared_memory(input));
  check_limits(input, checks);
  return checks;
}

bool has_error(const Checks& checks) {
  return std::any_of(checks.begin(), checks.end(),
                     [](const Check& check) { return check.status == Status::kError; });
}

std::string describe(const Checks& checks, bool all) {
  std::string text;
  for (const Check& check : checks) {
    if (check.status == Status::kOk && !all) continue;
    const char* status = check.status == Status::kOk        ? "ok"
                         : check.status == Status::kWarning ? "warning"
                                                            : "FAILED";
    text += fmt::format("{:8} {}: {}\n", status, check.name, check.found);
    if (!check.mend.empty()) text += fmt::format("  hint: {}\n", check.mend);
  }
  return text;
}

NLOHMANN_JSON_SERIALIZE_ENUM(Check::Status,
                             {{Status::kOk, "ok"}, {Status::kWarning, "warning"}, {Status::kError, "error"}})

void to_json(nlohmann::json& json, const Check& check) {
  json = {{"name", check.name}, {"status", check.status}, {"found", check.found}, {"mend", check.mend}};
}

void from_json(const nlohmann::json& json, Check& check) {
  json.at("name").get_to(check.name);
  json.at("status").get_to(check.status);
  json.at("found").get_to(check.found);
  json.at("mend").get_to(check.mend);
}

}  // namespace trainer::launch
