#include "launch/worker.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <new>
#include <string>

#include "core/error.h"
#include "launch/error_file.h"
#include "temporary_directory.h"

using namespace trainer;
using namespace trainer::launch;
using Catch::Matchers::Message;

namespace {

const std::map<std::string, std::string> kWorker = {
    {"RANK", "5"},       {"WORLD_SIZE", "8"},       {"LOCAL_RANK", "1"},     {"LOCAL_WORLD_SIZE", "4"},
    {"GROUP_RANK", "1"}, {"GROUP_WORLD_SIZE", "2"}, {"MASTER_ADDR", "head"}, {"MASTER_PORT", "29500"}};

// The world that a process with this environment takes.
std::optional<World> world_of(const std::map<std::string, std::string>& env) {
  for (const auto& [name, value] : kWorker) ::unsetenv(name.c_str());
  ::unsetenv("TORCHELASTIC_RUN_ID");
  for (const auto& [name, value] : env) ::setenv(name.c_str(), value.c_str(), 1);
  return take_worker_world();
}

std::map<std::string, std::string> with(std::map<std::string, std::string> env, const std::string& name,
                                        const std::string& value) {
  env[name] = value;
  return env;
}

}  // namespace

TEST_CASE("the agent's marker makes a worker, and only once") {
  const std::optional<World> world = world_of(with(kWorker, "TRAINER_WORKER", "1"));
  REQUIRE(world);
  CHECK(world->rank == 5);
  CHECK(world->size == 8);
  CHECK(world->local_rank == 1);
  CHECK(world->local_size == 4);
  CHECK(world->node_rank == 1);
  CHECK(world->num_nodes == 2);
  CHECK(world->master_addr == "head");
  CHECK(world->master_port == 29500);
  CHECK_FALSE(take_worker_world());
}

TEST_CASE("torchrun's variables make a worker") {
  CHECK(world_of(with(kWorker, "TORCHELASTIC_RUN_ID", "none")));
}

TEST_CASE("a node-level RANK and WORLD_SIZE make no worker") {
  CHECK_FALSE(world_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "head"}, {"MASTER_PORT", "1"}}));
  CHECK_FALSE(world_of(kWorker));
}

TEST_CASE("a worker's environment that is incomplete or wrong is an error that names the variable") {
  auto env = with(kWorker, "TRAINER_WORKER", "1");
  CHECK_THROWS_MATCHES(world_of(with(env, "RANK", "x")), SpecError,
                       Message("RANK: got \"x\"; expected an integer >= 0"));
  CHECK_THROWS_MATCHES(
      world_of(with(env, "RANK", "8")), SpecError,
      Message("RANK 8 of WORLD_SIZE 8, LOCAL_RANK 1 of LOCAL_WORLD_SIZE 4: a rank must be below its size"));
  env.erase("MASTER_PORT");
  CHECK_THROWS_MATCHES(world_of(env), SpecError,
                       Message("MASTER_PORT: not set in a worker's environment; the launcher must set it"));
}

TEST_CASE("a worker's error is written for the agent and gives the exit code") {
  const TemporaryDirectory dir;
  const auto file = dir.path / "error.json";
  ::setenv("TORCHELASTIC_ERROR_FILE", file.c_str(), 1);
  CHECK(report_worker_error(DataError("train.tsv:7: 4 columns"), 312) == 3);
  const auto report = read_error_file(file);
  REQUIRE(report);
  CHECK(report->message == "data error: train.tsv:7: 4 columns");
  CHECK(report->step == 312);
  CHECK(report->timestamp_s > 1.6e9);

  CHECK(report_worker_error(std::bad_alloc(), std::nullopt) == 7);
  CHECK(read_error_file(file)->message == "out of memory: std::bad_alloc");
  CHECK_FALSE(read_error_file(file)->step);
  CHECK(report_worker_error(std::runtime_error("odd"), std::nullopt) == 1);
  CHECK(read_error_file(file)->message == "internal error: odd");
  ::setenv("TORCHELASTIC_ERROR_FILE", "/no/such/directory/error.json", 1);
  CHECK(report_worker_error(NumericError("nan"), std::nullopt) == 6);
  ::unsetenv("TORCHELASTIC_ERROR_FILE");
}
