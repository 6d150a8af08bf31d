#include "records/feature_map.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "core/error.h"
#include "fixture.h"
#include "spec/fault.h"

using Catch::Matchers::Message;
using trainer::DataError;
using trainer::SpecError;
using trainer::records::FeatureMap;
using trainer::records::RecordSets;
using trainer::records::test::gather_all;
using trainer::records::test::Gathered;
using trainer::records::test::TestJob;
using namespace trainer::spec;

namespace {

using Bag = std::vector<int64_t>;

std::vector<std::string> ids_of(const FeatureMap& map, int64_t table) {
  std::vector<std::string> ids;
  for (int64_t row = 1; row < map.vocabulary(table)->rows(); ++row)
    ids.emplace_back(map.vocabulary(table)->id(row));
  return ids;
}

std::string sparse_csv(const std::vector<std::string>& ids) {
  std::string text = "click,id\n";
  for (const std::string& id : ids) text += fmt::format("0,{}\n", id);
  return text;
}

TestJob job_of_ids(const TemporaryDirectory& dir, const std::vector<std::string>& ids, IdMapping mapping) {
  TestJob job(dir.write("ids.csv", sparse_csv(ids)));
  job.data.features.sparse = {"id"};
  job.data.features.ids = mapping;
  return job;
}

}  // namespace

TEST_CASE("a vocabulary has the frequent ids, by falling count and then by their bytes") {
  const TemporaryDirectory dir;
  TestJob job = job_of_ids(dir, {"b", "a", "c", "c", "", "d", "b", "c", "e", "e"}, IdMapping::kVocabulary);
  SECTION("all of them") {
    const RecordSets sets = job.open();
    CHECK(ids_of(*sets.map, 0) == std::vector<std::string>{"c", "b", "e", "a", "d"});
    CHECK(sets.map->info().tables[0].rows == 6);
    CHECK(gather_all(*sets.train).ids == Bag{2, 4, 1, 1, 0, 5, 2, 1, 3, 3});
  }
  SECTION("rare ones share row 0 with missing ones") {
    job.data.features.min_count = 2;
    CHECK(gather_all(*job.open().train).ids == Bag{2, 0, 1, 1, 0, 0, 2, 1, 3, 3});
  }
  SECTION("no more than the table has room for") {
    job.model.rows = 3;
    const RecordSets sets = job.open();
    CHECK(sets.map->info().tables[0].rows == 3);
    CHECK(gather_all(*sets.train).ids == Bag{2, 0, 1, 1, 0, 0, 2, 1, 0, 0});
  }
  SECTION("a table with room for more is as large as the vocabulary") {
    job.model.rows = 100;
    CHECK(job.open().map->info().tables[0].rows == 6);
  }
  SECTION("a table of one row has none") {
    job.model.rows = 1;
    CHECK(gather_all(*job.open().train).ids == Bag(10, 0));
  }
}

TEST_CASE("a vocabulary is fitted on training data alone") {
  const TemporaryDirectory dir;
  TestJob job = job_of_ids(dir, {"a", "b"}, IdMapping::kVocabulary);
  job.data.validation.path = dir.write("v.csv", sparse_csv({"b", "c", "a"}));
  const RecordSets sets = job.open();
  CHECK(gather_all(*sets.validation).ids == Bag{2, 0, 1});
}

TEST_CASE("features of one table share its vocabulary") {
  const TemporaryDirectory dir;
  TestJob job(dir.write("a.csv", "click,first,second,other\n0,x,y,x\n1,y,y,z\n"));
  job.data.features.sparse = {"first", "second", "other"};
  job.model.tables["items"].features = {"first", "second"};
  const RecordSets sets = job.open();
  REQUIRE(sets.map->info().tables.size() == 2);
  CHECK(sets.map->info().tables[0].name == "items");
  CHECK(ids_of(*sets.map, 0) == std::vector<std::string>{"y", "x"});
  CHECK(ids_of(*sets.map, 1) == std::vector<std::string>{"x", "z"});
  CHECK(gather_all(*sets.train).ids == Bag{2, 1, 1, 1, 1, 2});
}

TEST_CASE("modulo: digits are decimal, other ids hexadecimal, of any 64 bits") {
  const TemporaryDirectory dir;
  TestJob job = job_of_ids(dir, {"12", "05db9164", "0x1F", "9223372036854775807", "18446744073709551615", ""},
                           IdMapping::kModulo);
  job.model.rows = 1000;
  CHECK(gather_all(*job.open().train).ids == Bag{12, 0x05db9164 % 1000, 31, 9223372036854775807LL % 1000,
                                                 int64_t(18446744073709551615ULL % 1000), 0});
}

