#include "metrics/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "core/file.h"
#include "temporary_directory.h"

using namespace trainer::metrics;
using trainer::spec::Metric;
using trainer::spec::Progress;

namespace {

StepRecord a_record() {
  StepRecord record;
  record.step = 120;
  record.epoch = 0.5217;
  record.time_s = 61.25;
  record.loss = 0.53125;
  record.grad_norm = 2.5;
  record.lr = 4.6e-5;
  record.rates = {38.44, 2035.2, 1.25e12};
  return record;
}

EvaluationRecord an_evaluation() {
  EvaluationRecord record;
  record.step = 230;
  record.epoch = 1;
  record.seconds = 4.125;
  record.samples = 408;
  record.found.values = {{Metric::kLoss, 0.45213}, {Metric::kAccuracy, 0.8431}, {Metric::kF1, 0.88764}};
  record.best = true;
  return record;
}

// What `action` writes to standard output, or to another descriptor.
std::string output_of(const std::function<void()>& action, int fd = 1) {
  const TemporaryDirectory dir;
  const auto path = dir.path / "out";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600), saved = ::dup(fd);
  ::dup2(file, fd);
  action();
  ::dup2(saved, fd);
  ::close(saved);
  ::close(file);
  return trainer::read_file(path);
}

}  // namespace

TEST_CASE("a progress line has step, epoch, loss, rate, throughput and time left") {
  CHECK(progress_line(a_record(), {690, 3}, 252.4) ==
        "step 120/690  epoch 0.52/3  loss 0.5312  lr 4.60e-05  38.4 samples/s  2035 tokens/s  4:12 left");
  StepRecord record = a_record();
  record.loss = 5e-5;
  record.rates = {};
  record.mfu = 0.4123;
  record.skipped_steps = 2;
  CHECK(progress_line(record, {690, 3}, kNotMeasured) ==
        "step 120/690  epoch 0.52/3  loss 5.000e-05  lr 4.60e-05  41.2 % MFU  2 skipped");
}

TEST_CASE("a progress bar leaves out the fields that the terminal has no room for") {
  CHECK(progress_bar(a_record(), {690, 3}, 252.4, 200) ==
        "[####....................]  17 %  4:12 left  step 120/690  epoch 0.52/3  loss 0.5312  lr 4.60e-05  "
        "38.4 samples/s  2035 tokens/s");
  CHECK(progress_bar(a_record(), {690, 3}, 252.4, 80) ==
        "[####....................]  17 %  4:12 left  step 120/690  epoch 0.52/3");
  for (int64_t columns = 40; columns < 130; ++columns) {
    CHECK(static_cast<int64_t>(progress_bar(a_record(), {690, 3}, 252.4, columns).size()) < columns);
  }
  CHECK(progress_bar(a_record(), {120, 3}, 0, 47) == "[########################] 100 %  0:00 left");
}

TEST_CASE("an evaluation line names every metric and says whether it is the best") {
  EvaluationRecord record = an_evaluation();
  CHECK(evaluation_line(record) ==
        "evaluation at step 230, epoch 1: loss 0.4521  accuracy 0.8431  f1 0.8876  (408 samples in 4.1 s)  "
        "best so "
        "far");
  record.best = false;
  record.found.values = {{Metric::kSpearman, kNotMeasured}};
  CHECK(evaluation_line(record) == "evaluation at step 230, epoch 1: spearman nan  (408 samples in 4.1 s)");
}

TEST_CASE("an evaluation's details follow its metrics, its warnings are the main rank's") {
  EvaluationRecord record = an_evaluation();
  record.found = {{{Metric::kAuc, 0.5}}, {{"auc_error", 2.5e-6}}, {"predictions are constant"}};
  record.best = false;
  CHECK(evaluation_line(record) ==
        "evaluation at step 230, epoch 1: auc 0.5000  auc_error 2.5e-06  (408 samples in 4.1 s)");
  const auto warnings = [&](bool is_main) {
    return output_of([&] { Console(Progress::kNone, {690, 3}, is_main).evaluation(record); }, 2);
  };
  CHECK(warnings(true) == "warning: evaluation at step 230: predictions are constant\n");
  CHECK(warnings(false).empty());
}

