#include "launch/plan/node_facts.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace trainer::launch;
using Status = Check::Status;

namespace {

std::vector<NodeFacts> equal_nodes(int n) {
  std::vector<NodeFacts> nodes;
  for (int i = 0; i < n; ++i) {
    nodes.push_back({"gpu" + std::to_string(i), "0.2.0", "2.11.0", "77b1", "8 x H100 80.0 GiB", "580.82.07"});
  }
  return nodes;
}

Check check_named(const std::vector<NodeFacts>& nodes, const std::string& name) {
  for (const Check& check : compare_facts(nodes)) {
    if (check.name == name) return check;
  }
  throw std::out_of_range(name);
}

}  // namespace

TEST_CASE("equal nodes pass") {
  CHECK_FALSE(has_error(compare_facts(equal_nodes(3))));
  CHECK(describe(compare_facts(equal_nodes(1)), false).empty());
  CHECK(check_named(equal_nodes(2), "trainer").found == "0.2.0 on all nodes");
  CHECK(compare_facts({}).empty());
}

TEST_CASE("the node that differs from most is named, be it the first") {
  std::vector<NodeFacts> nodes = equal_nodes(4);
  nodes[0].trainer_version = "0.1.0";
  Check check = check_named(nodes, "trainer");
  CHECK(check.status == Status::kError);
  CHECK(check.found == "node 0 (gpu0) has 0.1.0; node 1 (gpu1) and 2 like it have 0.2.0");
  CHECK(check.mend == "install the same version on every node");
  nodes = equal_nodes(2);
  nodes[1].libtorch_version = "2.10.0";
  check = check_named(nodes, "LibTorch");
  CHECK(check.status == Status::kError);
  CHECK(check.found == "node 1 (gpu1) has 2.10.0; node 0 (gpu0) has 2.11.0");
}

TEST_CASE("another job is an error; other GPUs and drivers are warnings") {
  std::vector<NodeFacts> nodes = equal_nodes(3);
  nodes[2] = {"gpu2", "0.2.0", "2.11.0", "3f2a", "no GPU", ""};
  CHECK(check_named(nodes, "job").status == Status::kError);
  CHECK(check_named(nodes, "job").found == "node 2 (gpu2) has 3f2a; node 0 (gpu0) and 1 like it have 77b1");
  CHECK(check_named(nodes, "GPUs").status == Status::kWarning);
  CHECK(check_named(nodes, "GPUs").found ==
        "node 2 (gpu2) has no GPU; node 0 (gpu0) and 1 like it have 8 x H100 80.0 GiB");
  CHECK(check_named(nodes, "GPU driver").status == Status::kWarning);
  CHECK(check_named(nodes, "GPU driver").found ==
        "node 2 (gpu2) has none; node 0 (gpu0) and 1 like it have 580.82.07");
}

TEST_CASE("of many that differ some are named") {
  std::vector<NodeFacts> nodes = equal_nodes(20);
  for (size_t i = 0; i < 6; ++i) nodes[3 + i].driver = "535." + std::to_string(i);
  CHECK(check_named(nodes, "GPU driver").found ==
        "node 3 (gpu3) has 535.0, node 4 (gpu4) has 535.1, node 5 (gpu5) has 535.2, node 6 (gpu6) has 535.3 "
        "and 2 more "
        "differ; node 0 (gpu0) and 13 like it have 580.82.07");
}

TEST_CASE("facts are sent as JSON") {
  const nlohmann::json json = equal_nodes(2);
  CHECK(nlohmann::json::parse(json.dump()).get<std::vector<NodeFacts>>() == equal_nodes(2));
  CHECK_THROWS_AS(nlohmann::json::parse("{\"host\": \"a\"}").get<NodeFacts>(), nlohmann::json::exception);
}