TEST_CASE("ids of Criteo's own files are hexadecimal, digits alone too") {
  const TemporaryDirectory dir;
  std::string row = "1";
  for (int i = 0; i < 13; ++i) row += fmt::format("\t{}", i);
  for (int i = 0; i < 26; ++i) row += "\t00000012";
  TestJob job(dir.write("train.txt", row + "\n"));
  job.data.features = {};
  job.data.features.ids = IdMapping::kModulo;
  job.model.rows = 1000;
  const RecordSets sets = job.open();
  CHECK(sets.map->info().dense.size() == 13);
  CHECK(sets.map->info().sparse.size() == 26);
  CHECK(gather_all(*sets.train).ids == Bag(26, 0x12));
  CHECK(gather_all(*sets.train).dense[12] == 12);
}

TEST_CASE("identity: the number is the row") {
  const TemporaryDirectory dir;
  TestJob job = job_of_ids(dir, {"3", "0", "999", ""}, IdMapping::kIdentity);
  job.model.rows = 1000;
  CHECK(gather_all(*job.open().train).ids == Bag{3, 0, 999, 0});
}

TEST_CASE("ids out of range are errors that say feature, value, table, rows and place") {
  const TemporaryDirectory dir;
  const auto error = [&](IdMapping mapping, const std::string& id) {
    TestJob job = job_of_ids(dir, {"1", id}, mapping);
    job.model.rows = 1000;
    try {
      job.open();
    } catch (const DataError& e) {
      return std::string(e.what()).substr(dir.path.string().size());
    }
    return std::string();
  };
  const std::string wrap =
      "\nhint: data.features.out_of_range: wrap takes ids modulo the rows, ignore leaves them out";
  const std::string form =
      "\nhint: data.features.ids: murmur or vocabulary take ids of any form; out_of_range: ignore leaves "
      "such ids out";
  CHECK(error(IdMapping::kIdentity, "1000") ==
        "/ids.csv:3: id: got id 1000; expected a row, 0 to 999, of table id" + wrap);
  CHECK(error(IdMapping::kIdentity, "9223372036854775807") ==
        "/ids.csv:3: id: got id 9223372036854775807; expected a row, 0 to 999, of table id" + wrap);
  CHECK(error(IdMapping::kIdentity, "-1") ==
        "/ids.csv:3: id: got id -1; expected a row, 0 to 999, of table id" + wrap);
  CHECK(error(IdMapping::kIdentity, "x") ==
        "/ids.csv:3: id: got id \"x\"; expected a row, 0 to 999, of table id" + form);
  CHECK(error(IdMapping::kModulo, "-1") ==
        "/ids.csv:3: id: got id -1; expected a number of 0 or more, modulo the 1000 rows of table id" + wrap);
  CHECK(error(IdMapping::kModulo, "zebra") ==
        "/ids.csv:3: id: got id \"zebra\"; expected a decimal or hexadecimal number, modulo the 1000 rows of "
        "table id" +
            form);
  CHECK(error(IdMapping::kModulo, "18446744073709551616") ==
        "/ids.csv:3: id: got id 18446744073709551616; expected a number of at most 64 bits, modulo the 1000 "
        "rows of table id" +
            form);
}

TEST_CASE("ids out of range are wrapped or left out where the job says so") {
  const TemporaryDirectory dir;
  TestJob job = job_of_ids(dir, {"7", "12", "-1", "-20", "9223372036854775807"}, IdMapping::kIdentity);
  job.model.rows = 10;
  job.data.features.out_of_range = OutOfRange::kWrap;
  CHECK(gather_all(*job.open().train).ids == Bag{7, 2, 9, 0, 7});
  job.data.features.out_of_range = OutOfRange::kIgnore;
  const Gathered batch = gather_all(*job.open().train);
  CHECK(batch.ids == Bag{7});
  CHECK(batch.offsets == Bag{0, 1, 1, 1, 1, 1});
  // There is nothing to wrap in what is no number.
  job = job_of_ids(dir, {"x"}, IdMapping::kIdentity);
  job.model.rows = 10;
  job.data.features.out_of_range = OutOfRange::kWrap;
  CHECK_THROWS_AS(job.open(), DataError);
  job.data.features.out_of_range = OutOfRange::kIgnore;
  CHECK(gather_all(*job.open().train).ids == Bag{});
}

