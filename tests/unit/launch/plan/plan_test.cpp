#include "launch/plan/plan.h"

#include <catch2/catch.hpp>
#include <csignal>
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
  return plan_workers(launch, hardware, machine, {"program"});
}

int64_t nproc(const std::string& text, const hardware::Machine& machine, spec::DeviceChoice device = {}) {
  spec::Launch launch;
  launch.nproc_per_node = text;
  return plan(launch, machine, device).nproc;
}

// Sets an environment variable for a scope.
struct Variable {
  const char* name;
  std::optional<std::string> before;
  Variable(const char* name, const char* value) : name(name) {
    if (const char* old = std::getenv(name)) before = old;
    ::setenv(name, value, 1);
  }
  ~Variable() { before ? ::setenv(name, before->c_str(), 1) : ::unsetenv(name); }
};

void faulty(const spec::Launch& launch, const std::string& message) {
  CHECK_THROWS_MATCHES(plan(launch, machine(1, 0)), SpecError, Message(message));
}

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

TEST_CASE("a fixed number of nodes meets at node 0's address, and each is told its number") {
  spec::Launch launch;
  launch.nnodes = "2";
  launch.node_rank = 1;
  launch.master_addr = "[fd00::7]";
  WorkerPlan p = plan(launch, machine(1, 0));
  CHECK(p.min_nodes == 2);
  CHECK(p.max_nodes == 2);
  CHECK(p.node_rank == 1);
  CHECK(p.endpoints == std::vector<Endpoint>{{"fd00::7", 29500}});
  launch.master_port = 1234;
  CHECK(plan(launch, machine(1, 0)).endpoints == std::vector<Endpoint>{{"fd00::7", 1234}});
}

TEST_CASE("elastic nodes meet at an endpoint and need no number") {
  spec::Launch launch;
  launch.nnodes = "2:8";
  launch.rdzv_endpoint = "head,10.0.0.1:1234,[fd00::7]:99,fd00::8,[fd00::9]";
  const WorkerPlan p = plan(launch, machine(1, 0));
  CHECK(p.min_nodes == 2);
  CHECK(p.max_nodes == 8);
  CHECK(p.node_rank == -1);
  CHECK(p.endpoints ==
        std::vector<Endpoint>{
            {"head", 29400}, {"10.0.0.1", 1234}, {"fd00::7", 99}, {"fd00::8", 29400}, {"fd00::9", 29400}});
  launch.nnodes = "4";
  CHECK(plan(launch, machine(1, 0)).node_rank == -1);
  launch.node_rank = 3;
  CHECK(plan(launch, machine(1, 0)).node_rank == 3);
  launch.nnodes = "4:5";
  CHECK(plan(launch, machine(1, 0)).node_rank == -1);
}

TEST_CASE("a single node meets nobody") {
  spec::Launch launch;
  CHECK(plan(launch, machine(1, 0)).endpoints.empty());
  launch.nnodes = "1:1";
  launch.master_port = 0;
  launch.rdzv_endpoint = "localhost:29400";
  const WorkerPlan p = plan(launch, machine(1, 0));
  CHECK(p.endpoints.empty());
  CHECK(p.node_rank == 0);
}

