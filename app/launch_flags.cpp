#include "launch_flags.h"

#include <sys/random.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <map>
#include <string_view>

#include "core/error.h"
#include "core/log.h"
#include "launch/plan/plan.h"
#include "spec/load.h"
#include "spec/visit.h"

namespace trainer::app {
namespace {

using spec::Flag;
using Kind = spec::LaunchKey::Kind;

std::string replaced(std::string text, char from, char to) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

// torchrun's own names of keys, beside theirs.
std::string also_named(std::string_view key) {
  if (key == "run_id") return "rdzv_id";
  if (key == "redirects") return "r";
  if (key == "tee") return "t";
  return "";
}

// "--run-id,--run_id,--rdzv-id,--rdzv_id"
std::string option_names(const std::string& key, const std::string& other) {
  std::string names;
  for (const std::string& name : {key, other}) {
    if (name.empty()) continue;
    const std::string dashes = replaced(name, '_', '-');
    names += fmt::format("{}{}{}", names.empty() ? "" : ",", name.size() == 1 ? "-" : "--", dashes);
    if (dashes != name) names += ",--" + name;
  }
  return names;
}

std::string variable_name(std::string key) {
  for (char& c : key) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return "PET_" + key;
}

// An empty variable is not set, as templates of schedulers leave them.
const char* pet_variable(const std::string& key) {
  const char* value = std::getenv(variable_name(key).c_str());
  return value != nullptr && *value != '\0' ? value : nullptr;
}

void add_key(CLI::App& command, LaunchFlags& flags, const spec::LaunchKey& key) {
  const std::string name(key.key);
  const std::string shown = "--" + replaced(name, '_', '-');
  const std::string names = option_names(name, also_named(name));
  const auto say = [&flags, name, shown, kind = key.kind](const std::string& value) {
    flags.said.push_back({shown, name, kind, value, false});
  };
  if (key.kind == Kind::kSwitch) {
    command
        .add_flag_callback(
            names, [say] { say("true"); }, key.doc)
        ->group("Launch");
    command
        .add_flag_callback(
            option_names("no_" + name, ""), [say] { say("false"); }, "")
        ->group("");
  } else if (key.kind == Kind::kMap) {
    command
        .add_option_function<std::vector<std::string>>(
            names,
            [&flags, name, shown](const std::vector<std::string>& pairs) {
              for (const std::string& pair : pairs) {
                const size_t equals = pair.find('=');
                if (equals == std::string::npos || equals == 0)
                  throw CLI::ValidationError(shown, fmt::format("got \"{}\"; expected NAME=VALUE", pair));
                flags.said.push_back({shown, name + "." + pair.substr(0, equals), Kind::kText,
                                      pair.substr(equals + 1), false});
              }
            },
            key.doc)
        ->allow_extra_args(false)
        ->type_name("NAME=VALUE")
        ->group("Launch");
  } else {
    command.add_option_function<std::string>(names, say, key.doc)
        ->type_name(key.kind == Kind::kList ? "A,B,..." : "VALUE")
        ->take_last()
        ->group("Launch");
  }
}

std::vector<Flag> variables() {
  std::vector<Flag> flags;
  for (const spec::LaunchKey& key : spec::launch_keys()) {
    if (key.kind == Kind::kMap) continue;
    for (const std::string& name : {std::string(key.key), also_named(key.key)}) {
      if (name.size() < 2) continue;
      if (const char* value = pet_variable(name))
        flags.push_back({variable_name(name), std::string(key.key), key.kind, value, true});
    }
  }
  return flags;
}

double conf_number(const std::string& key, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0) || value > 1e6)
    fail<SpecError>("--rdzv-conf: {}: got \"{}\"; expected a number from 0 to 1000000", key, text);
  return value;
}