TEST_CASE("dense features: what is missing is 0; log is ln(1 + x) of what is positive") {
  const TemporaryDirectory dir;
  TestJob job(dir.write("a.csv", "click,x\n0,\n0,1.5\n0,-3\n0,+2\n0, 4e2 \n"));
  job.data.features.dense = {"x"};
  CHECK(gather_all(*job.open().train).dense == std::vector<float>{0, 1.5, -3, 2, 400});
  job.data.features.dense_transform = DenseTransform::kLog;
  CHECK(gather_all(*job.open().train).dense == std::vector<float>{0, std::log(2.5F), 0,
                                                                  static_cast<float>(std::log(3.0)),
                                                                  static_cast<float>(std::log(401.0))});
}

TEST_CASE("dense features that are no finite numbers are refused") {
  const TemporaryDirectory dir;
  for (const std::string bad : {"nan", "inf", "-inf", "1e300", "x", "1 2", " "}) {
    TestJob job(dir.write("a.csv", "click,x\n0,1\n0," + bad + "\n"));
    job.data.features.dense = {"x"};
    CHECK_THROWS_MATCHES(job.open(), DataError,
                         Message(dir.path.string() + "/a.csv:3: x: got " + shown(bad) +
                                 "; expected a finite number, or nothing for 0"));
  }
}

TEST_CASE("labels are 0 and 1, or at least a threshold") {
  const TemporaryDirectory dir;
  TestJob job(dir.write("a.csv", "click,x\n0,1\n1.0,1\n4,1\n"));
  job.data.features.dense = {"x"};
  const std::string where = dir.path.string() + "/a.csv";
  CHECK_THROWS_MATCHES(
      job.open(), DataError,
      Message(
          where +
          ":4: click: got 4; expected 0 or 1\nhint: data.features.label_threshold makes clicks of ratings: "
          "those of at least it"));
  job.data.features.label_threshold = 4;
  CHECK(gather_all(*job.open().train).labels == std::vector<float>{0, 0, 1});
  dir.write("a.csv", "click,x\n0,1\nyes,1\n");
  CHECK_THROWS_MATCHES(job.open(), DataError, Message(where + ":3: click: got \"yes\"; expected a number"));
  job.data.features.label_threshold.reset();
  CHECK_THROWS_MATCHES(job.open(), DataError, Message(where + ":3: click: got \"yes\"; expected 0 or 1"));
  dir.write("a.csv", "click,x\n,1\n");
  CHECK_THROWS_MATCHES(job.open(), DataError, Message(where + ":2: click: got \"\"; expected 0 or 1"));
}

TEST_CASE("bags: ids between separators, with weights behind theirs") {
  const TemporaryDirectory dir;
  TestJob job(
      dir.write("a.csv", "click,genres,user\n1,Drama|Comedy|Drama,u1\n0,,u2\n0,Comedy,u1\n1,|Drama||,\n"));
  job.data.features.sparse = {"genres", "user"};
  job.data.features.separator = "|";
  const RecordSets sets = job.open();
  CHECK(sets.map->info().multi_hot);
  CHECK(sets.train->num_ids(0) == 4);
  const Gathered batch = gather_all(*sets.train);
  CHECK(batch.bag(0, 0) == Bag{1, 2, 1});
  CHECK(batch.bag(0, 1).empty());
  CHECK(batch.bag(0, 2) == Bag{2});
  CHECK(batch.bag(0, 3) == Bag{1});
  CHECK(batch.bag(1, 0) == Bag{1});
  CHECK(batch.bag(1, 3).empty());

  dir.write("a.csv", "click,ids\n1,7:0.5|9:-2|8\n0,3\n1,4:2\n0,\n");
  job.data.features.sparse = {"ids"};
  job.data.features.weight_separator = ":";
  job.data.features.ids = IdMapping::kIdentity;
  job.model.rows = 10;
  const Gathered weighted = gather_all(*job.open().train);
  CHECK(weighted.ids == Bag{7, 9, 8, 3, 4});
  CHECK(weighted.offsets == Bag{0, 3, 4, 5, 5});
  CHECK(weighted.weights == std::vector<float>{0.5, -2, 1, 1, 2});
  dir.write("a.csv", "click,ids\n1,7:nan\n");
  CHECK_THROWS_MATCHES(
      job.open(), DataError,
      Message(dir.path.string() + "/a.csv:2: ids: got weight \"nan\" of id 7; expected a finite number"));
}