TEST_CASE("what does not fit of nodes is named by its key") {
  spec::Launch launch;
  for (const char* nodes : {"0", "3:2", "10001", "1:x", ""}) {
    launch.nnodes = nodes;
    faulty(launch, std::string("launch.nnodes: got \"") + nodes +
                       "\"; expected a number from 1 to 10000, or MIN:MAX of such numbers");
  }
  launch.nnodes = "2:3";
  faulty(launch,
         "launch.rdzv_endpoint: not set, with 2:3 nodes; expected the address where they meet\n"
         "  hint: --rdzv-endpoint HOST:PORT, the same on every node; one of them has this address");
  launch.nnodes = "2";
  faulty(
      launch,
      "launch.master_addr: not set, with 2 nodes; expected the address where they meet\n"
      "  hint: --master-addr HOST --node-rank K, or --rdzv-endpoint HOST:PORT, the same host on every node");
  launch.master_addr = "head";
  faulty(launch,
         "launch.node_rank: not set, with 2 nodes that meet at head; expected this node's number, 0 to 1\n"
         "  hint: --node-rank K, or NODE_RANK in the environment; with --rdzv-endpoint nodes are numbered as "
         "they "
         "come");
  launch.node_rank = 2;
  faulty(launch, "launch.node_rank: got 2; expected 0 to 1 (launch.nnodes is 2)");
  launch.master_port = 0;
  launch.node_rank = 1;
  faulty(launch,
         "launch.master_port: got 0 with 2 nodes; expected a port that is free on node 0, the same on every "
         "node");
  launch.rdzv_endpoint = "head:0";
  faulty(launch, "launch.rdzv_endpoint: got port 0 with 2 nodes; expected one that all nodes know");
  launch.rdzv_endpoint = "head";
  launch.heartbeat_timeout_s = 1;
  faulty(launch, "launch.heartbeat_timeout_s: got 1; expected at least twice launch.heartbeat_s, 1");
}

