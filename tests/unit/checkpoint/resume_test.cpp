#include "checkpoint/resume.h"

#include <ATen/ATen.h>

#include <fmt/ranges.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "checkpoint/changes.h"
#include "checkpoint/manifest.h"
#include "core/file.h"
#include "fixture.h"

namespace trainer::test {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::Message;
using Catch::Matchers::StartsWith;

// A run with checkpoints of steps 10 and 20.
struct Run {
  TemporaryDirectory dir;
  fs::path checkpoints = dir.path / "checkpoints";
  std::unique_ptr<dist::Communicator> one = dist::make_single_process();
  Run() {
    Training training(0, 1);
    for (const int64_t step : {10, 20}) {
      training.advance(step, 0);
      save(training, checkpoints, *one);
    }
  }
  std::string find(const std::string& resume, bool restarted = false,
                   const std::string& fingerprint = "f00d") {
    const auto found = checkpoint::find(
        job_in(dir.path, resume), restarted, [&] { return fingerprint; }, *one);
    return found ? found->filename().string() : "none";
  }
  void damage(const fs::path& file, std::streamoff at) const {
    std::fstream stream(checkpoints / file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at);
    const auto byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(at);
    stream.put(byte);
  }
};

}  // namespace

TEST_CASE("a new run begins at the first step unless it is told to resume, a restarted one goes on") {
  Run run;
  CHECK(run.find("restarts") == "none");
  CHECK(run.find("restarts", true) == "step_20");
  CHECK(run.find("auto") == "step_20");
  CHECK(run.find("never", true) == "none");
  CHECK(run.find((run.checkpoints / "step_10").string()) == "step_10");
  CHECK(run.find((run.checkpoints / "step_10").string(), true) == "step_20");  // where it had come to
  CHECK(run.find(run.checkpoints.string()) == "step_20");
  CHECK(run.find(run.dir.path.string()) == "step_20");
  fs::remove_all(run.checkpoints);
  CHECK(run.find("auto") == "none");
  CHECK_THROWS_MATCHES(
      run.find("/nowhere"), CheckpointError,
      Message("checkpoint.resume: got /nowhere; there is no such directory; expected restarts, auto, "
              "never, or the directory of a checkpoint or of a run"));
  CHECK_THROWS_MATCHES(run.find(run.dir.path.string()), CheckpointError,
                       Message("checkpoint.resume: " + run.dir.path.string() + ": no checkpoint in it"));
}

TEST_CASE("damage of any kind is found, named, and passed over for the one before") {
  const std::string kOptimizer = "step_20/optimizer.safetensors";
  const auto passes_over = [](const std::function<void(Run&)>& damage, const std::string& reason) {
    Run run;
    damage(run);
    CHECK_THROWS_WITH(checkpoint::verify(run.checkpoints / "step_20"), Contains(reason));
    CHECK(run.find("auto") == "step_10");
    CHECK_THROWS_WITH(run.find((run.checkpoints / "step_20").string()),
                      Contains(reason));  // no other was asked for
  };
  for (const char* file :
       {"step_20/model.safetensors", "step_20/optimizer.safetensors", "step_20/ema.safetensors",
        "step_20/progress.safetensors", "step_20/tables-0-of-1.safetensors", "step_20/tables.index.json"}) {
    for (const std::streamoff at : {0, 9, 100}) {
      passes_over([&](Run& run) { run.damage(file, at); },
                  fmt::format("{}: got contents of checksum ", file));
    }
    passes_over([&](Run& run) { fs::resize_file(run.checkpoints / file, 5); },
                fmt::format("{}: got 5 bytes; expected ", file));
    passes_over([&](Run& run) { fs::remove(run.checkpoints / file); },
                fmt::format("{}: No such file or directory", file));
  }
  passes_over([](Run& run) { fs::remove(run.checkpoints / "step_20/state.json"); },
              "step_20: no state.json in it: not a checkpoint, or not completed");
  passes_over([](Run& run) { fs::resize_file(run.checkpoints / "step_20/state.json", 40); },
              "state.json: damaged: ");
  passes_over([](Run& run) { fs::resize_file(run.checkpoints / "step_20/state.json", 0); },
              "state.json: damaged: ");
  const auto replace = [](Run& run, const std::string& what, const std::string& by) {
    const fs::path path = run.checkpoints / "step_20/state.json";
    std::string text = read_file(path);
    text.replace(text.find(what), what.size(), by);
    std::ofstream(path) << text;
  };
  passes_over([&](Run& run) { replace(run, "\"step\": 20", "\"step\": 21"); },
              "state.json: damaged: got contents of checksum ");
  passes_over([&](Run& run) { replace(run, "\"step\": 20", "\"step\": []"); }, "state.json: damaged: ");
  passes_over([&](Run& run) { replace(run, "\"format\": 1", "\"format\": 2"); },
              "state.json: damaged: got format 2; expected 1: written by a newer program?");
  passes_over([&](Run& run) { replace(run, "model.safetensors", "../model.safetensors"); },
              "state.json: damaged: ");
}