// torchrun's key=value list as the flags that mean the same.
std::vector<Flag> rdzv_conf(const std::string& text) {
  static const std::map<std::string_view, std::string_view> kKeys = {
      {"timeout", "join_timeout_s"},
      {"join_timeout", "join_timeout_s"},
      {"last_call_timeout", "last_call_s"},
      {"keep_alive_interval", ""},
      {"keep_alive_max_attempt", ""},
      {"rank", "node_rank"},
      // Of torch's stores; there is nothing of that kind here.
      {"close_timeout", "none"},
      {"heartbeat_timeout", "none"},
      {"read_timeout", "none"},
      {"is_host", "none"},
      {"store_type", "none"}};
  std::vector<Flag> flags;
  std::map<std::string, std::string> pairs;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    const size_t equals = item.find('=');
    const std::string key(CLI::detail::trim_copy(std::string(item.substr(0, equals))));
    if (equals == std::string_view::npos || key.empty() || equals + 1 == item.size())
      fail<SpecError>("--rdzv-conf: got \"{}\"; expected key=value, several with commas between", item);
    const std::string value = CLI::detail::trim_copy(std::string(item.substr(equals + 1)));
    const auto known = kKeys.find(key);
    if (known == kKeys.end()) {
      std::vector<std::string_view> words;
      for (const auto& entry : kKeys) words.push_back(entry.first);
      const std::string meant = spec::did_you_mean(key, words);
      fail<SpecError>("--rdzv-conf: {}: no such key{}", key,
                      meant.empty() ? "; expected " + spec::either(words) : meant);
    }
    pairs[key] = value;
    if (known->second == "none") {
      log_warning("--rdzv-conf: {} has no effect", key);
    } else if (!known->second.empty()) {
      flags.push_back({"--rdzv-conf: " + key, std::string(known->second), Kind::kText, value, false});
    }
  }
  if (pairs.contains("keep_alive_interval") || pairs.contains("keep_alive_max_attempt")) {
    const auto or_default = [&](const char* key, double value) {
      return pairs.contains(key) ? conf_number(key, pairs.at(key)) : value;
    };
    const double interval = or_default("keep_alive_interval", 5);
    const double attempts = std::max(2.0, or_default("keep_alive_max_attempt", 3));
    flags.push_back(
        {"--rdzv-conf: keep_alive_interval", "heartbeat_s", Kind::kText, fmt::format("{}", interval), false});
    flags.push_back({"--rdzv-conf: keep_alive_max_attempt", "heartbeat_timeout_s", Kind::kText,
                     fmt::format("{}", interval * attempts), false});
  }
  return flags;
}

// torchrun's flags that are not keys of the launch section, as given or by their variables.
LaunchFlags with_variables(LaunchFlags flags) {
  const auto fill = [](std::string& value, const char* name) {
    const char* variable = pet_variable(name);
    if (value.empty() && variable != nullptr) value = variable;
  };
  fill(flags.rdzv_backend, "rdzv_backend");
  fill(flags.rdzv_conf, "rdzv_conf");
  fill(flags.start_method, "start_method");
  fill(flags.event_log_handler, "event_log_handler");
  if (!flags.standalone) flags.standalone = is_switched_on("standalone");
  return flags;
}

// Those without a meaning here are accepted in the values that ask for nothing.
void check_torchrun_flags(const LaunchFlags& flags) {
  const std::string& backend = flags.rdzv_backend;
  if (!backend.empty() && backend != "static" && backend != "c10d") {
    fail<SpecError>(
        "--rdzv-backend: got \"{}\"; expected static or c10d: nodes meet at an agent of the job, no {} "
        "server is needed or used",
        backend, backend);
  }
  const std::string& method = flags.start_method;
  if (!method.empty() && method != "spawn" && method != "fork" && method != "forkserver")
    fail<SpecError>("--start-method: got \"{}\"; expected spawn, fork or forkserver", method);
  if (!flags.event_log_handler.empty() && flags.event_log_handler != "null") {
    fail<SpecError>(
        "--event-log-handler: got \"{}\"; expected null: handlers are Python code of torchrun's process",
        flags.event_log_handler);
  }
  if (!flags.logs_specs.empty() && flags.logs_specs != "default") {
    fail<SpecError>(
        "--logs-specs: got \"{}\"; expected default: others are Python code of torchrun's process",
        flags.logs_specs);
  }
}

