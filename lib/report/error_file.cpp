#include "report/error_file.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/demangle.h"
#include "core/error.h"
#include "core/file.h"

namespace trainer::report {
namespace {

using nlohmann::json;

constexpr uintmax_t kMostBytes = 16 << 20;  // it is written by any program

double to_seconds(const json& value) {
  if (value.is_number()) return value.get<double>();
  return value.is_string() ? std::strtod(value.get<std::string>().c_str(), nullptr) : 0;
}

ErrorReport parse(const json& file) {
  ErrorReport report;
  const json& message = file.at("message");
  if (message.is_string()) {
    report.message = message.get<std::string>();
    if (file.contains("timestamp")) report.timestamp_s = to_seconds(file["timestamp"]);
    return report;
  }
  report.message = message.at("message").get<std::string>();
  const json extra = message.value("extraInfo", json::object());
  if (extra.contains("timestamp")) report.timestamp_s = to_seconds(extra["timestamp"]);
  if (extra.contains("step") && extra["step"].is_number_integer()) report.step = extra["step"].get<int64_t>();
  return report;
}

}  // namespace

void write_error_file(const std::filesystem::path& path, const ErrorReport& report) noexcept {
  try {
    json extra = {{"py_callstack", ""},
                  {"timestamp", std::to_string(static_cast<int64_t>(report.timestamp_s))}};
    if (report.step) extra["step"] = *report.step;
    const json file = {{"message", {{"message", report.message}, {"extraInfo", extra}}}};
    // A message may quote a bad row of the user's file: any bytes.
    write_file_atomic(path, file.dump(-1, ' ', false, json::error_handler_t::replace));
  } catch (...) {  // the message is on standard error too
  }
}

std::optional<ErrorReport> read_error_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) ||
      std::filesystem::file_size(path, error) > kMostBytes) {
    return std::nullopt;
  }
  try {
    ErrorReport report = parse(json::parse(read_file(path)));
    report.message = demangle_words(report.message);  // a crash report's: its writer could not
    return report;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace trainer::report