TEST_CASE("when all are damaged that is an error with all reasons, not a new beginning") {
  Run run;
  for (const char* file : {"step_10/model.safetensors", "step_20/model.safetensors"}) run.damage(file, 3);
  CHECK_THROWS_WITH(run.find("auto"),
                    StartsWith(run.checkpoints.string() + ": none of its 2 checkpoints is whole:\n  ") &&
                        Contains("step_20/model.safetensors: got contents of checksum ") &&
                        Contains("step_10/model.safetensors: got contents of checksum ") &&
                        EndsWith("\nhint: --resume never begins at the first step"));
}

TEST_CASE("other data or another model are refused with what is other") {
  Run run;
  CHECK_THROWS_MATCHES(
      run.find("auto", false, "beef"), CheckpointError,
      Message((run.checkpoints / "step_20").string() +
              ": was trained on other data: fingerprint of data.train: got beef; expected f00d\nhint: put "
              "the data back, or begin at the first step with --resume never"));
  Job job = job_in(run.dir.path, "auto");
  job.spec.optimizer.lr = 1e-3;
  CHECK(checkpoint::find(
      job, false, [] { return "f00d"; }, *run.one));
  job.spec.job.seed = 43;
  job.spec.model.gpt.layers = 3;
  CHECK_THROWS_MATCHES(
      checkpoint::find(
          job, false, [] { return "f00d"; }, *run.one),
      CheckpointError,
      Message((run.checkpoints / "step_20").string() +
              ": is of another job, so training cannot go on from it:\n  job.seed: 42 -> 43\n  "
              "model.gpt.layers: null -> 3\nhint: put these back, or begin at the first step with --resume "
              "never"));
}

TEST_CASE("what changed between two specs is listed by key, but for what is no part of training") {
  spec::JobSpec before, after;
  CHECK(checkpoint::changes(spec::to_yaml(before), spec::to_yaml(after)).empty());
  before.launch.env["A"] = "1";
  after.job.name = after.job.output_dir = "other";
  after.launch.max_restarts = 5;
  after.logging.every_steps = 1;
  after.data.validation.path = "v.tsv";
  CHECK(checkpoint::changes(spec::to_yaml(before), spec::to_yaml(after)).empty());
  after.optimizer.lr = 0.5;
  after.train.gradient_accumulation = 4;
  after.model.recommender.tables["C1"].rows = 10;
  after.data.label_names = {"a: b", "c"};
  std::vector<std::string> got;
  for (const auto& change : checkpoint::changes(spec::to_yaml(before), spec::to_yaml(after))) {
    got.push_back(fmt::format("{}{}: {} -> {}", change.breaks_resume ? "! " : "", change.key, change.before,
                              change.after));
  }
  INFO(fmt::format("{}", fmt::join(got, "\n")));
  CHECK(std::count(got.begin(), got.end(), "optimizer.lr: 5e-05 -> 0.5") +
            std::count(got.begin(), got.end(), "optimizer.lr: 5.0e-05 -> 0.5") ==
        1);
  CHECK(std::count(got.begin(), got.end(), "train.gradient_accumulation: 1 -> 4") == 1);
  CHECK(std::count(got.begin(), got.end(), "! data.label_names: [] -> [\"a: b\", c]") == 1);
  CHECK(std::count_if(got.begin(), got.end(), [](const std::string& line) {
          return line.starts_with("! model.recommender.tables.C1.rows: ");
        }) == 1);
}

}  // namespace trainer::test
