#include "checkpoint/save.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <mutex>

#include "../dist/ranks.h"
#include "fixture.h"

namespace trainer::test {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::Message;

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

const std::vector<std::string> kNone(2);

}  // namespace

TEST_CASE("a checkpoint of some ranks is loaded by any number of them") {
  for (const int64_t size : {1, 2, 3}) {
    const TemporaryDirectory dir;
    const auto saved = run_ranks(size, [&](dist::Communicator& communicator) {
      Training training(communicator.rank(), size);
      training.advance(11, communicator.rank());
      save(training, dir.path, communicator);
    });
    CHECK(saved == std::vector<std::string>(static_cast<size_t>(size)));
    CHECK(names_in(dir.path) == std::vector<std::string>{"step_11"});
    const checkpoint::Manifest manifest = checkpoint::verify(dir.path / "step_11");
    CHECK(manifest.step == 11);
    CHECK(manifest.world_size == size);
    CHECK(manifest.values.at("loop.step") == 11);
    for (const int64_t load_size : {1, 2, 4}) {
      std::mutex mutex;
      double sums = 0;
      const auto loaded = run_ranks(load_size, [&](dist::Communicator& communicator) {
        Training training(communicator.rank(), load_size), expected(communicator.rank(), load_size);
        expected.advance(11, communicator.rank());
        checkpoint::load(dir.path / "step_11", training.state(), communicator);
        const std::lock_guard lock(mutex);
        CHECK(at::equal(training.model.a_, expected.model.a_));
        CHECK(at::equal(training.model.b_, expected.model.b_));
        CHECK(at::equal(training.momentum, expected.momentum));
        CHECK(at::equal(training.mean, expected.mean));
        CHECK(at::equal(training.table, expected.table));
        CHECK(training.step == 11);
        CHECK(training.best == expected.best);
        if (load_size == size) CHECK(training.own_sum == expected.own_sum);
        sums += training.own_sum;
      });
      CHECK(loaded == std::vector<std::string>(static_cast<size_t>(load_size)));
      CHECK(sums == static_cast<double>(size * (size + 1) / 2));
    }
  }
}

TEST_CASE("random generators go on where they were") {
  const TemporaryDirectory dir;
  const auto one = dist::make_single_process();
  Training training(0, 1);
  training.advance(3, 0);
  at::rand({5});
  save(training, dir.path, *one);
  const at::Tensor next = at::rand({5});
  at::rand({7});
  checkpoint::load(dir.path / "step_3", training.state(), *one);
  CHECK(at::equal(at::rand({5}), next));
}

TEST_CASE("when one rank cannot write, none has saved, all say why, and nothing is left") {
  const TemporaryDirectory dir;
  const auto errors = run_ranks(2, [&](dist::Communicator& communicator) {
    Training training(communicator.rank(), 2);
    training.advance(5, communicator.rank());
    // A table that is not where it says: on one rank only.
    if (communicator.rank() == 1) training.row_begin = Training::kRows;
    save(training, dir.path, communicator);
  });
  const std::string message =
      "rank 1: C1.weight: a block [3, 2] at row 7, column 0 is not in a tensor [7, 2] of at most two "
      "dimensions";
  CHECK(errors == std::vector<std::string>{message, message});
  CHECK(names_in(dir.path).empty());
}

TEST_CASE("the last checkpoints are kept, of those up to this step") {
  const TemporaryDirectory dir;
  const auto one = dist::make_single_process();
  Training training(0, 1);
  for (const int64_t step : {9, 10, 20, 100}) {
    training.advance(step, 0);
    save(training, dir.path, *one);
  }
  training.advance(30, 0);
  save(training, dir.path, *one, 2);
  CHECK(names_in(dir.path) == std::vector<std::string>{"step_100", "step_20", "step_30"});
}

TEST_CASE("a step that is saved again takes the place of the old one") {
  const TemporaryDirectory dir;
  const auto one = dist::make_single_process();
  Training training(0, 1);
  training.advance(9, 0);
  save(training, dir.path, *one);
  fs::create_directories(dir.path / ".step_9.tmp/left by a killed process");
  training.momentum.fill_(-1);
  save(training, dir.path, *one);
  CHECK(names_in(dir.path) == std::vector<std::string>{"step_9"});
  Training other(0, 1);
  checkpoint::load(dir.path / "step_9", other.state(), *one);
  CHECK(at::equal(other.momentum, training.momentum));
}

TEST_CASE("what does not fit is refused by name") {
  const TemporaryDirectory dir;
  const auto one = dist::make_single_process();
  Training training(0, 1);
  training.advance(9, 0);
  save(training, dir.path, *one);
  const std::string optimizer = (dir.path / "step_9/optimizer.safetensors").string();
  checkpoint::State state = training.state();
  state.optimizer = {{"a.exp_avg", training.momentum}};
  CHECK_THROWS_MATCHES(checkpoint::load(dir.path / "step_9", state, *one), CheckpointError,
                       Message(optimizer + ": has no tensor a.exp_avg: of a job with other settings?"));
  state.optimizer = {{"a.momentum_buffer", training.mean}};
  CHECK_THROWS_MATCHES(
      checkpoint::load(dir.path / "step_9", state, *one), CheckpointError,
      Message(optimizer + ": tensor a.momentum_buffer: got Float [2, 3]; expected Float [4]"));
}

}  // namespace trainer::test
