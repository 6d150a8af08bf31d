#include "launch/plan.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "core/error.h"

using namespace trainer;
using namespace trainer::launch;
using Catch::Matchers::Message;

namespace {

hardware::Machine machine(int64_t cores, size_t gpus) {
  return {"CPU", cores, 1, std::vector<hardware::Gpu>(gpus, hardware::Gpu{"GPU", "", 0})};
}

WorkerPlan plan(const spec::Launch& launch, const hardware::Machine& machine,
                spec::DeviceChoice device = {}) {
  spec::Hardware hardware;
  hardware.device = device;
  return plan_workers(launch, hardware, machine, {"program"}, "logs");
}

int64_t nproc(const std::string& text, const hardware::Machine& machine, spec::DeviceChoice device = {}) {
  spec::Launch launch;
  launch.nproc_per_node = text;
  return plan(launch, machine, device).nproc;
}

// Sets an environment variable for a scope.
struct Variable {
  const char* name;
  Variable(const char* name, const char* value) : name(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name); }
};

}  // namespace

TEST_CASE("auto is one worker a GPU, or one in all without GPUs") {
  CHECK(nproc("auto", machine(8, 0)) == 1);
  CHECK(nproc("auto", machine(8, 4)) == 4);
  CHECK(nproc("auto", machine(8, 4), spec::DeviceChoice::kCpu) == 1);
  CHECK(nproc("gpu", machine(8, 4)) == 4);
  CHECK(nproc("cpu", machine(8, 0)) == 8);
  CHECK(nproc("3", machine(8, 0)) == 3);
  CHECK(nproc("3", machine(8, 4)) == 3);
  CHECK(nproc("6", machine(8, 4), spec::DeviceChoice::kCpu) == 6);
}

TEST_CASE("a number of workers that cannot be is refused by key") {
  const char* expected = "; expected \"auto\", \"gpu\", \"cpu\" or a number from 1 to 1024";
  for (const char* text : {"0", "-1", "1025", "two", "2x", ""}) {
    CHECK_THROWS_MATCHES(nproc(text, machine(8, 0)), SpecError,
                         Message("launch.nproc_per_node: got \"" + std::string(text) + "\"" + expected));
  }
  CHECK_THROWS_MATCHES(nproc("8", machine(8, 4)), SpecError,
                       Message("launch.nproc_per_node: got 8, but this machine shows 4 GPUs\n"
                               "  hint: set hardware.device: cpu, or see CUDA_VISIBLE_DEVICES"));
  CHECK_THROWS_MATCHES(nproc("gpu", machine(8, 4), spec::DeviceChoice::kCpu), SpecError,
                       Message("launch.nproc_per_node: got \"gpu\" with hardware.device: cpu; expected "
                               "\"cpu\", \"auto\" or a number"));
}

TEST_CASE("GPUs that are asked for and not there are an error") {
  const char* rest =
      ": GPUs are asked for, but this machine shows none\n"
      "  hint: see nvidia-smi and CUDA_VISIBLE_DEVICES, or set hardware.device: cpu";
  CHECK_THROWS_MATCHES(nproc("gpu", machine(8, 0)), SpecError,
                       Message(std::string("launch.nproc_per_node") + rest));
  CHECK_THROWS_MATCHES(nproc("2", machine(8, 0), spec::DeviceChoice::kCuda), SpecError,
                       Message(std::string("hardware.device") + rest));
}

TEST_CASE("nodes and ports are checked") {
  spec::Launch launch;
  launch.nnodes = 0;
  CHECK_THROWS_MATCHES(plan(launch, machine(1, 0)), SpecError,
                       Message("launch.nnodes: got 0; expected a number > 0"));
  launch.nnodes = 2;
  launch.node_rank = 2;
  CHECK_THROWS_MATCHES(plan(launch, machine(1, 0)), SpecError,
                       Message("launch.node_rank: got 2; expected 0 to 1 (launch.nnodes is 2)"));
  launch.node_rank = 1;
  CHECK_THROWS_MATCHES(
      plan(launch, machine(1, 0)), SpecError,
      Message("launch.master_port: got 0 with 2 nodes; expected a port that is free on node 0, the "
              "same on every node"));
  launch.master_port = 65536;
  CHECK_THROWS_MATCHES(plan(launch, machine(1, 0)), SpecError,
                       Message("launch.master_port: got 65536; expected 0 to 65535"));
  launch.master_port = 29500;
  CHECK(plan(launch, machine(1, 0)).node_rank == 1);
}

