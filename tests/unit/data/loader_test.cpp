#include "data/loader.h"

#include <ATen/ops/equal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "core/error.h"
#include "data/text_classification.h"
#include "fixture.h"

using namespace trainer::data;
using trainer::data::test::encode_characters;

namespace {

std::shared_ptr<const TextClassification> dataset(const TemporaryDirectory& dir, int64_t num_rows) {
  std::string text = "y\ta\tb\n";
  for (int64_t i = 0; i < num_rows; ++i) {
    text += std::to_string(i % 2) + "\t" + std::string(static_cast<size_t>(i * 7 % 23), 'a') + "\tb\n";
  }
  trainer::spec::DataSource source;
  source.path = dir.write("x.tsv", text);
  source.text = "a";
  source.text_pair = "b";
  source.label = "y";
  return std::make_shared<TextClassification>(
      source, LabelReader(trainer::spec::ProblemType::kSingleLabel, 2, {}), encode_characters);
}

void require_equal(const MicroBatch& a, const MicroBatch& b) {
  REQUIRE(a.epoch == b.epoch);
  REQUIRE(a.position == b.position);
  REQUIRE(a.step_samples == b.step_samples);
  REQUIRE(a.last_of_step == b.last_of_step);
  REQUIRE(a.last_of_epoch == b.last_of_epoch);
  REQUIRE(a.batch.samples == b.batch.samples);
  REQUIRE(a.batch.seqlens == b.batch.seqlens);
  for (const auto member : {&Batch::input_ids, &Batch::token_type_ids, &Batch::position_ids,
                            &Batch::cu_seqlens, &Batch::row_keys, &Batch::labels}) {
    REQUIRE(at::equal(a.batch.*member, b.batch.*member));
  }
}

std::vector<MicroBatch> take(Loader& loader, int64_t count) {
  std::vector<MicroBatch> batches;
  for (int64_t i = 0; i < count; ++i) batches.push_back(loader.next());
  return batches;
}

}  // namespace

TEST_CASE("batches don't depend on the number of threads, nor on the depth") {
  const TemporaryDirectory dir;
  const auto data = dataset(dir, 61);
  for (const int64_t batch_tokens : {0, 60}) {
    LoaderOptions options;
    options.batch = {5, batch_tokens, 2, 2};
    options.num_workers = 0;
    Loader plain(data, options);
    const std::vector<MicroBatch> expected = take(plain, 40);
    CHECK(expected.back().epoch > 1);
    for (int64_t workers = 1; workers <= 4; ++workers) {
      options.num_workers = workers;
      options.prefetch = 2 * workers - 1;
      Loader loader(data, options);
      const std::vector<MicroBatch> got = take(loader, 40);
      for (size_t i = 0; i < got.size(); ++i) require_equal(got[i], expected[i]);
    }
  }
}

TEST_CASE("all ranks together see every sample once an epoch, in equally many micro-batches") {
  const TemporaryDirectory dir;
  for (const int64_t num_rows : {1, 7, 61}) {
    const auto data = dataset(dir, num_rows);
    for (const int64_t world : {1, 2, 3}) {
      std::vector<int64_t> seen;
      for (int64_t rank = 0; rank < world; ++rank) {
        LoaderOptions options;
        options.batch = {4, 0, 3, world};
        options.rank = rank;
        Loader loader(data, options);
        const int64_t num_steps = loader.num_steps(0);
        REQUIRE(num_steps == (num_rows + 12 * world - 1) / (12 * world));
        int64_t sum = 0;
        for (int64_t i = 0; i < num_steps * 3; ++i) {
          const MicroBatch micro = loader.next();
          REQUIRE(micro.epoch == 0);
          REQUIRE(micro.last_of_step == (i % 3 == 2));
          REQUIRE(micro.last_of_epoch == (i == num_steps * 3 - 1));
          if (micro.last_of_step) {
            sum += micro.step_samples;
            REQUIRE(micro.position == sum);
          }
          seen.insert(seen.end(), micro.batch.samples.begin(), micro.batch.samples.end());
        }
        REQUIRE(sum == num_rows);
        REQUIRE(loader.next().epoch == 1);
      }
      std::sort(seen.begin(), seen.end());
      std::vector<int64_t> all(static_cast<size_t>(num_rows));
      for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
      REQUIRE(seen == all);
    }
  }
}

TEST_CASE("a loader resumes at any step with the identical rest") {
  const TemporaryDirectory dir;
  const auto data = dataset(dir, 61);
  for (const int64_t batch_tokens : {0, 60}) {
    LoaderOptions options;
    options.batch = {5, batch_tokens, 2, 2};
    options.rank = 1;
    options.num_workers = 2;
    Loader whole(data, options);
    const std::vector<MicroBatch> expected = take(whole, 40);
    Loader loader(data, options);
    for (size_t i = 1; i + 4 < expected.size(); i += 2) {
      loader.seek(expected[i].epoch, expected[i].position);
      const std::vector<MicroBatch> rest = take(loader, 4);
      for (size_t k = 0; k < rest.size(); ++k) require_equal(rest[k], expected[i + 1 + k]);
    }
  }
}

