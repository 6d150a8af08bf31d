#include "launch/plan/preflight_network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "core/event_loop.h"
#include "core/format.h"
#include "launch/plan/network_profile.h"
#include "net/resolution.h"

namespace trainer::launch {
namespace {

using Status = Check::Status;
using Checks = std::vector<Check>;

std::string value_of(const PreflightInput& input, const char* name) {
  const auto found = input.env.find(name);
  return found == input.env.end() ? "" : found->second;
}

bool is_usable(const net::Interface& interface) {
  return interface.is_up && !interface.addresses.empty();
}

const net::Interface* find_interface(const PreflightInput& input, std::string_view name) {
  const auto found = std::find_if(input.interfaces.begin(), input.interfaces.end(),
                                  [&](const net::Interface& interface) { return interface.name == name; });
  return found == input.interfaces.end() ? nullptr : &*found;
}

std::string list_interfaces(const PreflightInput& input) {
  std::vector<std::string> names;
  for (const net::Interface& i : input.interfaces) {
    names.push_back(i.name + (!i.is_up ? " (down)" : i.addresses.empty() ? " (no address)" : ""));
  }
  return fmt::format("this host has {}", fmt::join(names, ", "));
}

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (comma > 0) parts.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return parts;
}

// The interfaces that a setting names one by one, as Gloo reads them.
Check check_named(const PreflightInput& input, const char* setting, const std::string& value) {
  for (const std::string& name : split(value)) {
    const net::Interface* interface = find_interface(input, name);
    if (interface != nullptr && is_usable(*interface)) continue;
    const char* fault = interface == nullptr ? "does not exist"
                        : !interface->is_up  ? "is down"
                                             : "has no address";
    return {setting, Status::kError,
            fmt::format("{}={}: interface {} {}; {}", setting, value, name, fault, list_interfaces(input)),
            fmt::format("set {} to one that is up", setting)};
  }
  return {setting, Status::kOk, fmt::format("{} is up", value), ""};
}

Check check_nccl_interface(const PreflightInput& input, const std::string& value) {
  std::vector<std::string> usable;
  for (const net::Interface& interface : input.interfaces) {
    if (is_usable(interface)) usable.push_back(interface.name);
  }
  const std::vector<std::string> selected = select_as_nccl(value, usable);
  if (!selected.empty()) {
    return {"NCCL_SOCKET_IFNAME", Status::kOk, fmt::format("{} selects {}", value, fmt::join(selected, ", ")),
            ""};
  }
  return {
      "NCCL_SOCKET_IFNAME", Status::kError,
      fmt::format("NCCL_SOCKET_IFNAME={} selects no interface that is up; {}", value, list_interfaces(input)),
      "names are prefixes, exact after \"=\", left out after \"^\": \"=eth0\", \"^docker,lo\""};
}

void check_interfaces(const PreflightInput& input, Checks& checks) {
  if (!input.interface.empty()) checks.push_back(check_named(input, "launch.interface", input.interface));
  if (const std::string value = value_of(input, "GLOO_SOCKET_IFNAME"); !value.empty()) {
    checks.push_back(check_named(input, "GLOO_SOCKET_IFNAME", value));
  }
  // NCCL takes a value of one character for none.
  if (const std::string value = value_of(input, "NCCL_SOCKET_IFNAME"); input.uses_gpus && value.size() > 1) {
    checks.push_back(check_nccl_interface(input, value));
  }
  if (!input.network_warning.empty()) {
    const size_t hint = input.network_warning.find("\n  hint: ");
    checks.push_back({"launch.network", Status::kError, input.network_warning.substr(0, hint),
                      hint == std::string::npos ? "" : input.network_warning.substr(hint + 9)});
  }
}

// Names looked up at the same time; nothing for one that took too long.
std::vector<std::optional<net::Resolved>> resolve_all(const std::vector<std::string>& hosts,
                                                      double timeout_s) {
  std::vector<std::optional<net::Resolved>> results(hosts.size());
  EventLoop loop;
  size_t waiting = hosts.size();
  std::vector<std::unique_ptr<net::Resolution>> lookups;
  for (size_t i = 0; i < hosts.size(); ++i) {
    lookups.push_back(std::make_unique<net::Resolution>(loop, hosts[i], 0, [&, i](net::Resolved resolved) {
      results[i] = std::move(resolved);
      if (--waiting == 0) loop.stop();
    }));
  }
  loop.after(timeout_s, [&] { loop.stop(); });
  loop.run();
  return results;
}

// Why a name doesn't lead to an address that other nodes can reach; empty: it does.
std::string fault_of(const std::optional<net::Resolved>& resolved, double timeout_s) {
  if (!resolved) return fmt::format("did not resolve within {}", short_duration(timeout_s));
  if (!resolved->error.empty()) return fmt::format("does not resolve ({})", resolved->error);
  const bool loopback = std::all_of(resolved->addresses.begin(), resolved->addresses.end(),
                                    [](const net::Address& address) { return address.is_loopback(); });
  return loopback
             ? fmt::format("is {} here, which other nodes can't reach", resolved->addresses.front().host())
             : "";
}

// A literal loopback address says that all "nodes" are this host.
bool is_loopback_endpoint(const std::string& host) {
  return host == "localhost" ||
         (net::is_numeric_address(host) && net::resolve(host, 0).addresses.front().is_loopback());
}

Check check_endpoint(const std::string& host, const std::string& fault) {
  if (fault.empty()) return {"endpoint", Status::kOk, host + " resolves", ""};
  return {"endpoint", Status::kError, fmt::format("{}: {}", host, fault),
          "give the address itself, or enter the name in DNS or in every node's /etc/hosts"};
}

// PyTorch's Gloo advertises the interface that is named to it, else what the host's name stands for.
Check check_gloo(const PreflightInput& input, const std::string& own_name, const std::string& fault) {
  for (const std::string& name : split(value_of(input, "GLOO_SOCKET_IFNAME"))) {
    const net::Interface* interface = find_interface(input, name);
    if (interface == nullptr || !interface->is_loopback) continue;
    return {"Gloo", Status::kError,
            fmt::format("GLOO_SOCKET_IFNAME={} is loopback: peers of other nodes would connect to themselves",
                        name),
            "set launch.interface to the interface between the nodes"};
  }
  if (!value_of(input, "GLOO_SOCKET_IFNAME").empty() || fault.empty()) {
    return {"Gloo", Status::kOk, "advertises an address that other nodes can reach", ""};
  }
  return {"Gloo", Status::kWarning,
          fmt::format("this host's name {} {}: PyTorch's Gloo would advertise loopback", own_name, fault),
          "set launch.interface or GLOO_SOCKET_IFNAME, or mend /etc/hosts"};
}

void check_names(const PreflightInput& input, Checks& checks) {
  if (input.num_nodes == 1 || is_loopback_endpoint(input.endpoint_host)) return;
  char own_name[256] = "";
  ::gethostname(own_name, sizeof own_name - 1);
  const auto resolved = resolve_all({input.endpoint_host, own_name}, input.resolve_timeout_s);
  checks.push_back(check_endpoint(input.endpoint_host, fault_of(resolved[0], input.resolve_timeout_s)));
  checks.push_back(check_gloo(input, own_name, fault_of(resolved[1], input.resolve_timeout_s)));
}

}  // namespace

void check_network(const PreflightInput& input, Checks& checks) {
  check_interfaces(input, checks);
  check_names(input, checks);
}

}  // namespace trainer::launch
