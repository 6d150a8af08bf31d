#include "launch/plan/node_setup.h"

#include <nlohmann/json.hpp>

#include "launch/plan/network_profile.h"
#include "net/address.h"

namespace trainer::launch {

using nlohmann::json;

NodeSetup set_up_node(const WorkerPlan& plan, const std::string& host, const std::string& address,
                      const std::string& address_from, bool hosts_output) {
  NodeSetup setup;
  const std::vector<hardware::Gpu> gpus = plan.uses_gpus ? plan.machine.gpus : std::vector<hardware::Gpu>();
  setup.placement = place_workers(plan.numa_binding, plan.nproc, gpus);
  if (!setup.placement.warning.empty()) setup.lines.push_back("warning: " + setup.placement.warning);
  if (!setup.placement.workers.empty()) setup.lines.push_back("placement: " + describe(setup.placement));

  std::map<std::string, std::string> env = inherited_environment();
  for (const auto& [name, value] : plan.env) env[name] = value;
  PreflightInput input;
  if (plan.max_nodes > 1) {
    const NetworkQuestion question{plan.network,   plan.max_nodes, plan.uses_gpus,
                                   plan.interface, address,        address_from};
    const NetworkProfile profile = network_profile(question, read_network_host(gpus), env);
    for (const NetworkSetting& setting : profile.settings)
      env[setting.name] = setup.network[setting.name] = setting.value;
    const std::vector<std::string> lines = describe(profile);
    setup.lines.insert(setup.lines.end(), lines.begin(), lines.end());
    input.network_warning = profile.warning;
    input.endpoint_host = plan.endpoints.empty() ? "" : plan.endpoints.front().host;
  }
  if (plan.max_nodes > 1 || !plan.interface.empty()) input.interfaces = net::interfaces();
  input.machine = plan.machine;
  input.limits = read_node_limits();
  input.nproc = plan.nproc;
  input.num_nodes = plan.max_nodes;
  input.uses_gpus = plan.uses_gpus;
  input.uses_rdma = env.contains("NCCL_IB_HCA") && !env.contains("NCCL_IB_DISABLE");
  input.is_trainer = plan.is_trainer;
  input.interface = plan.interface;
  input.env = std::move(env);
  if (hosts_output) input.output_dir = plan.output_dir;
  input.log_dir = plan.log_dir;
  if (plan.preflight) setup.checks = check_node(input);
  if (plan.preflight_only) setup.lines.push_back(describe(setup.checks, true));
  setup.facts = {host,
                 TRAINER_VERSION,
                 TRAINER_LIBTORCH_VERSION,
                 plan.spec_hash,
                 hardware::describe(plan.machine.gpus),
                 plan.machine.driver};
  return setup;
}

std::string encode_facts(const NodeSetup& setup) {
  return json{{"facts", setup.facts}, {"checks", setup.checks}}.dump(-1, ' ', false,
                                                                     json::error_handler_t::replace);
}

Inspection inspect_nodes(const std::vector<std::string>& facts) {
  std::vector<NodeFacts> nodes;
  Inspection inspection;
  const auto add = [&](const std::string& who, const std::vector<Check>& checks) {
    for (const Check& check : checks) {
      if (check.status == Check::Status::kOk) continue;
      std::string& lines = check.status == Check::Status::kError ? inspection.errors : inspection.warnings;
      lines += "\n" + who + describe({check}, false);
      while (lines.ends_with('\n')) lines.pop_back();
    }
  };
  for (const std::string& text : facts) {
    if (text.empty()) continue;
    try {
      const json value = json::parse(text);
      nodes.push_back(value.at("facts").get<NodeFacts>());
      add(facts.size() > 1 ? nodes.back().host + ": " : "", value.at("checks").get<std::vector<Check>>());
    } catch (const json::exception& error) {
      inspection.errors += std::string("\na node's facts are malformed: ") + error.what();
    }
  }
  add("", compare_facts(nodes));
  for (std::string* lines : {&inspection.errors, &inspection.warnings}) {
    if (!lines->empty()) lines->erase(0, 1);
  }
  return inspection;
}

}  // namespace trainer::launch