TEST_CASE("another number of ranks resumes at the exact sample") {
  const TemporaryDirectory dir;
  const auto data = dataset(dir, 61);
  LoaderOptions options;
  options.batch = {4, 0, 1, 2};
  std::set<int64_t> seen;
  int64_t position = 0;
  for (int64_t rank = 0; rank < 2; ++rank) {
    options.rank = rank;
    Loader loader(data, options);
    for (const MicroBatch& micro : take(loader, 3)) {
      seen.insert(micro.batch.samples.begin(), micro.batch.samples.end());
      position = micro.position;
    }
  }
  REQUIRE(position == 24);
  options.batch = {4, 0, 1, 3};
  for (int64_t rank = 0; rank < 3; ++rank) {
    options.rank = rank;
    Loader loader(data, options);
    loader.seek(0, position);
    REQUIRE(loader.num_steps(0, position) == 4);
    for (const MicroBatch& micro : take(loader, 4)) {
      for (const int64_t sample : micro.batch.samples) REQUIRE(seen.insert(sample).second);
    }
  }
  CHECK(seen.size() == 61);
}

TEST_CASE("without shuffling, epochs are in the file's order") {
  const TemporaryDirectory dir;
  LoaderOptions options;
  options.batch = {4, 0, 1, 1};
  options.shuffle = false;
  Loader loader(dataset(dir, 6), options);
  for (int epoch = 0; epoch < 2; ++epoch) {
    CHECK(loader.next().batch.samples == std::vector<int64_t>{0, 1, 2, 3});
    CHECK(loader.next().batch.samples == std::vector<int64_t>{4, 5});
  }
}

TEST_CASE("some of the samples are spread evenly over the dataset") {
  const TemporaryDirectory dir;
  const auto data = dataset(dir, 61);
  LoaderOptions options;
  options.batch = {3, 0, 1, 1};
  options.shuffle = false;
  options.samples = 5;
  Loader loader(data, options);
  CHECK(loader.num_samples() == 5);
  CHECK(loader.num_steps(0) == 2);
  CHECK(loader.next().batch.samples == std::vector<int64_t>{0, 12, 24});
  const MicroBatch last = loader.next();
  CHECK(last.batch.samples == std::vector<int64_t>{36, 48});
  CHECK(last.step_targets == 2);
  CHECK(last.last_of_epoch);
  options.samples = 100;
  CHECK(Loader(data, options).num_samples() == 61);
}

TEST_CASE("each epoch has its own order") {
  const TemporaryDirectory dir;
  LoaderOptions options;
  options.batch = {61, 0, 1, 1};
  Loader loader(dataset(dir, 61), options);
  const std::vector<int64_t> first = loader.next().batch.samples;
  CHECK(loader.next().batch.samples != first);
}

TEST_CASE("a loader's options are the job's") {
  trainer::Job job;
  job.spec.train.batch_size = 8;
  job.spec.train.batch_tokens = 100;
  job.spec.train.gradient_accumulation = 3;
  job.spec.evaluation.batch_size = 32;
  job.spec.evaluation.samples = 9;
  job.spec.job.seed = 7;
  job.world.rank = 1;
  job.world.size = 2;
  const LoaderOptions training = LoaderOptions::for_training(job);
  CHECK(training.batch.num_shards() == 6);
  CHECK(training.batch.batch_tokens == 100);
  CHECK(training.seed == 7);
  CHECK(training.rank == 1);
  CHECK_FALSE(training.pin_memory);
  const LoaderOptions evaluation = LoaderOptions::for_evaluation(job);
  CHECK(evaluation.batch.batch_size == 32);
  CHECK(evaluation.batch.batch_tokens == 0);
  CHECK(evaluation.batch.num_shards() == 2);
  CHECK_FALSE(evaluation.shuffle);
  CHECK(evaluation.samples == 9);
  CHECK(training.samples == 0);
  job.spec.evaluation.batch_size = 0;
  CHECK(LoaderOptions::for_evaluation(job).batch.batch_size == 8);
  CHECK(LoaderOptions::for_evaluation(job).batch.batch_tokens == 100);
}

TEST_CASE("a job's steps are known before it begins, also by tokens") {
  const TemporaryDirectory dir;
  const auto data = dataset(dir, 61);
  LoaderOptions options;
  options.batch = {4, 0, 1, 2};
  trainer::spec::Train train;
  train.epochs = 3;
  CHECK(Loader(data, options).total_steps(train) == 3 * 8);
  train.steps = 5;
  CHECK(Loader(data, options).total_steps(train) == 5);
  train.steps.reset();
  options.batch.batch_tokens = train.batch_tokens = 40;
  Loader loader(data, options);
  int64_t steps = 0;
  for (MicroBatch micro = loader.next(); micro.epoch < 3; micro = loader.next()) ++steps;
  CHECK(loader.total_steps(train) == steps);
}

TEST_CASE("evaluation has the job's token budget unless it has a batch size") {
  const TemporaryDirectory dir;
  trainer::Job job;
  job.spec.train.batch_size = job.spec.train.batch_tokens = 40;
  Loader loader(dataset(dir, 61), LoaderOptions::for_evaluation(job));
  int64_t samples = 0;
  for (int64_t left = loader.num_steps(0); left > 0; --left) {
    const MicroBatch micro = loader.next();
    CHECK(micro.batch.num_tokens() <= 40);
    samples += micro.batch.num_samples();
  }
  CHECK(samples == 61);
}

TEST_CASE("a sample larger than the token budget is named") {
  const TemporaryDirectory dir;
  const auto data = dataset(dir, 5);  // of 4, 11, 18, 25 and 9 tokens
  LoaderOptions options;
  options.batch.batch_tokens = 24;
  CHECK_THROWS_MATCHES(Loader(data, options), trainer::DataError,
                       Catch::Matchers::Message((dir.path / "x.tsv").string() +
                                                ":5: 25 tokens, expected at most 24 (train.batch_tokens)\n"
                                                "hint: raise it, or lower data.max_length"));
}
