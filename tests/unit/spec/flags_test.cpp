#include "spec/flags.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "core/error.h"
#include "spec/load.h"

using Catch::Matchers::Message;
using namespace trainer;
using namespace trainer::spec;
using Kind = LaunchKey::Kind;

TEST_CASE("every key of the launch section is a flag of its kind") {
  const auto keys = launch_keys();
  const auto kind = [&](std::string_view key) {
    const auto found =
        std::find_if(keys.begin(), keys.end(), [&](const LaunchKey& k) { return k.key == key; });
    REQUIRE(found != keys.end());
    return found->kind;
  };
  CHECK(kind("nnodes") == Kind::kText);
  CHECK(kind("virtual_local_rank") == Kind::kSwitch);
  CHECK(kind("local_ranks_filter") == Kind::kList);
  CHECK(kind("env") == Kind::kMap);
}

TEST_CASE("a flag beats --set, --set beats a variable, a variable beats the file") {
  const std::string yaml = "launch: {nnodes: 2, run_id: file, role: file, tee: 1}";
  const std::vector<Flag> flags = {{"--nnodes", "nnodes", Kind::kText, "5", false},
                                   {"PET_NNODES", "nnodes", Kind::kText, "3", true},
                                   {"PET_RUN_ID", "run_id", Kind::kText, "variable", true},
                                   {"PET_ROLE", "role", Kind::kText, "variable", true}};
  const Launch launch = parse(yaml, "job.yaml", {"launch.nnodes=4", "launch.run_id=set"}, flags).launch;
  CHECK(launch.nnodes == "5");
  CHECK(launch.run_id == "set");
  CHECK(launch.role == "variable");
  CHECK(launch.tee == "1");
}

TEST_CASE("a flag's value is text as it stands") {
  const Launch launch = parse_launch(
      {{"--run-id", "run_id", Kind::kText, "[${HOME}] #1: null", false},
       {"--role", "role", Kind::kText, "null", false},
       {"--env", "env.NCCL_DEBUG", Kind::kText, "INFO=\"x\"", false},
       {"--local-ranks-filter", "local_ranks_filter", Kind::kList, "0,12", false},
       {"--duplicate-stdout-filters", "duplicate_stdout_filters", Kind::kList, "apple pie,a,,b", false},
       {"PET_VIRTUAL_LOCAL_RANK", "virtual_local_rank", Kind::kSwitch, "1", true}});
  CHECK(launch.run_id == "[${HOME}] #1: null");
  CHECK(launch.role == "null");
  CHECK(launch.env.at("NCCL_DEBUG") == "INFO=\"x\"");
  CHECK(launch.local_ranks_filter == std::vector<int64_t>{0, 12});
  CHECK(launch.duplicate_stdout_filters == std::vector<std::string>{"apple pie", "a,b"});
  CHECK(launch.virtual_local_rank);
  CHECK(launch.nproc_per_node == "auto");
}

TEST_CASE("faults name the flag or the variable") {
  CHECK_THROWS_MATCHES(
      parse_launch({{"--max-restarts", "max_restarts", Kind::kText, "x", false},
                    {"PET_VIRTUAL_LOCAL_RANK", "virtual_local_rank", Kind::kSwitch, "yes", true}}),
      SpecError,
      Message("PET_VIRTUAL_LOCAL_RANK: got \"yes\"; expected true or false\n"
              "--max-restarts: got \"x\"; expected an integer from 0 to 1000000\n"
              "2 faults in the command line"));
}
