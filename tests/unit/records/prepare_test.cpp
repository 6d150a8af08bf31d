#include "records/prepare.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/output_lock.h"
#include "fixture.h"

using Catch::Matchers::Message;
using trainer::SpecError;
using trainer::records::PrepareOptions;
using trainer::records::RecordSets;
using trainer::records::SyntheticOptions;
using trainer::records::test::gather_all;
using trainer::records::test::Gathered;
using trainer::records::test::TestJob;
using namespace trainer::spec;

namespace {

const std::atomic<bool> kGoOn = false, kStop = true;

SyntheticOptions small(const std::string& output) {
  SyntheticOptions options;
  options.output = output;
  options.rows = 20000;
  options.validation_rows = 1000;
  return options;
}

PrepareOptions options_of(const TemporaryDirectory& dir) {
  PrepareOptions options;
  options.data.train.path = dir.write("in/a.csv", "click,x\n0,1\n");
  options.data.features.label = "click";
  options.data.features.dense = {"x"};
  options.output = (dir.path / "out").string();
  return options;
}

}  // namespace

TEST_CASE("an output is a new directory, or an earlier run's by force") {
  const TemporaryDirectory dir;
  PrepareOptions options = options_of(dir);
  const std::string out = options.output;
  REQUIRE(trainer::records::prepare(options, kGoOn));
  CHECK_THROWS_MATCHES(
      trainer::records::prepare(options, kGoOn), SpecError,
      Message("--output: " + out +
              " exists; expected a new directory\nhint: --force replaces what an earlier run left"));
  options.force = true;
  CHECK(trainer::records::prepare(options, kGoOn));
  options.output = (dir.path / "in/").string();
  CHECK_THROWS_MATCHES(
      trainer::records::prepare(options, kGoOn), SpecError,
      Message("--output: " + options.output + " has files of others; expected a new directory"));
  options.output = options.data.train.path;
  CHECK_THROWS_MATCHES(trainer::records::prepare(options, kGoOn), SpecError,
                       Message("--output: " + options.output + " is a file; expected a directory to make"));
  options.output = std::string(1, '.');
  CHECK_THROWS_MATCHES(trainer::records::prepare(options, kGoOn), SpecError,
                       Message("--output: got \".\"; expected a directory to make"));
  options.output = out;
  options.data.train.path = dir.write("out/new.csv", "click,x\n0,1\n");
  CHECK_THROWS_MATCHES(
      trainer::records::prepare(options, kGoOn), SpecError,
      Message("--output: " + options.data.train.path + " is in it; expected another directory"));
  options = options_of(dir);
  options.force = true;
  const trainer::OutputLock held(out);
  CHECK_THROWS_MATCHES(
      trainer::records::prepare(options, kGoOn), SpecError,
      Message("--output: " + out + " is in use by another prepare; expected another one, or to wait for it"));
}

TEST_CASE("a run that is stopped or fails leaves what was there") {
  const TemporaryDirectory dir;
  PrepareOptions options = options_of(dir);
  CHECK_FALSE(trainer::records::prepare(options, kStop));
  CHECK_FALSE(trainer::records::prepare_synthetic(small(options.output), kStop));
  REQUIRE(trainer::records::prepare(options, kGoOn));
  const std::string before = trainer::read_file(options.output + "/train.records");
  dir.write("in/a.csv", "click,x\n0,2\n0,x\n");
  options.force = true;
  CHECK_THROWS_AS(trainer::records::prepare(options, kGoOn), trainer::DataError);
  CHECK(trainer::read_file(options.output + "/train.records") == before);
  size_t num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path)) num_files += entry.exists();
  CHECK(num_files == 2);  // in and out
  options.data.train.path = options.output + "/train.records";
  CHECK_THROWS_MATCHES(trainer::records::prepare(options, kGoOn), trainer::DataError,
                       Message(options.data.train.path + ": is prepared already"));
}

