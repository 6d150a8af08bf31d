#include "job/world.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <string>

#include "core/error.h"

using Catch::Matchers::Message;
using namespace trainer;

namespace {

using Variables = std::map<std::string, std::string>;

// The world that these variables alone give; the test's own environment is left as it was.
std::optional<World> world_with(const Variables& variables, bool is_agent = false) {
  static const char* const kAll[] = {"TRAINER_WORKER",
                                     "TORCHELASTIC_RUN_ID",
                                     "RANK",
                                     "WORLD_SIZE",
                                     "LOCAL_RANK",
                                     "LOCAL_WORLD_SIZE",
                                     "GROUP_RANK",
                                     "GROUP_WORLD_SIZE",
                                     "MASTER_ADDR",
                                     "MASTER_PORT",
                                     "SLURM_STEP_ID",
                                     "SLURM_STEP_NUM_TASKS",
                                     "SLURM_STEP_NUM_NODES",
                                     "SLURM_STEP_TASKS_PER_NODE",
                                     "SLURM_STEP_NODELIST",
                                     "SLURM_PROCID",
                                     "SLURM_LOCALID",
                                     "SLURM_NODEID",
                                     "SLURM_JOB_ID",
                                     "OMPI_COMM_WORLD_RANK",
                                     "OMPI_COMM_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK",
                                     "OMPI_COMM_WORLD_LOCAL_SIZE",
                                     "PMIX_NAMESPACE",
                                     "PET_NNODES",
                                     "PET_NODE_RANK",
                                     "PET_RDZV_ENDPOINT"};
  struct Restore {
    Variables before;
    ~Restore() {
      for (const char* name : kAll) ::unsetenv(name);
      for (const auto& [name, value] : before) ::setenv(name.c_str(), value.c_str(), 1);
    }
  } restore;
  for (const char* name : kAll) {
    if (const char* value = std::getenv(name)) restore.before[name] = value;
    ::unsetenv(name);
  }
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  return world_from_environment(is_agent);
}

Variables changed(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables.insert_or_assign(name, value);
  return variables;
}

const Variables kTorchrun = {{"TORCHELASTIC_RUN_ID", "none"},
                             {"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"GROUP_RANK", "1"},
                             {"GROUP_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "10.0.0.1"},
                             {"MASTER_PORT", "29400"}};
const Variables kSlurm = {{"SLURM_JOB_ID", "1234"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_STEP_NUM_TASKS", "7"},
                          {"SLURM_STEP_NUM_NODES", "3"},
                          {"SLURM_STEP_TASKS_PER_NODE", "3(x2),1"},
                          {"SLURM_STEP_NODELIST", "gpu[07-08,12]"},
                          {"SLURM_PROCID", "4"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "1"}};
const Variables kMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                        {"OMPI_COMM_WORLD_SIZE", "4"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};

}  // namespace

TEST_CASE("a process that nobody started as a worker has no world") {
  CHECK_FALSE(world_with({}));
  CHECK_FALSE(world_with({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}));
  CHECK_FALSE(world_with(changed(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}})));  // a shell on the node
  CHECK_FALSE(world_with(changed(kMpi, {{"OMPI_COMM_WORLD_SIZE", "1"}})));
}

TEST_CASE(
    "an agent that srun or mpirun started on each node is no worker, torchrun's worker on such a node is") {
  CHECK_FALSE(world_with(changed(kSlurm, {{"PET_NNODES", "3"}})));
  CHECK_FALSE(world_with(changed(kMpi, {{"PET_NODE_RANK", "0"}})));
  CHECK_FALSE(world_with(changed(kMpi, {{"PET_RDZV_ENDPOINT", "a"}})));
  CHECK_FALSE(world_with(kSlurm, true));
  CHECK(world_with(changed(kSlurm, {{"PET_NNODES", ""}})).has_value());
  CHECK(world_with(kTorchrun, true).has_value());
  CHECK(world_with(changed(kTorchrun, {{"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}}))->rank == 5);
}

TEST_CASE("torchrun's and the agent's variables are the world") {
  const World expected{5, 8, 1, 4, 1, 2, "10.0.0.1", 29400};
  CHECK(world_with(kTorchrun) == expected);
  Variables ours = changed(kTorchrun, {{"TRAINER_WORKER", "1"}});
  ours.erase("TORCHELASTIC_RUN_ID");
  CHECK(world_with(ours) == expected);
}

TEST_CASE("every missing or malformed variable of torchrun is named") {
  Variables bad = changed(
      kTorchrun, {{"RANK", "8"}, {"LOCAL_RANK", "one"}, {"GROUP_WORLD_SIZE", "0"}, {"MASTER_PORT", "99999"}});
  bad.erase("MASTER_ADDR");
  CHECK_THROWS_MATCHES(world_with(bad), SpecError,
                       Message("RANK: got 8; expected less than WORLD_SIZE (8)\n"
                               "LOCAL_RANK: got \"one\"; expected an integer >= 0\n"
                               "GROUP_WORLD_SIZE: got 0; expected an integer from 1 to 10000000\n"
                               "GROUP_RANK: got 1; expected less than GROUP_WORLD_SIZE (1)\n"
                               "MASTER_ADDR: not set; expected it from torchrun\n"
                               "MASTER_PORT: got 99999; expected an integer from 0 to 65535\n"
                               "6 faults in the environment"));
}

TEST_CASE("a Slurm step's tasks are the world") {
  const World world = world_with(kSlurm).value();
  CHECK(world.rank == 4);
  CHECK(world.size == 7);
  CHECK(world.local_rank == 1);
  CHECK(world.local_size == 3);
  CHECK(world.node_rank == 1);
  CHECK(world.num_nodes == 3);
  CHECK(world.master_addr == "gpu07");
  CHECK(world.master_port == 15000 + (1234 * 61) % 15000);
  CHECK(world_with(changed(kSlurm, {{"SLURM_STEP_NODELIST", "a1,b[2-3]"}}))->master_addr == "a1");
  CHECK(world_with(changed(kSlurm, {{"SLURM_STEP_NODELIST", "n[3,5]-ib,m"}}))->master_addr == "n3-ib");
  CHECK(world_with(changed(kSlurm, {{"MASTER_ADDR", "head"}}))->master_addr == "head");
  CHECK(world_with(changed(kSlurm, {{"MASTER_PORT", "4000"}}))->master_port == 4000);
}

TEST_CASE("a Slurm step that is not whole is an error") {
  Variables bad =
      changed(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "3(y2)"}, {"SLURM_STEP_NODELIST", "gpu[07"}});
  bad.erase("SLURM_JOB_ID");
  CHECK_THROWS_MATCHES(
      world_with(bad), SpecError,
      Message("SLURM_STEP_TASKS_PER_NODE: got \"3(y2)\"; expected the 7 tasks of 3 nodes, e.g. 4(x2),1\n"
              "SLURM_STEP_NODELIST: got \"gpu[07\"; expected host names, e.g. gpu[01-04]\n"
              "SLURM_JOB_ID: not set; expected it from srun\n"
              "3 faults in the environment"));
  CHECK_THROWS_MATCHES(world_with(changed(kSlurm, {{"SLURM_LOCALID", "3"}})), SpecError,
                       Message("SLURM_LOCALID: got 3; expected less than the node's 3 tasks\n"
                               "1 fault in the environment"));
}

TEST_CASE("Open MPI's variables are the world") {
  CHECK(world_with(kMpi) == World{3, 4, 3, 4, 0, 1, "127.0.0.1", 29500});
  // "12" is 49 * 31 + 50.
  CHECK(world_with(changed(kMpi, {{"PMIX_NAMESPACE", "12"}}))->master_port == 15000 + 1569);
  CHECK(world_with(changed(kMpi, {{"PMIX_NAMESPACE", "12"}, {"MASTER_PORT", "4000"}}))->master_port == 4000);
  const Variables two_nodes =
      changed(kMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  CHECK_THROWS_MATCHES(
      world_with(two_nodes), SpecError,
      Message("MASTER_ADDR: not set; expected the host of rank 0 (mpirun -x MASTER_ADDR=...)\n"
              "1 fault in the environment"));
  CHECK(world_with(changed(two_nodes, {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "4000"}})) ==
        World{3, 4, 1, 2, 1, 2, "head", 4000});
}