TEST_CASE("launch.env may not set what the launcher sets") {
  spec::Launch launch;
  for (const char* name : {"RANK", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TRAINER_WORKER"}) {
    launch.env = {{name, "1"}};
    CHECK_THROWS_MATCHES(
        plan(launch, machine(1, 0)), SpecError,
        Message("launch.env." + std::string(name) + ": the launcher sets this variable itself; remove it"));
  }
  launch.env = {{"A=B", "1"}};
  CHECK_THROWS_MATCHES(plan(launch, machine(1, 0)), SpecError,
                       Message("launch.env: got \"A=B\"; expected the name of an environment variable"));
}

TEST_CASE("PET variables beat the job file") {
  const Variable nproc("PET_NPROC_PER_NODE", "cpu"), nnodes("PET_NNODES", "2:2"), node("PET_NODE_RANK", "1");
  const Variable address("PET_MASTER_ADDR", "head"), port("PET_MASTER_PORT", "1234");
  spec::Launch launch;
  launch.nproc_per_node = "3";
  apply_environment(launch);
  CHECK(launch.nproc_per_node == "cpu");
  CHECK(launch.nnodes == 2);
  CHECK(launch.node_rank == 1);
  CHECK(launch.master_addr == "head");
  CHECK(launch.master_port == 1234);
}

TEST_CASE("PET_RDZV_ENDPOINT is a host, a host and port, or an IPv6 address and port") {
  const auto endpoint = [](const char* text) {
    const Variable variable("PET_RDZV_ENDPOINT", text);
    spec::Launch launch;
    apply_environment(launch);
    return launch.master_addr + "|" + std::to_string(launch.master_port);
  };
  CHECK(endpoint("") == "127.0.0.1|0");
  CHECK(endpoint("head") == "head|0");
  CHECK(endpoint("10.0.0.1:29400") == "10.0.0.1|29400");
  CHECK(endpoint("[fe80::1]:29400") == "fe80::1|29400");
  CHECK(endpoint("[fe80::1]") == "fe80::1|0");
}

TEST_CASE("a PET variable that is no number is named") {
  spec::Launch launch;
  {
    const Variable variable("PET_NODE_RANK", "one");
    CHECK_THROWS_MATCHES(apply_environment(launch), SpecError,
                         Message("PET_NODE_RANK: got \"one\"; expected an integer"));
  }
  const Variable variable("PET_NNODES", "1:2");
  CHECK_THROWS_MATCHES(
      apply_environment(launch), SpecError,
      Message("PET_NNODES: got \"1:2\"; expected one number of nodes (elastic ranges are not supported)"));
}

TEST_CASE("a worker's environment is torchrun's") {
  const Variable outer("RANK", "77"), inherited("NCCL_DEBUG", "INFO");
  ::unsetenv("OMP_NUM_THREADS");
  WorkerPlan plan;
  plan.nproc = 4;
  plan.max_nodes = 3;
  const Assignment assignment{0, 2, 3, 8, 12, 0, "head", 29500};
  plan.cores = 11;
  plan.log_dir = "logs";
  plan.env = {{"NCCL_DEBUG", "WARN"}, {"OWN", "x"}};
  auto env = worker_environment(plan, assignment, 1);
  CHECK(env.at("RANK") == "9");
  CHECK(env.at("WORLD_SIZE") == "12");
  CHECK(env.at("LOCAL_RANK") == "1");
  CHECK(env.at("LOCAL_WORLD_SIZE") == "4");
  CHECK(env.at("GROUP_RANK") == "2");
  CHECK(env.at("GROUP_WORLD_SIZE") == "3");
  CHECK(env.at("ROLE_RANK") == "9");
  CHECK(env.at("ROLE_WORLD_SIZE") == "12");
  CHECK(env.at("ROLE_NAME") == "default");
  CHECK(env.at("MASTER_ADDR") == "head");
  CHECK(env.at("MASTER_PORT") == "29500");
  CHECK(env.at("TORCHELASTIC_RESTART_COUNT") == "0");
  CHECK(env.at("TORCHELASTIC_MAX_RESTARTS") == "0");
  CHECK(env.at("TORCHELASTIC_RUN_ID") == "none");
  CHECK(env.at("TORCHELASTIC_ERROR_FILE") == "logs/node_2/attempt_0/1/error.json");
  CHECK(env.at("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "1");
  CHECK(env.at("OMP_NUM_THREADS") == "2");
  CHECK(env.at("GOMP_SPINCOUNT") == "1000");
  CHECK(env.at("NCCL_DEBUG") == "WARN");
  CHECK(env.at("OWN") == "x");
  CHECK(env.at("TRAINER_WORKER") == "1");
  CHECK(env.count("PATH") == 1);
  CHECK(env.at("TORCHELASTIC_USE_AGENT_STORE") == "True");

  plan.threads_per_worker = 5;
  CHECK(worker_environment(plan, assignment, 1).at("OMP_NUM_THREADS") == "5");
  plan.threads_per_worker = 0;
  plan.cores = 1;
  CHECK(worker_environment(plan, assignment, 1).at("OMP_NUM_THREADS") == "1");
  const Variable threads("OMP_NUM_THREADS", "7"), handling("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3");
  CHECK(worker_environment(plan, assignment, 1).at("OMP_NUM_THREADS") == "7");
  CHECK(worker_environment(plan, assignment, 1).at("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "3");
}

TEST_CASE("nodes that share a file system have log directories of their own") {
  WorkerPlan plan;
  plan.log_dir = "logs";
  Assignment assignment;
  CHECK(worker_log_dir(plan, assignment, 3) == "logs/attempt_0/3");
  plan.max_nodes = 2;
  CHECK(worker_log_dir(plan, assignment, 3) == "logs/node_0/attempt_0/3");
  assignment.node_rank = 1;
  assignment.attempt = 2;
  CHECK(worker_log_dir(plan, assignment, 3) == "logs/node_1/attempt_2/3");
}

TEST_CASE("this program's own command is its path and the arguments") {
  const auto command = self_command({"run", "job.yaml"});
  REQUIRE(command.size() == 3);
  CHECK(std::filesystem::path(command[0]).filename() == "launch_test");
  CHECK(command[2] == "job.yaml");
}