TEST_CASE("bags of 10,000 ids") {
  const TemporaryDirectory dir;
  std::string field;
  Bag expected;
  for (int64_t i = 0; i < 10000; ++i) {
    field += fmt::format("{}{}", i == 0 ? "" : "|", i * 7 % 1000);
    expected.push_back(i * 7 % 1000);
  }
  TestJob job(dir.write("a.csv", "click,ids\n0,5\n1," + field + "\n0,6\n"));
  job.data.features.sparse = {"ids"};
  job.data.features.separator = "|";
  job.data.features.ids = IdMapping::kIdentity;
  job.model.rows = 1000;
  const RecordSets sets = job.open();
  const Gathered batch = trainer::records::test::gather(*sets.train, {2, 1, 0});
  CHECK(batch.bag(0, 0) == Bag{6});
  CHECK(batch.bag(0, 1) == expected);
  CHECK(batch.bag(0, 2) == Bag{5});
}

TEST_CASE("patterns stand for columns in the file's order; a name wins over a pattern") {
  const TemporaryDirectory dir;
  TestJob job(dir.write("a.csv", "C2,I1,click,C1,I2,age\na,1,0,b,2,30\n"));
  job.data.features.dense = {"age", "I*"};
  job.data.features.sparse = {"*"};
  const FeatureMap& map = *job.open().map;
  CHECK(map.features().dense == std::vector<std::string>{"age", "I1", "I2"});
  CHECK(map.features().sparse == std::vector<std::string>{"C2", "C1"});
}

TEST_CASE("columns that are not there, or in two places, are refused") {
  const TemporaryDirectory dir;
  const std::string path = dir.write("a.csv", "click,user,x\n0,u,1\n");
  TestJob job(path);
  CHECK_THROWS_MATCHES(
      job.open(), SpecError,
      Message("data.features: got neither dense nor sparse; expected the columns that are features\nhint: " +
              path + " has click, user, x"));
  job.data.features.sparse = {"usr"};
  CHECK_THROWS_MATCHES(
      job.open(), DataError,
      Message(path + ": no column \"usr\" (data.features.sparse); columns: click, user, x; did you mean "
                     "user?"));
  job.data.features.sparse = {"C*"};
  CHECK_THROWS_MATCHES(
      job.open(), SpecError,
      Message("data.features.sparse: no column matches \"C*\" in " + path + "; columns: click, user, x"));
  job.data.features.sparse = {"user", "user"};
  CHECK_THROWS_MATCHES(job.open(), SpecError, Message("data.features.sparse: \"user\" is there twice"));
  job.data.features.sparse = {"user"};
  job.data.features.dense = {"user"};
  CHECK_THROWS_MATCHES(
      job.open(), SpecError,
      Message("data.features.sparse: \"user\" is in data.features.dense too; expected one of them"));
  job.data.features.dense = {"click"};
  CHECK_THROWS_MATCHES(
      job.open(), SpecError,
      Message("data.features.label: \"click\" is a feature too; expected a column of its own"));
  job.data.features.dense = {"x"};
  job.data.features.group = "session";
  CHECK_THROWS_MATCHES(
      job.open(), DataError,
      Message(path + ": no column \"session\" (data.features.group); columns: click, user, x"));
  job.data.features.group.clear();
  job.data.features.label = "clik";
  CHECK_THROWS_MATCHES(
      job.open(), DataError,
      Message(path + ": no column \"clik\" (data.features.label); columns: click, user, x; did you mean "
                     "click?"));
  job.data.features.label.clear();
  CHECK_THROWS_MATCHES(job.open(), SpecError,
                       Message("data.features.label: got none; expected the column of clicks\nhint: " + path +
                               " has click, user, x"));
  dir.write("a.csv", "click,user,user\n0,u,1\n");
  job.data.features = {};
  job.data.features.label = "click";
  job.data.features.sparse = {"user"};
  CHECK_THROWS_MATCHES(
      job.open(), DataError,
      Message(path + ": two columns are named \"user\" (data.features.sparse); expected one"));
}

