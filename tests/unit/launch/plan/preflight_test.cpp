#include "launch/plan/preflight.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "temporary_directory.h"

using namespace trainer;
using namespace trainer::launch;
using Status = Check::Status;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

net::Interface interface(const std::string& name, const std::string& address, bool is_up = true) {
  net::Interface result;
  result.name = name;
  result.is_up = is_up;
  result.is_loopback = name == "lo";
  if (!address.empty()) result.addresses = net::resolve(address, 0).addresses;
  return result;
}

// A node of two GPUs that has nothing to be mended.
PreflightInput healthy() {
  PreflightInput input;
  const hardware::Gpu gpu{"Fake GPU", "", 80 * kGiB, 0, ""};
  input.machine = {"CPU", 8, 64 * kGiB, {gpu, gpu}, "580.82.07"};
  input.interfaces = {interface("lo", "127.0.0.1"), interface("eth0", "10.0.0.2"),
                      interface("eth1", "10.1.0.2", false), interface("ib0", "")};
  input.limits.shm_bytes = input.limits.shm_free_bytes = 8 * kGiB;
  input.nproc = 2;
  input.uses_gpus = true;
  return input;
}

// The check that is not ok; a failure when there is not exactly one.
Check fault_of(const PreflightInput& input) {
  std::vector<Check> faults;
  for (const Check& check : check_node(input)) {
    if (check.status != Status::kOk) faults.push_back(check);
  }
  CAPTURE(describe(faults, true));
  REQUIRE(faults.size() == 1);
  CHECK_FALSE(faults[0].mend.empty());
  return faults[0];
}

void check_fault(const PreflightInput& input, Status status, const std::string& found) {
  const Check fault = fault_of(input);
  CHECK(fault.status == status);
  CHECK(fault.found == found);
}

}  // namespace

TEST_CASE("a healthy node passes") {
  const std::vector<Check> checks = check_node(healthy());
  CHECK_FALSE(has_error(checks));
  CHECK(describe(checks, false).empty());
  CHECK_THAT(describe(checks, true),
             Catch::Contains("ok       GPUs: 2 x Fake GPU 80.0 GiB, driver 580.82.07\n"));
  CHECK_THAT(describe(checks, true), Catch::Contains("ok       /dev/shm: 8.0 GiB of 8.0 GiB are free\n"));
}

TEST_CASE("an interface that is missing, down or without an address is named with those that there are") {
  const std::string there = "; this host has lo, eth0, eth1 (down), ib0 (no address)";
  PreflightInput input = healthy();
  input.interface = "eth0";
  CHECK_FALSE(has_error(check_node(input)));
  input.interface = "eth7";
  check_fault(input, Status::kError, "launch.interface=eth7: interface eth7 does not exist" + there);
  input.interface.clear();
  input.env["GLOO_SOCKET_IFNAME"] = "eth0,eth1";
  check_fault(input, Status::kError, "GLOO_SOCKET_IFNAME=eth0,eth1: interface eth1 is down" + there);
  input.env["GLOO_SOCKET_IFNAME"] = "ib0";
  check_fault(input, Status::kError, "GLOO_SOCKET_IFNAME=ib0: interface ib0 has no address" + there);
}

TEST_CASE("NCCL's interface list must select an interface that is up, when there are GPUs") {
  PreflightInput input = healthy();
  for (const char* good : {"eth", "=eth0", "^lo", "=eth1,eth0", "", "e"}) {
    input.env["NCCL_SOCKET_IFNAME"] = good;
    CHECK_FALSE(has_error(check_node(input)));
  }
  for (const std::string bad : {"=eth", "ib", "^eth,lo", "=eth1"}) {
    input.env["NCCL_SOCKET_IFNAME"] = bad;
    check_fault(
        input, Status::kError,
        "NCCL_SOCKET_IFNAME=" + bad +
            " selects no interface that is up; this host has lo, eth0, eth1 (down), ib0 (no address)");
  }
  input.uses_gpus = false;
  CHECK_FALSE(has_error(check_node(input)));
}

TEST_CASE("what the network profile could not find fails the node") {
  PreflightInput input = healthy();
  input.network_warning = "launch.network: infiniband, but there is none\n  hint: see ibstat";
  const Check fault = fault_of(input);
  CHECK(fault.status == Status::kError);
  CHECK(fault.found == "launch.network: infiniband, but there is none");
  CHECK(fault.mend == "see ibstat");
}

TEST_CASE("an endpoint must resolve, and not to loopback, when there are several nodes") {
  PreflightInput input = healthy();
  input.num_nodes = 2;
  input.env["GLOO_SOCKET_IFNAME"] = "eth0";
  input.endpoint_host = "10.0.0.1";
  CHECK_FALSE(has_error(check_node(input)));
  input.endpoint_host = "127.0.0.1";  // all nodes are this host
  CHECK_FALSE(has_error(check_node(input)));
  input.endpoint_host = "no.such.host.invalid";
  input.resolve_timeout_s = 0;
  check_fault(input, Status::kError, "no.such.host.invalid: did not resolve within 0 ms");
  input.resolve_timeout_s = 60;
  CHECK_THAT(fault_of(input).found, Catch::StartsWith("no.such.host.invalid: does not resolve ("));
  // As if /etc/hosts gave a node's name to loopback; "localhost" itself would be meant so.
  input.endpoint_host = "LOCALHOST";
  const std::string loopback = net::resolve("LOCALHOST", 0).addresses.at(0).host();
  check_fault(input, Status::kError, "LOCALHOST: is " + loopback + " here, which other nodes can't reach");
}

