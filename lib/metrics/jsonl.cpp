#include "metrics/jsonl.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "spec/enums.h"

namespace trainer::metrics {
namespace {

using Json = nlohmann::ordered_json;  // writes NaN and infinity as null

void add(Json& json, const Rates& rates, double mfu) {
  json["samples_per_s"] = rates.samples_per_s;
  json["tokens_per_s"] = rates.tokens_per_s;
  json["flops"] = rates.flops;
  json["mfu"] = mfu;
}

Json values(const Evaluation& found) {
  Json json = Json::object();
  for (const auto& [metric, value] : found.values) json[spec::to_string(metric)] = value;
  return json;
}

// Only where there are any.
void add_details(Json& json, const Evaluation& found) {
  if (!found.details.empty()) json["details"] = found.details;
  if (!found.warnings.empty()) json["warnings"] = found.warnings;
}

Json of(const EvaluationRecord& record) {
  if (record.samples == 0) return nullptr;
  return {{"step", record.step}, {"epoch", record.epoch}, {"metrics", values(record.found)}};
}

}  // namespace

std::string to_json(const StepRecord& record, double unix_s) {
  Json json = {{"kind", "step"},
               {"unix_s", unix_s},
               {"step", record.step},
               {"epoch", record.epoch},
               {"time_s", record.time_s},
               {"loss", record.loss},
               {"grad_norm", record.grad_norm},
               {"lr", record.lr},
               {"loss_scale", record.loss_scale}};
  add(json, record.rates, record.mfu);
  json["memory_bytes"] = record.memory_bytes;
  json["skipped_steps"] = record.skipped_steps;
  return json.dump();
}

std::string to_json(const EvaluationRecord& record, double unix_s) {
  Json json = {{"kind", "evaluation"},      {"unix_s", unix_s},
               {"step", record.step},       {"epoch", record.epoch},
               {"time_s", record.time_s},   {"seconds", record.seconds},
               {"samples", record.samples}, {"metrics", values(record.found)},
               {"best", record.best}};
  add_details(json, record.found);
  return json.dump();
}

std::string to_json(const SummaryRecord& record, double unix_s) {
  Json json = {{"kind", "summary"},
               {"unix_s", unix_s},
               {"steps", record.steps},
               {"epochs", record.epochs},
               {"time_s", record.time_s}};
  add(json, record.rates, record.mfu);
  json["memory_bytes"] = record.memory_bytes;
  json["skipped_steps"] = record.skipped_steps;
  for (int i = 0; i < kNumPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    json["phases_s"][name(phase)] = record.phases.seconds(phase);
  }
  json["last"] = of(record.last);
  json["best"] = of(record.best);
  return json.dump();
}

std::string to_json(const SavedModelRecord& record, double unix_s) {
  Json json = {{"kind", "evaluation"},           {"unix_s", unix_s},
               {"model", record.model},          {"data", record.data},
               {"seconds", record.seconds},      {"samples", record.samples},
               {"metrics", values(record.found)}};
  add_details(json, record.found);
  return json.dump();
}

JsonlFile::JsonlFile(const std::filesystem::path& path, int64_t keep_bytes)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
  if (!file_.is_open()) {
    fail<CheckpointError>("{}: cannot open for writing: {}", path.string(), std::strerror(errno));
  }
  off_t whole = 0;
  if (keep_bytes > 0) {
    const std::string lines = read_file(path).substr(0, static_cast<size_t>(keep_bytes));
    whole = static_cast<off_t>(lines.rfind('\n') + 1);  // npos + 1 is 0
  }
  const bool is_regular = std::filesystem::is_regular_file(path);
  if (is_regular && ::ftruncate(file_.get(), whole) != 0) {
    fail<CheckpointError>("{}: cannot cut off what is not to be kept: {}", path.string(),
                          std::strerror(errno));
  }
}

int64_t JsonlFile::size_bytes() const {
  return ::lseek(file_.get(), 0, SEEK_END);
}

void JsonlFile::write_line(std::string_view text) {
  std::string line(text);
  line += '\n';
  const off_t begin = ::lseek(file_.get(), 0, SEEK_END);
  if (write_all(file_.get(), line)) return;
  const char* reason = std::strerror(errno);
  const bool torn = ::lseek(file_.get(), 0, SEEK_END) > begin && ::ftruncate(file_.get(), begin) != 0;
  if (!std::exchange(warned_, true)) {
    log_warning("{}: cannot append: {}; records of this run are lost{}", path_.string(), reason,
                torn ? ", and the last line is torn" : "");
  }
}

}  // namespace trainer::metrics
