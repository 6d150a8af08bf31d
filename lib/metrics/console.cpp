#include "metrics/console.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/clock.h"
#include "core/format.h"
#include "core/log.h"
#include "spec/enums.h"

namespace trainer::metrics {
namespace {

using Fields = std::vector<std::string>;

// Constant in width over a run, so that a live line doesn't jump.
std::string loss_text(double loss) {
  const double size = std::abs(loss);
  return size == 0 || (size >= 1e-3 && size < 1e4) ? fmt::format("{:.4f}", loss)
                                                   : fmt::format("{:.3e}", loss);
}

Fields progress_fields(const StepRecord& record, const Plan& plan) {
  Fields fields = {fmt::format("step {}/{}", record.step, plan.total_steps),
                   fmt::format("epoch {:.2f}/{:.3g}", record.epoch, plan.total_epochs),
                   "loss " + loss_text(record.loss), fmt::format("lr {:.2e}", record.lr)};
  const auto add_rate = [&](double value, int digits, const char* unit) {
    if (std::isfinite(value)) fields.push_back(fmt::format("{:.{}f} {}", value, digits, unit));
  };
  add_rate(record.rates.samples_per_s, 1, "samples/s");
  add_rate(record.rates.tokens_per_s, 0, "tokens/s");
  add_rate(record.mfu * 100, 1, "% MFU");
  if (record.skipped_steps > 0) fields.push_back(fmt::format("{} skipped", record.skipped_steps));
  return fields;
}

std::string metric_values(const EvaluationRecord& record) {
  std::string text;
  for (const auto& [metric, value] : record.found.values) {
    text += fmt::format("{}{} {:.4f}", text.empty() ? "" : "  ", spec::to_string(metric), value);
  }
  for (const auto& [name, value] : record.found.details) text += fmt::format("  {} {:.4g}", name, value);
  return text;
}

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string table(std::string_view title, const std::vector<std::pair<std::string, std::string>>& rows) {
  size_t width = 0;
  for (const auto& [label, value] : rows) width = std::max(width, label.size());
  std::string text(title);
  for (const auto& [label, value] : rows) text += fmt::format("\n  {:{}}  {}", label, width, value);
  return text;
}

std::string progress_line(const StepRecord& record, const Plan& plan, double seconds_left) {
  Fields fields = progress_fields(record, plan);
  if (std::isfinite(seconds_left)) fields.push_back(duration(seconds_left) + " left");
  return fmt::to_string(fmt::join(fields, "  "));
}

std::string progress_bar(const StepRecord& record, const Plan& plan, double seconds_left, int64_t columns) {
  constexpr int64_t kWidth = 24;
  const double part =
      plan.total_steps > 0
          ? std::clamp(static_cast<double>(record.step) / static_cast<double>(plan.total_steps), 0., 1.)
          : 0;
  const auto full = static_cast<size_t>(std::floor(part * kWidth));
  std::string line = fmt::format("[{}{}] {:3.0f} %", std::string(full, '#'), std::string(kWidth - full, '.'),
                                 std::floor(part * 100));
  Fields fields = progress_fields(record, plan);
  fields.insert(fields.begin(), duration(seconds_left) + " left");
  for (const std::string& field : fields) {
    if (static_cast<int64_t>(line.size() + 2 + field.size()) >= columns)
      break;  // a full last column would wrap
    line += "  " + field;
  }
  return line;
}

std::string evaluation_line(const EvaluationRecord& record) {
  return fmt::format("evaluation at step {}, epoch {:.4g}: {}  ({} samples in {:.1f} s){}", record.step,
                     record.epoch, metric_values(record), record.samples, record.seconds,
                     record.best ? "  best so far" : "");
}

std::string evaluation_table(const SavedModelRecord& record) {
  std::vector<std::pair<std::string, std::string>> rows = {
      {"model", record.model},
      {"data", record.data},
      {"samples", fmt::format("{} in {:.1f} s, {:.0f} samples/s", record.samples, record.seconds,
                              static_cast<double>(record.samples) / record.seconds)}};
  const auto add = [&](std::string_view name, double value) {
    rows.emplace_back(name, fmt::format("{:.6g}", value));
  };
  for (const auto& [metric, value] : record.found.values) add(spec::to_string(metric), value);
  for (const auto& [name, value] : record.found.details) add(name, value);
  return table("evaluation", rows);
}

std::string summary(const SummaryRecord& record) {
  std::vector<std::pair<std::string, std::string>> rows;
  if (record.last.samples > 0) rows.emplace_back("evaluation", metric_values(record.last));
  if (record.best.samples > 0 && record.best.step != record.last.step) {
    rows.emplace_back("best", fmt::format("{}  at step {}", metric_values(record.best), record.best.step));
  }
  std::string throughput = fmt::format("{:.1f} samples/s  {:.0f} tokens/s  {}", record.rates.samples_per_s,
                                       record.rates.tokens_per_s, si(record.rates.flops, "FLOP/s"));
  if (std::isfinite(record.mfu)) throughput += fmt::format("  {:.1f} % MFU", record.mfu * 100);
  rows.emplace_back("throughput", throughput);
  rows.emplace_back("memory", "peak " + binary_bytes(record.memory_bytes));
  if (record.skipped_steps > 0) {
    rows.emplace_back("skipped", fmt::format("{} steps with inf or NaN gradients", record.skipped_steps));
  }
  double known = 0;
  const auto add_time = [&](std::string label, double seconds) {
    std::replace(label.begin(), label.end(), '_', ' ');
    rows.emplace_back(label, fmt::format("{:8.2f} s  {:5.1f} %", seconds, 100 * seconds / record.time_s));
    known += seconds;
  };
  for (int i = 0; i < kNumPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    if (record.phases.seconds(phase) > 0) add_time(name(phase), record.phases.seconds(phase));
  }
  if (record.time_s > known) add_time("other", record.time_s - known);
  return table(fmt::format("finished {} steps, {:.4g} epochs in {}", record.steps, record.epochs,
                           duration(record.time_s)),
               rows);
}

Console::Console(spec::Progress progress, Plan plan, bool is_main)
    : plan_(plan),
      is_main_(is_main),
      bar_(is_main && (progress == spec::Progress::kAuto || progress == spec::Progress::kBar) &&
           environment("TRAINER_CONSOLE") == "terminal"),
      lines_(is_main && !bar_ && progress != spec::Progress::kNone),
      columns_(std::atoll(environment("COLUMNS").c_str())),
      seconds_a_step_(kNotMeasured) {
  if (columns_ <= 0) columns_ = 80;
}

void Console::step(const StepRecord& record) {
  shown_ = record;
  if (first_step_ == 0) {
    first_step_ = record.step;
    first_time_s_ = record.time_s;
  } else if (record.step > first_step_) {
    seconds_a_step_ = (record.time_s - first_time_s_) / static_cast<double>(record.step - first_step_);
  }
  if (lines_) {
    const double left = seconds_a_step_ * static_cast<double>(plan_.total_steps - record.step);
    write_line(1, progress_line(record, plan_, left));
  }
  if (bar_) draw();
}

void Console::tick(int64_t step) {
  const double now_s = monotonic_s();
  if (!bar_ || now_s - drawn_s_ < 0.1) return;
  if (first_tick_ == 0) {
    first_tick_ = step;
    first_tick_s_ = now_s;
  } else if (std::isnan(seconds_a_step_)) {  // no two records yet
    tick_seconds_a_step_ = (now_s - first_tick_s_) / static_cast<double>(step - first_tick_);
  }
  shown_.step = step;
  shown_.epoch = plan_.total_epochs * static_cast<double>(step) / static_cast<double>(plan_.total_steps);
  draw();
}

void Console::draw() {
  drawn_s_ = monotonic_s();
  const double a_step_s = std::isnan(seconds_a_step_) ? tick_seconds_a_step_ : seconds_a_step_;
  const double left = a_step_s * static_cast<double>(plan_.total_steps - shown_.step);
  write_line(1, kStatusMark + progress_bar(shown_, plan_, left, columns_));
}

void Console::evaluation(const EvaluationRecord& record) {
  if (!is_main_) return;
  write_line(1, evaluation_line(record));
  for (const std::string& warning : record.found.warnings) {
    log_warning("evaluation at step {}: {}", record.step, warning);
  }
}

void Console::finish(const SummaryRecord& record) {
  if (!is_main_) return;
  if (bar_) write_line(1, std::string(1, kStatusMark));  // an empty status: the bar goes
  write_line(1, summary(record));
}

}  // namespace trainer::metrics
