#include "metrics/jsonl.h"

#include <fcntl.h>
#include <sys/stat.h>
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

Json values(const EvaluationRecord& record) {
  Json json = Json::object();
  for (const auto& [metric, value] : record.values) json[spec::to_string(metric)] = value;
  return json;
}

Json of(const EvaluationRecord& record) {
  if (record.samples == 0) return nullptr;
  return {{"step", record.step}, {"epoch", record.epoch}, {"metrics", values(record)}};
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
  return Json({{"kind", "evaluation"},
               {"unix_s", unix_s},
               {"step", record.step},
               {"epoch", record.epoch},
               {"time_s", record.time_s},
               {"seconds", record.seconds},
               {"samples", record.samples},
               {"metrics", values(record)},
               {"best", record.best}})
      .dump();
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

JsonlFile::JsonlFile(const std::filesystem::path& path, bool resume)
    : path_(path),
      fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (resume ? 0 : O_TRUNC), 0644)) {
  if (fd_ < 0) fail<CheckpointError>("{}: cannot open for writing: {}", path.string(), std::strerror(errno));
  if (!resume) return;
  const std::string lines = read_file(path);
  const auto whole = static_cast<off_t>(lines.rfind('\n') + 1);  // npos + 1 is 0
  if (whole != static_cast<off_t>(lines.size()) && ::ftruncate(fd_, whole) != 0) {
    fail<CheckpointError>("{}: cannot cut off a torn last line: {}", path.string(), std::strerror(errno));
  }
}

JsonlFile::~JsonlFile() {
  ::close(fd_);
}

void JsonlFile::write_line(std::string_view text) {
  std::string line(text);
  line += '\n';
  ssize_t n;
  do {
    n = ::write(fd_, line.data(), line.size());
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(line.size())) return;
  const std::string reason = n < 0 ? std::strerror(errno) : "disk full";
  struct stat info {};
  const bool cut = n <= 0 || (::fstat(fd_, &info) == 0 && ::ftruncate(fd_, info.st_size - n) == 0);
  if (!std::exchange(warned_, true)) {
    log_warning("{}: cannot append: {}; records of this run are lost{}", path_.string(), reason,
                cut ? "" : ", and the last line is torn");
  }
}

}  // namespace trainer::metrics