TEST_CASE("Gloo must not advertise loopback to other nodes") {
  PreflightInput input = healthy();
  input.num_nodes = 2;
  input.endpoint_host = "10.0.0.1";
  input.env["GLOO_SOCKET_IFNAME"] = "lo";
  check_fault(input, Status::kError,
              "GLOO_SOCKET_IFNAME=lo is loopback: peers of other nodes would connect to themselves");
  input.num_nodes = 1;
  CHECK_FALSE(has_error(check_node(input)));
  // Without the variable, PyTorch's Gloo goes by the host's name, which is no fault of ours to fail by.
  input.num_nodes = 2;
  input.env.clear();
  CHECK_FALSE(has_error(check_node(input)));
}

TEST_CASE("GPUs: too few, no driver, used by others") {
  PreflightInput input = healthy();
  input.nproc = 3;
  check_fault(input, Status::kError, "3 workers for 2 GPUs that can be seen");
  input.machine.gpus.clear();
  input.machine.driver.clear();
  check_fault(input, Status::kError, "there is no NVIDIA driver (libnvidia-ml.so.1)");
  input.uses_gpus = false;
  CHECK_FALSE(has_error(check_node(input)));

  input = healthy();
  input.machine.gpus[1].used_bytes = 12 * kGiB;
  check_fault(input, Status::kWarning, "GPU 1 (Fake GPU): 12.0 GiB of 80.0 GiB are used by others");
  input.nproc = 1;  // which uses GPU 0
  CHECK(describe(check_node(input), false).empty());
}

TEST_CASE("the output and the log directory must be writable, whether or not they exist yet") {
  const TemporaryDirectory directory;
  PreflightInput input = healthy();
  input.output_dir = directory.path / "runs/new";
  input.log_dir = directory.path;
  CHECK_FALSE(has_error(check_node(input)));
  CHECK_FALSE(std::filesystem::exists(directory.path / "runs"));
  CHECK(std::filesystem::is_empty(directory.path));

  const std::string file = directory.write("file", "");
  input.output_dir = file + "/runs";
  check_fault(input, Status::kError, file + "/runs: " + file + " is not a directory");
  input.output_dir = "/proc/runs";  // read-only for root too
  CHECK(fault_of(input).status == Status::kError);
  CHECK_THAT(fault_of(input).found, Catch::StartsWith("/proc/runs: cannot write in /proc: "));
}

TEST_CASE("/dev/shm: none, too small, full") {
  PreflightInput input = healthy();
  input.limits.shm_bytes = 64 * kMiB;
  check_fault(input, Status::kWarning,
              "64.0 MiB for 2 workers, which may end with a bus error; 512.0 MiB would do");
  input.limits.shm_bytes = kGiB;
  input.limits.shm_free_bytes = kMiB;
  check_fault(input, Status::kWarning, "1.0 MiB of 1.0 GiB are free, 512.0 MiB are needed");
  input.limits.shm_bytes = -1;
  check_fault(input, Status::kWarning, "there is no /dev/shm");
  input.uses_gpus = false;
  CHECK(describe(check_node(input), false).empty());  // of no use to this program
  input.is_trainer = false;
  input.limits.shm_bytes = 64 * kMiB;
  check_fault(input, Status::kWarning,
              "64.0 MiB for 2 workers, which may end with a bus error; 128.0 MiB would do");
}

TEST_CASE("limits of open files, locked memory and processes") {
  PreflightInput input = healthy();
  input.limits.open_files = 100;
  check_fault(input, Status::kWarning, "the limit is 100; 2 ranks may need 144");
  CHECK(fault_of(input).mend == "ulimit -n 288, or the service's LimitNOFILE");
  input = healthy();
  input.limits.locked_memory_bytes = 8 * kMiB;
  CHECK(describe(check_node(input), false).empty());
  input.uses_rdma = true;
  check_fault(input, Status::kError, "the limit is 8.0 MiB; InfiniBand and RoCE need more for their buffers");
  input = healthy();
  input.limits.free_pids = 100;
  check_fault(input, Status::kWarning, "the container lets 100 more start; 2 workers may need 136 threads");
}

TEST_CASE("this process's limits are read") {
  const NodeLimits limits = read_node_limits();
  CHECK(limits.open_files > 0);
  CHECK(limits.free_pids > 0);
  const TemporaryDirectory root;
  CHECK(read_node_limits(root.path).shm_bytes == -1);
  root.write("dev/shm/file", "");
  CHECK(read_node_limits(root.path).shm_bytes > 0);
  root.write("proc/self/status", "CapEff:\t0000000000004000\n");  // IPC_LOCK
  CHECK(read_node_limits(root.path).locked_memory_bytes == NodeLimits::kNoLimit);
}

TEST_CASE("checks are shown with their hints, and sent as JSON") {
  const std::vector<Check> checks{{"a", Status::kOk, "fine", ""},
                                  {"b", Status::kWarning, "scarce", "get more"},
                                  {"c", Status::kError, "broken", "mend it"}};
  CHECK(has_error(checks));
  CHECK(describe(checks, false) ==
        "warning  b: scarce\n  hint: get more\nFAILED   c: broken\n  hint: mend it\n");
  CHECK(describe(checks, true).starts_with("ok       a: fine\nwarning  b"));
  const nlohmann::json json = checks;
  CHECK(nlohmann::json::parse(json.dump()).get<std::vector<Check>>() == checks);
  CHECK_THROWS_AS(nlohmann::json::parse("[{\"name\": 1}]").get<std::vector<Check>>(),
                  nlohmann::json::exception);
}
