#include "data/click_records.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "records/open.h"
#include "temporary_directory.h"

using Catch::Matchers::Message;
using trainer::DataError;
using trainer::data::Batch;
using trainer::data::ClickRecords;
namespace records = trainer::records;

namespace {

template <class T>
std::vector<T> values(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<T>(), tensor.const_data_ptr<T>() + tensor.numel()};
}

records::RecordSets open(const TemporaryDirectory& dir) {
  trainer::spec::Data data;
  trainer::spec::Recommender model;
  data.train.path =
      dir.write("a.csv", "click,x,y,item,tags,user\n1,1,2,a,p|q:0.5,u\n0,3,4,b,,v\n1,5,6,a,q,u\n");
  data.features.label = "click";
  data.features.dense = {"x", "y"};
  data.features.sparse = {"item", "tags"};
  data.features.group = "user";
  data.features.separator = "|";
  data.features.weight_separator = ":";
  return records::open_records(data, model, 1);
}

}  // namespace

TEST_CASE("a batch of click records has its bags by feature, in the order of the samples") {
  const TemporaryDirectory dir;
  const records::RecordSets sets = open(dir);
  const ClickRecords dataset(sets.train, sets.map->info());
  REQUIRE(dataset.size() == 3);
  CHECK(dataset.cost(0) == 3 + 2 + 1);
  CHECK(dataset.lengths(2) == std::vector<int32_t>{6, 4, 5});
  CHECK(dataset.targets(0, 1, 2) == 1);
  CHECK(dataset.where(2) == dir.path.string() + "/a.csv:4");
  const Batch batch = dataset.batch({2, 1, 0}, 7, 0, false);
  CHECK(batch.samples == std::vector<int64_t>{2, 1, 0});
  CHECK(values<float>(batch.labels) == std::vector<float>{1, 0, 1});
  CHECK(batch.records.dense.sizes() == at::IntArrayRef({3, 2}));
  CHECK(values<float>(batch.records.dense) == std::vector<float>{5, 6, 3, 4, 1, 2});
  CHECK(values<int64_t>(batch.records.ids) == std::vector<int64_t>{1, 2, 1, 1, 2, 1});
  CHECK(values<int64_t>(batch.records.offsets) == std::vector<int64_t>{0, 1, 2, 3, 4, 4, 6});
  CHECK(values<float>(batch.records.weights) == std::vector<float>{1, 1, 1, 1, 1, 0.5});
  const auto groups = values<int64_t>(batch.records.groups);
  CHECK(groups[0] == groups[2]);
  CHECK(groups[0] != groups[1]);
}

TEST_CASE("an empty batch of click records has shapes") {
  const TemporaryDirectory dir;
  const records::RecordSets sets = open(dir);
  const Batch batch = ClickRecords(sets.train, sets.map->info()).batch({}, 7, 0, false);
  CHECK(batch.num_samples() == 0);
  CHECK(batch.labels.sizes() == at::IntArrayRef({0}));
  CHECK(batch.records.dense.sizes() == at::IntArrayRef({0, 2}));
  CHECK(batch.records.ids.sizes() == at::IntArrayRef({0}));
  CHECK(values<int64_t>(batch.records.offsets) == std::vector<int64_t>{0});
}

TEST_CASE("ids that are no rows of their tables are found in a batch") {
  const TemporaryDirectory dir;
  const records::RecordSets sets = open(dir);
  records::FeatureInfo info = sets.map->info();
  info.tables[1].rows = 2;  // as if the file were damaged
  const ClickRecords dataset(sets.train, info);
  CHECK_NOTHROW(dataset.batch({1, 2}, 7, 0, false));
  CHECK_THROWS_MATCHES(
      dataset.batch({1, 0}, 7, 0, false), DataError,
      Message(dir.path.string() + "/a.csv:2: tags: got row 2 of table tags, which has 2 rows; the "
                                  "file is damaged"));
}
