#include "metrics/jsonl.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "core/error.h"
#include "core/file.h"
#include "temporary_directory.h"

using namespace trainer::metrics;
using Catch::Matchers::Message;
using trainer::spec::Metric;

namespace {

struct TemporaryFile {
  TemporaryDirectory dir;
  std::filesystem::path path = dir.path / "metrics.jsonl";
};

}  // namespace

TEST_CASE("a step is one object; what was not measured is null") {
  StepRecord record;
  record.step = 120;
  record.epoch = 0.5;
  record.time_s = 61.25;
  record.loss = 0.1;
  record.grad_norm = kNotMeasured;
  record.lr = 5e-5;
  record.loss_scale = 65536;
  record.rates = {38.5, 2035, 1.25e12};
  record.memory_bytes = 1 << 30;
  record.skipped_steps = 2;
  CHECK(
      to_json(record, 1.5) ==
      R"({"kind":"step","unix_s":1.5,"step":120,"epoch":0.5,"time_s":61.25,"loss":0.1,"grad_norm":null,"lr":5e-05,)"
      R"("loss_scale":65536.0,"samples_per_s":38.5,"tokens_per_s":2035.0,"flops":1250000000000.0,"mfu":null,)"
      R"("memory_bytes":1073741824,"skipped_steps":2})");
}

TEST_CASE("evaluations and the summary are objects too") {
  EvaluationRecord evaluation;
  evaluation.step = 230;
  evaluation.epoch = 1;
  evaluation.time_s = 90;
  evaluation.seconds = 4;
  evaluation.samples = 408;
  evaluation.found.values = {{Metric::kF1, 0.875}, {Metric::kLoss, 0.5}};
  evaluation.best = true;
  CHECK(
      to_json(evaluation, 2.5) ==
      R"({"kind":"evaluation","unix_s":2.5,"step":230,"epoch":1.0,"time_s":90.0,"seconds":4.0,"samples":408,)"
      R"("metrics":{"loss":0.5,"f1":0.875},"best":true})");
  SummaryRecord summary;
  summary.steps = 230;
  summary.epochs = 1;
  summary.time_s = 94;
  summary.phases.set(Phase::kBackward, 40);
  summary.last = evaluation;
  CHECK(
      to_json(summary, 3.5) ==
      R"({"kind":"summary","unix_s":3.5,"steps":230,"epochs":1.0,"time_s":94.0,"samples_per_s":null,)"
      R"("tokens_per_s":null,"flops":null,"mfu":null,"memory_bytes":0,"skipped_steps":0,)"
      R"("phases_s":{"data_wait":0.0,"forward":0.0,"backward":40.0,"sync":0.0,"optimizer":0.0,"log":0.0,)"
      R"("evaluation":0.0,"checkpoint":0.0},"last":{"step":230,"epoch":1.0,"metrics":{"loss":0.5,"f1":0.875}},)"
      R"("best":null})");
}

TEST_CASE("an evaluation's details and warnings stand in its line where it has any") {
  EvaluationRecord evaluation;
  evaluation.samples = 4;
  evaluation.found = {{{Metric::kAuc, trainer::metrics::kNotMeasured}}, {{"auc_error", 0.25}}, {"1 is NaN"}};
  CHECK(to_json(evaluation, 2.5) ==
        R"({"kind":"evaluation","unix_s":2.5,"step":0,"epoch":0.0,"time_s":0.0,"seconds":0.0,"samples":4,)"
        R"("metrics":{"auc":null},"best":false,"details":{"auc_error":0.25},"warnings":["1 is NaN"]})");
}

TEST_CASE("a saved model's evaluation names the model and its data") {
  trainer::metrics::SavedModelRecord record;
  record.model = "best";
  record.data = "dev.csv";
  record.samples = 3;
  record.seconds = 0.5;
  record.found.values = {{Metric::kLoss, 0.25}};
  CHECK(to_json(record, 2.5) ==
        R"({"kind":"evaluation","unix_s":2.5,"model":"best","data":"dev.csv","seconds":0.5,"samples":3,)"
        R"("metrics":{"loss":0.25}})");
}

TEST_CASE("a new run begins an empty file, a resumed one goes on after the last whole line") {
  const TemporaryFile file;
  trainer::write_file_atomic(file.path, "{\"step\":1}\n{\"step\":2}\n{\"st");
  {
    JsonlFile lines(file.path, 1000);
    lines.write_line(R"({"step":3})");
    CHECK(trainer::read_file(file.path) ==
          "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");  // at once, unbuffered
  }
  JsonlFile(file.path, 0).write_line("{}");
  CHECK(trainer::read_file(file.path) == "{}\n");
  trainer::write_file_atomic(file.path, "torn");
  JsonlFile(file.path, 1000).write_line("{}");
  CHECK(trainer::read_file(file.path) == "{}\n");
}

TEST_CASE("a file that can't be opened is an error, a full disk is not") {
  CHECK_THROWS_MATCHES(JsonlFile("/nowhere/metrics.jsonl", 0), trainer::CheckpointError,
                       Message("/nowhere/metrics.jsonl: cannot open for writing: No such file or directory"));
  JsonlFile full("/dev/full", 0);
  full.write_line("{}");
  full.write(StepRecord());
}