TEST_CASE("redirects and tee say by local rank what the console does not show") {
  spec::Launch launch;
  launch.nproc_per_node = "12";
  launch.redirects = "0:1,11:3,40:3";
  launch.tee = "11:2";
  WorkerPlan p = plan(launch, machine(1, 0));
  CHECK(p.file_only == std::vector<Streams>{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
  CHECK(p.files == std::vector<Streams>(12, 3));
  launch.redirects = "2";
  launch.tee = "0";
  launch.nproc_per_node = "2";
  CHECK(plan(launch, machine(1, 0)).file_only == std::vector<Streams>{2, 2});
  launch.log_dir = "/dev/null";
  p = plan(launch, machine(1, 0));
  CHECK_FALSE(p.log_to_files);
  CHECK(p.files == std::vector<Streams>{0, 0});
}

TEST_CASE("local ranks none of which is here are named") {
  spec::Launch launch;
  launch.nproc_per_node = "2";
  launch.redirects = "7:1";
  faulty(launch, "launch.redirects: got local rank 7; expected 0 to 1 (2 workers)");
  launch.redirects = "1:1";
  launch.tee = "9:3";
  faulty(launch, "launch.tee: got local rank 9; expected 0 to 1 (2 workers)");
  launch.tee = "0";
  launch.local_ranks_filter = {9};
  launch.nproc_per_node = "1";
  launch.redirects = "0";
  faulty(launch, "launch.local_ranks_filter: got local rank 9; expected 0 (1 worker)");
  launch.local_ranks_filter = {9, 0};  // of a larger node, too
  CHECK(plan(launch, machine(1, 0)).shown_ranks == std::vector<int64_t>{9, 0});
}

TEST_CASE("an endpoint is read where one node needs none, too") {
  spec::Launch launch;
  launch.rdzv_endpoint = "a b";
  faulty(launch,
         "launch.rdzv_endpoint: got \"a b\": a host has no spaces, slashes or brackets in it; expected host, "
         "host:port or [IPv6 address]:port");
}

TEST_CASE("signals are named, with or without SIG") {
  spec::Launch launch;
  launch.signals_to_handle = "SIGTERM,USR1";
  CHECK(plan(launch, machine(1, 0)).stop_signals == std::vector<int>{SIGTERM, SIGUSR1});
  for (const char* name : {"SIGFOO", "SIGKILL", "15", "SIGCHLD"}) {
    launch.signals_to_handle = name;
    CHECK_THROWS_MATCHES(plan(launch, machine(1, 0)), SpecError,
                         Message(std::string("launch.signals_to_handle: got \"") + name +
                                 "\"; expected names of signals that can be handled, e.g. SIGTERM,SIGUSR1"));
  }
}

TEST_CASE("every worker with a device of its own needs as many devices") {
  const Variable devices("CUDA_VISIBLE_DEVICES", "3, GPU-a");
  spec::Launch launch;
  launch.virtual_local_rank = true;
  launch.nproc_per_node = "3";
  CHECK_THROWS_MATCHES(
      plan(launch, machine(1, 0)), SpecError,
      Message("launch.virtual_local_rank: 3 workers, but CUDA_VISIBLE_DEVICES=3, GPU-a has 2 devices"));
  launch.nproc_per_node = "2";
  const WorkerPlan p = plan(launch, machine(1, 0));
  const Assignment assignment{.world_size = 2};
  for (const int64_t rank : {0, 1}) {
    const auto env = worker_environment(p, assignment, rank);
    CHECK(env.at("LOCAL_RANK") == "0");
    CHECK(env.at("RANK") == std::to_string(rank));
    CHECK(env.at("CUDA_VISIBLE_DEVICES") == (rank == 0 ? "3" : "GPU-a"));
  }
}

TEST_CASE("without CUDA_VISIBLE_DEVICES a worker's own device is its number") {
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  WorkerPlan plan;
  plan.virtual_local_rank = true;
  plan.nproc = 8;
  CHECK(worker_environment(plan, {}, 5).at("CUDA_VISIBLE_DEVICES") == "5");
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

TEST_CASE("schedulers say what flags and file do not") {
  const auto asked = [](spec::Launch launch = {}) {
    ask_scheduler(launch);
    return fmt::format("{} {} {} {}", *launch.nnodes, launch.node_rank.value_or(-1), launch.master_addr,
                       launch.master_port.value_or(-1));
  };
  CHECK(asked() == "1 -1  -1");
  const Variable address("MASTER_ADDR", "head"), port("MASTER_PORT", "1234"), rank("NODE_RANK", "1"),
      world("WORLD_SIZE", "8"), worker("RANK", "5");
  CHECK(asked() == "1 -1  -1");
  spec::Launch two;
  two.nnodes = "2";
  CHECK(asked(two) == "2 1 head 1234");
  two.node_rank = 0;
  two.master_addr = "other";
  two.master_port = 99;
  CHECK(asked(two) == "2 0 other 99");
  two = {};
  two.nnodes = "2";
  two.rdzv_endpoint = "meeting";
  CHECK(asked(two) == "2 -1  -1");
}

TEST_CASE("SkyPilot, Slurm and Kubernetes number nodes") {
  const auto asked = [](const char* nnodes) {
    spec::Launch launch;
    if (nnodes != nullptr) launch.nnodes = nnodes;
    ask_scheduler(launch);
    return fmt::format("{} {} {}", *launch.nnodes, launch.node_rank.value_or(-1), launch.master_addr);
  };
  {
    const Variable nodes("SKYPILOT_NUM_NODES", "3"), rank("SKYPILOT_NODE_RANK", "2"),
        addresses("SKYPILOT_NODE_IPS", "10.0.0.1\n10.0.0.2\n10.0.0.3");
    CHECK(asked(nullptr) == "3 2 10.0.0.1");
  }
  {
    const Variable step("SLURM_STEP_ID", "0"), nodes("SLURM_STEP_NUM_NODES", "4"), rank("SLURM_NODEID", "3"),
        names("SLURM_STEP_NODELIST", "gpu[07-09,12]");
    const Variable tasks("SLURM_STEP_NUM_TASKS", "4");
    CHECK(asked(nullptr) == "4 3 gpu07");
    const Variable many("SLURM_STEP_NUM_TASKS", "16");
    CHECK(asked(nullptr) == "1 -1 ");
  }
  const Variable index("JOB_COMPLETION_INDEX", "1");
  CHECK(asked("2") == "2 1 ");
}

TEST_CASE("a scheduler's variable that is no number is named") {
  const Variable rank("NODE_RANK", "one");
  spec::Launch launch;
  launch.nnodes = "2";
  CHECK_THROWS_MATCHES(ask_scheduler(launch), SpecError,
                       Message("NODE_RANK: got \"one\"; expected an integer from 0 to 9999"));
}

TEST_CASE("the token of the environment beats the file's, and workers do not get it") {
  const Variable variable("TRAINER_TOKEN", "secret");
  spec::Launch launch;
  launch.token = "other";
  ask_scheduler(launch);
  CHECK(launch.token == "secret");
  CHECK(worker_environment(WorkerPlan{}, {}, 0).count("TRAINER_TOKEN") == 0);
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
  plan.log_dir_is_shared = true;
  plan.max_restarts = 3;
  plan.run_id = "id";
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
  CHECK(env.at("TORCHELASTIC_MAX_RESTARTS") == "3");
  CHECK(env.at("TORCHELASTIC_RUN_ID") == "id");
  CHECK(env.at("TORCHELASTIC_SIGNALS_TO_HANDLE") == "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
  CHECK(env.at("TORCHELASTIC_ERROR_FILE") ==
        std::filesystem::absolute("logs/node_2/attempt_0/1/error.json").string());
  CHECK(env.at("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "1");
  CHECK(env.at("OMP_NUM_THREADS") == "2");
  CHECK(env.at("GOMP_SPINCOUNT") == "1000");
  CHECK(env.at("NCCL_DEBUG") == "WARN");
  CHECK(env.at("OWN") == "x");
  CHECK(env.at("TRAINER_WORKER") == "1");
  CHECK(env.count("PATH") == 1);
  CHECK(env.at("TORCHELASTIC_USE_AGENT_STORE") == "True");
  plan.is_trainer = false;
  env = worker_environment(plan, assignment, 1);
  CHECK(env.count("TRAINER_WORKER") == 0);
  CHECK(env.count("GOMP_SPINCOUNT") == 0);
  plan.is_trainer = true;

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
  plan.log_dir_is_shared = true;
  Assignment assignment;
  CHECK(worker_log_dir(plan, assignment, 3) == "logs/attempt_0/3");
  plan.max_nodes = 2;
  CHECK(worker_log_dir(plan, assignment, 3) == "logs/node_0/attempt_0/3");
  assignment.node_rank = 1;
  assignment.attempt = 2;
  CHECK(worker_log_dir(plan, assignment, 3) == "logs/node_1/attempt_2/3");
}

TEST_CASE("a directory of this run alone needs none for its nodes") {
  WorkerPlan plan;
  plan.log_dir = "logs/id_x";
  plan.max_nodes = 2;
  plan.log_dir_is_shared = false;
  CHECK(worker_log_dir(plan, {}, 3) == "logs/id_x/attempt_0/3");
  CHECK(filtered_log(plan, {}, 1) == "logs/id_x/attempt_0/filtered_stdout.log");
  CHECK(filtered_log(plan, {}, 2) == "logs/id_x/attempt_0/filtered_stderr.log");
}

TEST_CASE("lines say node, rank and attempt, unless there is nothing to tell apart") {
  CHECK(line_prefix({0, 0, 1, 0, 1, 0, "", 0}, 0).empty());
  CHECK(line_prefix({0, 0, 1, 0, 2, 0, "", 0}, 1) == "[0:1] ");
  CHECK(line_prefix({0, 2, 3, 8, 12, 0, "", 0}, 1) == "[2:9] ");
  CHECK(line_prefix({1, 2, 3, 8, 12, 0, "", 0}, 1) == "[2:9#1] ");
  CHECK(line_prefix({1, 0, 1, 0, 1, 0, "", 0}, 0) == "[0:0#1] ");
}

TEST_CASE("torchrun's macro in a program's arguments is its local rank") {
  WorkerPlan plan;
  plan.argv = {"${local_rank}", "-d", "cuda:${local_rank},${local_rank}"};
  plan.is_trainer = false;
  CHECK(worker_command(plan, 11) == std::vector<std::string>{"${local_rank}", "-d", "cuda:11,11"});
}

TEST_CASE("this program's own command is its path and the arguments") {
  const auto command = self_command({"run", "job.yaml"});
  REQUIRE(command.size() == 3);
  CHECK(std::filesystem::path(command[0]).filename() == "launch_test");
  CHECK(command[2] == "job.yaml");
}
