#include "records/record_file.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "core/error.h"
#include "core/file.h"
#include "fixture.h"
#include "records/prepare.h"

using Catch::Matchers::Message;
using trainer::DataError;
using trainer::SpecError;
using trainer::records::RecordSets;
using trainer::records::test::gather;
using trainer::records::test::gather_all;
using trainer::records::test::Gathered;
using trainer::records::test::TestJob;
using namespace trainer::spec;

namespace {

const std::atomic<bool> kGoOn = false;

std::string table(int rows, int salt) {
  std::string text = "click,x,y,item,tags,user\n";
  for (int i = 0; i < rows; ++i) {
    const int k = i + salt;
    text += fmt::format("{},{},{}.5,i{},", k % 2, k, k % 7, k * 7 % 50);
    for (int t = 0; t < k % 4; ++t) text += fmt::format("{}t{}:{}", t == 0 ? "" : "|", (k + t) % 9, t + 0.5);
    text += fmt::format(",u{}\n", k % 5);
  }
  return text;
}

TestJob job_of(const TemporaryDirectory& dir) {
  TestJob job(dir.write("train.csv", table(500, 0)));
  job.data.validation.path = dir.write("validation.csv", table(100, 3));
  job.data.features.dense = {"x", "y"};
  job.data.features.sparse = {"item", "tags"};
  job.data.features.min_count = 5;
  return job;
}

trainer::records::PrepareOptions options_of(const TestJob& job, const std::string& output) {
  trainer::records::PrepareOptions options;
  options.data = job.data;
  options.model = job.model;
  options.output = output;
  options.num_threads = 2;
  return options;
}

// The job over what was prepared of it.
TestJob prepared(const std::string& output) {
  TestJob job(output + "/train.records");
  job.data.validation.path = output + "/validation.records";
  job.data.features = {};
  return job;
}

}  // namespace

TEST_CASE("what is prepared gives the batches of the text that it was made of") {
  const TemporaryDirectory dir;
  const std::string out = (dir.path / "out").string();
  for (const char* form : {"plain", "group", "bags", "weights"}) {
    TestJob job = job_of(dir);
    if (std::string(form) != "plain") job.data.features.group = "user";
    if (std::string(form) == "bags" || std::string(form) == "weights") job.data.features.separator = "|";
    if (std::string(form) == "weights") job.data.features.weight_separator = ":";
    auto options = options_of(job, out);
    options.force = true;
    REQUIRE(trainer::records::prepare(options, kGoOn));
    const RecordSets text = job.open(), file = prepared(out).open();
    REQUIRE(file.train->size() == 500);
    CHECK(file.train->layout() == text.train->layout());
    CHECK(gather_all(*file.train) == gather_all(*text.train));
    CHECK(gather_all(*file.validation) == gather_all(*text.validation));
    CHECK(gather(*file.train, {499, 0, 499, 3}) == gather(*text.train, {499, 0, 499, 3}));
    CHECK(file.train->fingerprint() == text.train->fingerprint());
    CHECK(file.map->fingerprint() == text.map->fingerprint());
    CHECK(file.train->where(7) == out + "/train.records: row 8");
    // Text by the map of prepared data.
    TestJob mixed = prepared(out);
    mixed.data.validation.path = job.data.validation.path;
    CHECK(gather_all(*mixed.open().validation) == gather_all(*text.validation));
  }
  CHECK_FALSE(std::filesystem::exists(out + ".lock"));
  CHECK_FALSE(std::filesystem::exists(out + ".partial"));
}

TEST_CASE("ids are as wide as the largest table needs") {
  const TemporaryDirectory dir;
  TestJob job(dir.write("a.csv", "click,a,b\n0,5000000000,1|2\n1,7,4999999999\n"));
  job.data.features.sparse = {"a", "b"};
  job.data.features.separator = "|";
  job.data.features.ids = IdMapping::kIdentity;
  job.model.rows = 5000000001;
  const std::string out = (dir.path / "out").string();
  REQUIRE(trainer::records::prepare(options_of(job, out), kGoOn));
  TestJob again = prepared(out);
  again.data.validation.path.clear();
  const RecordSets sets = again.open();
  CHECK(sets.train->layout().id_bytes == 8);
  CHECK(gather_all(*sets.train).ids == std::vector<int64_t>{5000000000, 7, 1, 2, 4999999999});
}