TEST_CASE("tables that don't fit the features are refused") {
  const TemporaryDirectory dir;
  TestJob job(dir.write("a.csv", "click,a,b\n0,1,2\n"));
  job.data.features.sparse = {"a", "b"};
  job.model.tables["t"].features = {"a", "c"};
  CHECK_THROWS_MATCHES(
      job.open(), SpecError,
      Message("model.recommender.tables.t: got feature \"c\"; expected one of a, b (data.features.sparse)"));
  job.model.tables["t"].features = {"a", "b"};
  job.model.tables["u"].features = {"b"};
  CHECK_THROWS_MATCHES(
      job.open(), SpecError,
      Message("model.recommender.tables.u.features: \"b\" is in table t too; expected one table a feature"));
  job.model.tables.clear();
  job.model.tables["b"].features = {"a"};
  CHECK_THROWS_MATCHES(
      job.open(), SpecError,
      Message("model.recommender.tables.b: is not of the feature of that name, which has no table; "
              "expected another name"));
  job.model.tables.clear();
  job.model.tables["a"].rows = 0;
  CHECK_THROWS_MATCHES(job.open(), SpecError,
                       Message("model.recommender.tables.a.rows: got 0; expected 1 or more"));
  job.model.tables.clear();
  job.data.features.ids = IdMapping::kMurmur;
  CHECK_THROWS_MATCHES(
      job.open(), SpecError,
      Message("model.recommender.tables.a.rows: got none, and data.features.ids is murmur; expected how many "
              "rows the table has\nhint: model.recommender.rows says it of all tables"));
}

TEST_CASE("threads change nothing, and neither does saving and loading the map") {
  const TemporaryDirectory dir;
  std::string text = "click,x,a,b\n";
  for (int i = 0; i < 60000; ++i) {
    text += fmt::format("{:d},{},id{},\"q\"\"{}\n\\,\"\n", i % 3 == 0, i, i % 977 * (i % 5), i % 131);
  }
  for (const bool bags : {false, true}) {
    TestJob job(dir.write("a.csv", text));
    REQUIRE(text.size() > (size_t{1} << 20));  // several parts
    job.data.features.dense = {"x"};
    job.data.features.sparse = {"a", "b"};
    job.data.features.group = "a";
    job.data.features.min_count = 50;
    if (bags) job.data.features.separator = "\n";
    const RecordSets one = job.open(1), two = job.open(2);
    CHECK(one.map->fingerprint() == two.map->fingerprint());
    CHECK(one.train->fingerprint() == two.train->fingerprint());
    const Gathered expected = gather_all(*one.train);
    CHECK(gather_all(*two.train) == expected);
    CHECK(one.train->where(59999) == job.data.train.path + ":120000");

    std::filesystem::create_directories(dir.path / "map");
    one.map->save(dir.path / "map");
    const FeatureMap loaded = FeatureMap::load(dir.path / "map");
    CHECK(loaded.fingerprint() == one.map->fingerprint());
    const auto again = trainer::records::open_records(job.data.train, loaded, true, 2);
    CHECK(gather_all(*again) == expected);
    CHECK(again->fingerprint() == one.train->fingerprint());
  }
}

TEST_CASE("a map whose files were changed is refused") {
  const TemporaryDirectory dir;
  TestJob job = job_of_ids(dir, {"a", "b"}, IdMapping::kVocabulary);
  job.open().map->save(dir.path);
  CHECK(FeatureMap::load(dir.path).info().tables[0].rows == 3);
  const std::string vocabulary = (dir.path / "vocabulary_000.txt").string();
  const auto error = [&] {
    try {
      FeatureMap::load(dir.path);
    } catch (const DataError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  dir.write("vocabulary_000.txt", "a\n");
  CHECK(error() == vocabulary + ": has 1 ids, expected 2, as features.json says");
  dir.write("vocabulary_000.txt", "a\na\n");
  CHECK(error() == vocabulary + ":2: this id is here twice");
  dir.write("vocabulary_000.txt", "b\na\n");
  CHECK_THAT(error(), Catch::Contains("features.json: it or a vocabulary beside it is not what was saved"));
  dir.write("features.json", "{}");
  CHECK(error() == (dir.path / "features.json").string() + ": is not the features of records");
  dir.write("features.json", R"({"format": "trainer features", "version": 2})");
  CHECK(error() == (dir.path / "features.json").string() + ": version 2, expected 1");
  dir.write("features.json", R"({"format": "trainer features", "version": 1})");
  CHECK_THAT(error(), Catch::Contains("features.json: is not as this program writes it: "));
}

TEST_CASE("files without labels are read where labels are not required") {
  const TemporaryDirectory dir;
  TestJob job = job_of_ids(dir, {"a", "b"}, IdMapping::kVocabulary);
  const RecordSets sets = job.open();
  trainer::spec::DataSource source;
  source.path = dir.write("new.csv", "id\nb\n");
  const auto records = trainer::records::open_records(source, *sets.map, false, 1);
  CHECK_FALSE(records->layout().labels);
  CHECK(gather_all(*records).ids == Bag{2});
  CHECK_THROWS_MATCHES(trainer::records::open_records(source, *sets.map, true, 1), DataError,
                       Message(source.path + ": no column \"click\" (data.features.label); columns: id"));
}