TEST_CASE("synthetic rows are the same in every format and by any number of threads") {
  const TemporaryDirectory dir;
  SyntheticOptions options = small((dir.path / "records").string());
  options.model.cardinalities[3] = 7;
  REQUIRE(trainer::records::prepare_synthetic(options, kGoOn));
  TestJob job(options.output + "/train.records");
  job.data.features = {};
  job.data.validation.path = options.output + "/validation.records";
  const RecordSets sets = job.open();
  CHECK(sets.map->info().tables[3].rows == 7);
  const Gathered train = gather_all(*sets.train), validation = gather_all(*sets.validation);
  CHECK(train.labels.size() == 20000);

  options.num_threads = 3;
  options.format = FileFormat::kCriteo;
  options.output = (dir.path / "criteo").string();
  REQUIRE(trainer::records::prepare_synthetic(options, kGoOn));
  TestJob criteo(options.output + "/train.tsv");
  criteo.data.features = {};
  criteo.data.features.dense_transform = DenseTransform::kLog;
  criteo.data.features.ids = IdMapping::kModulo;
  criteo.data.validation.path = options.output + "/validation.tsv";
  criteo.model.rows = 1000;
  criteo.model.tables["C4"].rows = 7;
  CHECK(gather_all(*criteo.open().train) == train);
  CHECK(gather_all(*criteo.open().validation) == validation);

  options.format = FileFormat::kCsv;
  options.output = (dir.path / "csv").string();
  REQUIRE(trainer::records::prepare_synthetic(options, kGoOn));
  criteo.data.train.path = options.output + "/train.csv";
  criteo.data.validation.path.clear();
  criteo.data.features.ids = IdMapping::kIdentity;
  CHECK(gather_all(*criteo.open().train) == train);
}

TEST_CASE("synthetic rows have the click rate and scores that are said") {
  const TemporaryDirectory dir;
  SyntheticOptions options = small((dir.path / "a").string());
  options.validation_rows = 50000;
  REQUIRE(trainer::records::prepare_synthetic(options, kGoOn));
  const auto truth = nlohmann::json::parse(trainer::read_file(dir.path / "a/truth.json"));
  const auto& scores = truth.at("validation");
  CHECK(scores.at("rows") == 50000);
  CHECK(scores.at("auc") > 0.75);
  CHECK(scores.at("auc") < 0.9);
  CHECK(scores.at("normalized_entropy") < 0.9);
  TestJob job((dir.path / "a/validation.records").string());
  job.data.features = {};
  const Gathered rows = gather_all(*job.open().train);
  double clicks = 0;
  for (const float label : rows.labels) clicks += label;
  CHECK(clicks / 50000 == Approx(0.25).margin(0.01));
}

TEST_CASE("synthetic options that make no sense are refused") {
  const TemporaryDirectory dir;
  const auto error = [&](const std::function<void(SyntheticOptions&)>& change) {
    SyntheticOptions options = small((dir.path / "a").string());
    change(options);
    try {
      trainer::records::prepare_synthetic(options, kGoOn);
    } catch (const SpecError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(error([](auto& o) { o.rows = 0; }) == "--rows: got 0; expected 1 or more");
  CHECK(error([](auto& o) { o.validation_rows = -1; }) == "--validation-rows: got -1; expected 0 or more");
  CHECK(error([](auto& o) {
          o.model.num_dense = 0;
          o.model.cardinalities.clear();
        }) == "--dense: got 0 and no sparse features; expected a feature");
  CHECK(error([](auto& o) { o.model.cardinalities[1] = 0; }) == "--cardinality: got 0; expected 1 or more");
  CHECK(error([](auto& o) { o.model.zipf = -1; }) == "--zipf: got -1; expected 0 or more");
  CHECK(error([](auto& o) { o.model.click_rate = 1; }) ==
        "--click-rate: got 1; expected a number between 0 and 1");
  CHECK(error([](auto& o) { o.model.signal = -1; }) == "--signal: got -1; expected 0 or more");
  CHECK(error([](auto& o) {
          o.format = FileFormat::kCriteo;
          o.model.num_dense = 2;
        }) ==
        "--format: got criteo with 2 dense and 26 sparse features; expected 13 and 26, or records or csv");
}