TEST_CASE("a job may say no other than what was prepared") {
  const TemporaryDirectory dir;
  const std::string out = (dir.path / "out").string();
  REQUIRE(trainer::records::prepare(options_of(job_of(dir), out), kGoOn));
  const std::string path = out + "/train.records";
  const std::string hint = "; expected the same\nhint: leave it out, or prepare the data again";
  TestJob same = prepared(out);
  same.data.features = job_of(dir).data.features;
  CHECK_NOTHROW(same.open());
  TestJob job = prepared(out);
  job.data.features.ids = IdMapping::kMurmur;
  CHECK_THROWS_MATCHES(
      job.open(), SpecError,
      Message("data.features.ids: got murmur, but " + path + " was prepared with vocabulary" + hint));
  job = prepared(out);
  job.data.features.sparse = {"item"};
  CHECK_THROWS_MATCHES(
      job.open(), SpecError,
      Message("data.features.sparse: got [item], but " + path + " was prepared with [item, tags]" + hint));
  job.data.features.dense = {"x", "y"};
  CHECK_THROWS_MATCHES(
      job.open(), SpecError,
      Message("data.features.sparse: got [item], but " + path + " was prepared with [item, tags]" + hint));
  job = prepared(out);
  job.data.features.min_count = 2;
  CHECK_THROWS_MATCHES(
      job.open(), SpecError,
      Message("data.features.min_count: got 2, but " + path + " was prepared with 5" + hint));
  job = prepared(out);
  job.data.features.label_threshold = 0.5;
  CHECK_THROWS_MATCHES(
      job.open(), SpecError,
      Message("data.features.label_threshold: got 0.5, but " + path + " was prepared with none" + hint));
  job = prepared(out);
  job.model.tables["both"].features = {"item", "tags"};
  CHECK_THROWS_MATCHES(job.open(), SpecError,
                       Message("model.recommender.tables: feature item is in table both, but " + path +
                               " was prepared with it in table item; expected the same"));
  job = prepared(out);
  job.model.tables["item"].rows = 10;
  CHECK_THROWS_MATCHES(
      job.open(), SpecError,
      Message("model.recommender.tables.item.rows: got 10, but " + path +
              " was prepared with 51 rows; expected as many or more\nhint: leave rows out, or prepare the "
              "data again"));
}

TEST_CASE("files that are not whole, or of another map, are refused") {
  const TemporaryDirectory dir;
  const std::string out = (dir.path / "out").string();
  REQUIRE(trainer::records::prepare(options_of(job_of(dir), out), kGoOn));
  const std::string path = out + "/train.records";
  const std::string whole = trainer::read_file(path);
  const auto error = [&](const std::string& bytes) {
    dir.write("out/train.records", bytes);
    TestJob job = prepared(out);
    job.data.train.format = FileFormat::kRecords;
    try {
      job.open();
    } catch (const DataError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(error(whole).empty());
  CHECK(error("TRN") == path + ": is no file of records; expected one that trainer prepare wrote");
  CHECK(error("X" + whole.substr(1)) ==
        path + ": is no file of records; expected one that trainer prepare wrote");
  CHECK_THAT(error(whole.substr(0, whole.size() - 1)), Catch::StartsWith(path + ": is not whole: "));
  std::string bytes = whole;
  bytes[8] = 9;
  CHECK(error(bytes) ==
        path + ": version 9 of the format, expected 1\nhint: prepare it again with this program");
  bytes = whole;
  bytes[16] = static_cast<char>(bytes[16] + 1);  // rows
  CHECK(error(bytes) == path + ": is damaged: its rows are not as its description says");
  bytes = whole;
  bytes[bytes.rfind('}')] = ' ';
  CHECK_THAT(error(bytes), Catch::StartsWith(path + ": is not as trainer prepare writes it: "));

  TestJob other = job_of(dir);
  other.data.features.min_count = 1;
  const std::string out2 = (dir.path / "out2").string();
  REQUIRE(trainer::records::prepare(options_of(other, out2), kGoOn));
  dir.write("out/train.records", whole);
  TestJob mixed = prepared(out);
  mixed.data.validation.path = out2 + "/validation.records";
  CHECK_THROWS_WITH(mixed.open(), Catch::StartsWith(mixed.data.validation.path +
                                                    ": was prepared by another feature map ("));
  std::filesystem::remove(out + "/features.json");
  CHECK_THROWS_MATCHES(prepared(out).open(), SpecError,
                       Message(out + "/features.json: cannot open: No such file or directory"));
}

TEST_CASE("ragged parts that are not as rows say are found in a batch") {
  using trainer::records::Records;
  using trainer::records::RowLayout;
  RowLayout layout;
  layout.num_sparse = 1;
  layout.ragged = true;
  const auto records = [&](uint64_t place, int32_t count, int32_t slot) {
    auto row = std::make_shared<std::string>(static_cast<size_t>(layout.stride()), '\0');
    std::memcpy(row->data(), &place, sizeof place);
    std::memcpy(row->data() + layout.count_at(), &count, sizeof count);
    std::memcpy(row->data() + layout.ids_at(), &slot, sizeof slot);
    static constexpr int32_t kRagged[] = {2, 10, 11};
    const std::string_view ragged(reinterpret_cast<const char*>(kRagged), sizeof kRagged);
    return Records(layout, row, *row, ragged, 0, [](int64_t i) { return fmt::format("row {}", i); });
  };
  CHECK(gather(records(0, 2, RowLayout::kBag), {0}).ids == std::vector<int64_t>{10, 11});
  CHECK(gather(records(0, 1, 5), {0}).ids == std::vector<int64_t>{5});
  CHECK(gather(records(0, 0, RowLayout::kEmpty), {0}).ids.empty());
  const std::string damaged = "row 0: damaged: its ids are not as the row says";
  CHECK_THROWS_MATCHES(gather(records(4, 2, RowLayout::kBag), {0}), DataError, Message(damaged));
  CHECK_THROWS_MATCHES(gather(records(100, 2, RowLayout::kBag), {0}), DataError, Message(damaged));
  CHECK_THROWS_MATCHES(gather(records(0, 1, RowLayout::kBag), {0}), DataError, Message(damaged));
  CHECK_THROWS_MATCHES(gather(records(0, 0, 5), {0}), DataError, Message(damaged));
  CHECK_THROWS_MATCHES(gather(records(0, 3, 5), {0}), DataError,
                       Message("row 0: damaged: the numbers of ids in its rows are wrong"));
}