// Flags under those that were said by name.
std::vector<Flag> all_flags(const LaunchFlags& flags) {
  std::vector<Flag> all = flags.defaults;
  for (Flag& flag : variables()) all.push_back(std::move(flag));
  for (Flag& flag : rdzv_conf(flags.rdzv_conf)) all.push_back(std::move(flag));
  all.insert(all.end(), flags.said.begin(), flags.said.end());
  return all;
}

void finish(const LaunchFlags& flags, spec::Launch& launch) {
  if (flags.standalone) {
    uint64_t random = 0;  // not std::random_device, which needs glibc 2.36
    static_cast<void>(::getrandom(&random, sizeof random, 0));
    launch.nnodes = "1";
    launch.rdzv_endpoint.clear();
    launch.run_id = fmt::format("{:016x}", random);
  } else if (flags.rdzv_backend == "static" && !launch.rdzv_endpoint.empty()) {
    const net::Endpoint endpoint = net::parse_endpoints(launch.rdzv_endpoint, "--rdzv-endpoint").front();
    launch.master_addr = endpoint.host;
    launch.master_port = endpoint.port;
    launch.rdzv_endpoint.clear();
  }
  launch::ask_scheduler(launch);
}

}  // namespace

bool is_switched_on(const std::string& name) {
  const char* value = pet_variable(name);
  if (value == nullptr || std::string_view(value) == "0") return false;
  if (std::string_view(value) != "1")
    fail<SpecError>("{}: got \"{}\"; expected 0 or 1", variable_name(name), value);
  return true;
}

void add_launch_flags(CLI::App& command, LaunchFlags& flags) {
  for (const spec::LaunchKey& key : spec::launch_keys()) add_key(command, flags, key);
  const auto add = [&](const char* name, auto& value, const char* doc) {
    return command.add_option(option_names(name, ""), value, doc)->take_last()->group("Launch");
  };
  add("rdzv_backend", flags.rdzv_backend,
      "static: rdzv-endpoint is node 0's address, and nodes are told their node-rank; c10d: nodes are "
      "numbered as "
      "they come (the default)");
  add("rdzv_conf", flags.rdzv_conf,
      "torchrun's key=value list: join_timeout, last_call_timeout, keep_alive_interval, "
      "keep_alive_max_attempt, "
      "timeout, rank");
  command
      .add_flag("--standalone", flags.standalone, "One node, whatever else is said of nodes; a new run-id")
      ->group("Launch");
  add("monitor_interval", flags.monitor_interval, "Accepted for torchrun's sake: workers are not polled");
  add("start_method", flags.start_method,
      "Accepted for torchrun's sake: workers are programs, always spawned");
  add("event_log_handler", flags.event_log_handler, "Accepted for torchrun's sake: null");
  add("logs_specs", flags.logs_specs, "Accepted for torchrun's sake: default");
}

void add_job_flags(CLI::App& command, JobFlags& flags) {
  command.add_option("job", flags.job_path, "Job spec (YAML)")->required();
  command.add_option("--set", flags.overrides, "Override a key of the job: key.path=value")
      ->allow_extra_args(false);
  add_launch_flags(command, flags.launch);
}

spec::JobSpec load_spec(const JobFlags& job_flags) {
  const LaunchFlags flags = with_variables(job_flags.launch);
  check_torchrun_flags(flags);
  spec::JobSpec spec = spec::load(job_flags.job_path, job_flags.overrides, all_flags(flags));
  finish(flags, spec.launch);
  return spec;
}

spec::Launch load_launch(const LaunchFlags& given) {
  const LaunchFlags flags = with_variables(given);
  check_torchrun_flags(flags);
  spec::Launch launch = spec::parse_launch(all_flags(flags));
  finish(flags, launch);
  return launch;
}

}  // namespace trainer::app