TEST_CASE("the summary has evaluation, throughput, memory and the time by phase") {
  SummaryRecord record;
  record.steps = 690;
  record.epochs = 3;
  record.time_s = 100;
  record.rates = {38.44, 2035.2, 1.25e12};
  record.memory_bytes = int64_t{3} << 29;
  record.phases.set(Phase::kDataWait, 0.5);
  record.phases.set(Phase::kForward, 35);
  record.phases.set(Phase::kEvaluation, 4.5);
  record.last = an_evaluation();
  record.last.step = 690;
  record.best = an_evaluation();
  CHECK(summary(record) ==
        "finished 690 steps, 3 epochs in 1:40\n"
        "  evaluation  loss 0.4521  accuracy 0.8431  f1 0.8876\n"
        "  best        loss 0.4521  accuracy 0.8431  f1 0.8876  at step 230\n"
        "  throughput  38.4 samples/s  2035 tokens/s  1.25 TFLOP/s\n"
        "  memory      peak 1.5 GiB\n"
        "  data wait       0.50 s    0.5 %\n"
        "  forward        35.00 s   35.0 %\n"
        "  evaluation      4.50 s    4.5 %\n"
        "  other          60.00 s   60.0 %");
}

TEST_CASE("a saved model's evaluation has a line for each metric and detail") {
  SavedModelRecord record;
  record.model = "runs/a/best";
  record.data = "dev.csv";
  record.samples = 400;
  record.seconds = 4;
  record.found = {{{Metric::kLoss, 0.45213}, {Metric::kAuc, 0.75}}, {{"auc_error", 2.5e-6}}, {}};
  CHECK(evaluation_table(record) ==
        "evaluation\n"
        "  model      runs/a/best\n"
        "  data       dev.csv\n"
        "  samples    400 in 4.0 s, 100 samples/s\n"
        "  loss       0.45213\n"
        "  auc        0.75\n"
        "  auc_error  2.5e-06");
}

TEST_CASE("a table has its values in one column") {
  CHECK(table("job", {{"a", "1"}, {"model", "bert"}}) == "job\n  a      1\n  model  bert");
  CHECK(table("job", {}) == "job");
}

TEST_CASE("on a terminal there is one status that is cleared at the end, elsewhere there are lines") {
  const auto run = [](Progress progress, bool is_main = true) {
    return output_of([&] {
      Console console(progress, {690, 3}, is_main);
      console.step(a_record());
      console.tick(121);  // sooner than anybody sees
      StepRecord next = a_record();
      next.step = 130;
      next.time_s += 5;
      console.step(next);
      console.evaluation(an_evaluation());
      console.finish({});
    });
  };
  const std::string evaluation = evaluation_line(an_evaluation()) + "\n", end = summary({}) + "\n";
  StepRecord next = a_record();
  next.step = 130;
  ::setenv("COLUMNS", "60", 1);
  ::setenv("TRAINER_CONSOLE", "terminal", 1);
  const Plan plan{690, 3};
  const std::string bar =
      fmt::format("\r{}\n\r{}\n{}\r\n{}", progress_bar(a_record(), plan, kNotMeasured, 60),
                  progress_bar(next, plan, 280, 60), evaluation, end);
  const std::string lines = fmt::format("{}\n{}\n{}{}", progress_line(a_record(), plan, kNotMeasured),
                                        progress_line(next, plan, 280), evaluation, end);
  CHECK(run(Progress::kAuto) == bar);
  CHECK(run(Progress::kBar) == bar);
  CHECK(run(Progress::kLines) == lines);
  CHECK(run(Progress::kNone) == evaluation + end);
  CHECK(run(Progress::kAuto, false).empty());
  ::setenv("TRAINER_CONSOLE", "plain", 1);
  CHECK(run(Progress::kAuto, false).empty());
  CHECK(run(Progress::kAuto) == lines);
  CHECK(run(Progress::kBar) == lines);  // nobody would draw it
  ::unsetenv("TRAINER_CONSOLE");
  CHECK(run(Progress::kAuto) == lines);
}
