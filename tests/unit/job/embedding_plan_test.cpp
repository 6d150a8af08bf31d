#include "job/embedding_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "core/error.h"

using namespace trainer;
using spec::Sharding;

namespace {

TableConfig table(const std::string& name, int64_t rows, int64_t dim, Sharding sharding = Sharding::kAuto,
                  std::vector<int64_t> features = {0}) {
  TableConfig t;
  t.name = name;
  t.rows = rows;
  t.dim = dim;
  t.sharding = sharding;
  t.features = std::move(features);
  return t;
}

EmbeddingPlanOptions options(int64_t world_size, int64_t global_batch = 2048) {
  EmbeddingPlanOptions o;
  o.world_size = world_size;
  o.global_batch = global_batch;
  return o;
}

std::string error_of(const std::vector<TableConfig>& tables, const EmbeddingPlanOptions& o) {
  try {
    plan_embeddings(tables, o);
    return "";
  } catch (const SpecError& e) {
    return e.what();
  }
}

// Every weight of a table lies on exactly one shard, or all of them on every rank.
void check_covers(const TableConfig& t, const TablePlacement& placement, int64_t world_size) {
  if (placement.sharding == Sharding::kData) {
    REQUIRE(static_cast<int64_t>(placement.shards.size()) == world_size);
    for (const TableShard& s : placement.shards) CHECK((s.rows == t.rows && s.cols == t.dim));
    return;
  }
  int64_t weights = 0, last_rank = -1;
  for (size_t i = 0; i < placement.shards.size(); ++i) {
    const TableShard& a = placement.shards[i];
    CHECK(a.rank > last_rank);
    CHECK(a.rank < world_size);
    last_rank = a.rank;
    CHECK((a.rows > 0 && a.cols > 0 && a.row_begin >= 0 && a.col_begin >= 0));
    CHECK((a.row_begin + a.rows <= t.rows && a.col_begin + a.cols <= t.dim));
    CHECK(a.col_begin % 4 == 0);
    weights += a.rows * a.cols;
    for (size_t j = 0; j < i; ++j) {
      const TableShard& b = placement.shards[j];
      const bool apart = a.row_begin + a.rows <= b.row_begin || b.row_begin + b.rows <= a.row_begin ||
                         a.col_begin + a.cols <= b.col_begin || b.col_begin + b.cols <= a.col_begin;
      CHECK(apart);
    }
  }
  CHECK(weights == t.rows * t.dim);
}

}  // namespace

TEST_CASE("one rank holds every table whole, and nothing travels") {
  const std::vector<TableConfig> tables = {table("a", 10, 16), table("b", 1000, 7, Sharding::kColumn),
                                           table("c", 5, 4, Sharding::kRow),
                                           table("d", 3, 4, Sharding::kData)};
  const EmbeddingPlan plan = plan_embeddings(tables, options(1));
  for (size_t t = 0; t < tables.size(); ++t) {
    REQUIRE(plan.tables[t].shards.size() == 1);
    CHECK(plan.tables[t].shards[0] == TableShard{0, 0, tables[t].rows, 0, tables[t].dim});
  }
  REQUIRE(plan.ranks.size() == 1);
  CHECK(plan.ranks[0].traffic_bytes() == 0);
  CHECK(plan.ranks[0].weight_bytes == 4 * (160 + 7000 + 20 + 12));
  CHECK(plan.ranks[0].state_bytes == 4 * (10 + 1000 + 5 + 3));
  CHECK(plan.ranks[0].gradient_bytes == 0);
  CHECK(plan.ranks[0].lookups == 4 * 2048);
}

TEST_CASE("bytes and traffic of each strategy are their closed forms") {
  EmbeddingPlanOptions o = options(4, 1000);
  o.bag_lengths = {1, 3};
  o.weighted_bags = true;
  const auto load = [&](Sharding sharding, int64_t rank) {
    return plan_embeddings({table("t", 1'000'000, 32, sharding, {0, 1})}, o).ranks[static_cast<size_t>(rank)];
  };
  // Of all samples: two lengths each, four ids and four weights; two pooled rows.
  const double ids = 1000 * (2 * 4 + 4 * 8), pooled = 1000 * 2 * 32 * 4;

  const RankLoad owner = load(Sharding::kTable, 0), other = load(Sharding::kTable, 3);
  CHECK(owner.weight_bytes == 128'000'000);
  CHECK(owner.state_bytes == 4'000'000);
  CHECK(owner.lookups == 4000);
  CHECK(owner.id_bytes == Approx(ids * 3 / 4));
  CHECK(owner.pooled_bytes == Approx(pooled * 3 / 4));
  CHECK(other.weight_bytes == 0);
  CHECK(other.id_bytes == Approx(ids / 4));
  CHECK(other.backward_bytes == Approx(pooled / 4));

  // Each rank has a fourth of the ids, lengths of all bags, and pools all samples.
  const RankLoad block = load(Sharding::kRow, 1);
  CHECK(block.weight_bytes == 32'000'000);
  CHECK(block.lookups == 1000);
  CHECK(block.id_bytes == Approx(2 * 0.75 * 1000 * (2 * 4 + 4 * 8 / 4.0)));
  CHECK(block.pooled_bytes == Approx(2 * 0.75 * pooled));

  // Each rank has all ids and a fourth of the columns; and a state for every row.
  const RankLoad columns = load(Sharding::kColumn, 2);
  CHECK(columns.weight_bytes == 32'000'000);
  CHECK(columns.state_bytes == 4'000'000);
  CHECK(columns.id_bytes == Approx(2 * 0.75 * ids));
  CHECK(columns.pooled_bytes == Approx(2 * 0.75 * pooled / 4));

  const RankLoad replica = load(Sharding::kData, 2);
  CHECK(replica.weight_bytes == 128'000'000);
  CHECK(replica.gradient_bytes == 1'000'000 * 33 * 4);
  CHECK(replica.reduce_bytes == Approx(2 * 2 * 0.75 * 1e6 * 33 * 4));
  CHECK(replica.id_bytes + replica.pooled_bytes + replica.backward_bytes == 0);

  o.compression = spec::GradientCompression::kBf16;
  CHECK(load(Sharding::kTable, 0).pooled_bytes == Approx(pooled * 3 / 8));
}

TEST_CASE("the optimizer's state counts by its type, weights by theirs") {
  EmbeddingPlanOptions o = options(1);
  TableConfig t = table("t", 100, 8);
  t.dtype = spec::TableDtype::kBf16;
  const auto state = [&](spec::TableOptimizerType type) {
    o.optimizer = type;
    const RankLoad load = plan_embeddings({t}, o).ranks[0];
    CHECK(load.weight_bytes == 1600);
    return load.state_bytes;
  };
  CHECK(state(spec::TableOptimizerType::kRowwiseAdagrad) == 400);
  CHECK(state(spec::TableOptimizerType::kAdagrad) == 3200);
  CHECK(state(spec::TableOptimizerType::kAdam) == 6400);
  CHECK(state(spec::TableOptimizerType::kSgd) == 0);
}

TEST_CASE("blocks of rows are of ceil(rows / ranks); ranks beyond the rows hold none") {
  const auto rows = [](int64_t total, int64_t ranks) {
    const EmbeddingPlan plan = plan_embeddings({table("t", total, 4, Sharding::kRow)}, options(ranks));
    check_covers(table("t", total, 4), plan.tables[0], ranks);
    std::vector<int64_t> result;
    for (const TableShard& s : plan.tables[0].shards) result.push_back(s.rows);
    return result;
  };
  CHECK(rows(10, 4) == std::vector<int64_t>{3, 3, 3, 1});
  CHECK(rows(9, 4) == std::vector<int64_t>{3, 3, 3});
  CHECK(rows(2, 4) == std::vector<int64_t>{1, 1});
}

TEST_CASE("ranges of columns begin at multiples of four, at most one a rank") {
  const auto columns = [](int64_t dim, int64_t ranks) {
    const EmbeddingPlan plan = plan_embeddings({table("t", 10, dim, Sharding::kColumn)}, options(ranks));
    check_covers(table("t", 10, dim), plan.tables[0], ranks);
    std::vector<int64_t> result;
    for (const TableShard& s : plan.tables[0].shards) result.push_back(s.cols);
    std::sort(result.begin(), result.end());
    return result;
  };
  CHECK(columns(64, 4) == std::vector<int64_t>{16, 16, 16, 16});
  CHECK(columns(17, 4) == std::vector<int64_t>{4, 4, 4, 5});
  CHECK(columns(20, 2) == std::vector<int64_t>{8, 12});
  CHECK(columns(16, 8) == std::vector<int64_t>{4, 4, 4, 4});
}

TEST_CASE("auto replicates a table where its whole gradient is less traffic than the exchange") {
  // Pooled rows of 2048 samples at two ranks: (2 * 64 + 8) * 1024 bytes between them; the gradient 2 * 68 a row.
  const auto sharding = [](int64_t rows) {
    return plan_embeddings({table("a", rows, 16), table("b", rows, 16)}, options(2)).tables[0].sharding;
  };
  CHECK(sharding(1024) == Sharding::kData);
  CHECK(sharding(1025) == Sharding::kTable);
}

TEST_CASE("auto balances equal tables to one, and those of Zipf's sizes to within a tenth") {
  for (const int64_t ranks : {2, 4, 8}) {
    std::vector<TableConfig> equal, zipf;
    for (int64_t t = 0; t < 24; ++t) {
      equal.push_back(table(fmt::format("t{}", t), 1'000'000, 16, Sharding::kAuto, {t}));
      zipf.push_back(table(fmt::format("t{}", t), 40'000'000 / (t + 1), 64, Sharding::kAuto, {t}));
    }
    for (const auto& tables : {equal, zipf}) {
      const EmbeddingPlan plan = plan_embeddings(tables, options(ranks));
      int64_t most = 0, sum = 0;
      double most_traffic = 0, traffic = 0;
      for (const RankLoad& r : plan.ranks) {
        most = std::max(most, r.memory_bytes());
        sum += r.memory_bytes();
        most_traffic = std::max(most_traffic, r.traffic_bytes());
        traffic += r.traffic_bytes();
      }
      const double limit = &tables == &equal ? 1.0 : 1.1;
      CHECK(static_cast<double>(most * ranks) <= limit * static_cast<double>(sum) * (1 + 1e-9));
      CHECK(most_traffic * static_cast<double>(ranks) <= 1.5 * traffic);
      for (size_t t = 0; t < tables.size(); ++t) check_covers(tables[t], plan.tables[t], ranks);
    }
  }
}

TEST_CASE(
    "auto splits a table that no rank holds, narrow ones by rows, and keeps every rank within its memory") {
  EmbeddingPlanOptions o = options(4);
  o.memory_bytes = 2'200'000'000;
  std::vector<TableConfig> tables = {table("huge", 100'000'000, 16)};  // 6.8 GB
  for (int64_t t = 1; t < 9; ++t)
    tables.push_back(table(fmt::format("t{}", t), 1'000'000, 16, Sharding::kAuto, {t}));
  o.bag_lengths.assign(9, 1.0);
  const EmbeddingPlan plan = plan_embeddings(tables, o);
  CHECK(plan.tables[0].sharding == Sharding::kRow);
  for (const RankLoad& r : plan.ranks) CHECK(r.memory_bytes() <= o.memory_bytes);
  for (size_t t = 1; t < tables.size(); ++t) CHECK(plan.tables[t].sharding == Sharding::kTable);
}

TEST_CASE("auto splits a wide table that has most of the traffic by columns") {
  EmbeddingPlanOptions o = options(4);
  o.memory_bytes = 100'000'000'000;  // memory is not the matter
  const EmbeddingPlan plan = plan_embeddings({table("wide", 1'000'000, 256), table("b", 1'000'000, 16)}, o);
  CHECK(plan.tables[0].sharding == Sharding::kColumn);
  CHECK(plan.tables[0].shards.size() == 4);
}

TEST_CASE("the same arguments give the same plan") {
  std::vector<TableConfig> tables;
  for (int64_t t = 0; t < 30; ++t)
    tables.push_back(
        table(fmt::format("t{}", t), 1000 + t % 7 * 500'000, 8 + t % 3 * 28, Sharding::kAuto, {t}));
  const EmbeddingPlan a = plan_embeddings(tables, options(6)), b = plan_embeddings(tables, options(6));
  CHECK(a.tables == b.tables);
}

TEST_CASE("tables that cannot be split as they say, or don't fit, are told with what is needed and there") {
  CHECK(
      error_of({table("t", 10, 7, Sharding::kColumn)}, options(2)) ==
      "table 't': sharding 'column' of 7 columns; each of two ranks needs at least 4: take 'table' or 'row'");
  CHECK(error_of({table("t", 0, 4)}, options(1)) ==
        "table 't': 0 rows of 4 columns; expected at least 1 of each");
  EmbeddingPlanOptions o = options(2);
  o.memory_bytes = 1 << 20;
  CHECK(error_of({table("a", 32768, 16, Sharding::kTable), table("b", 1024, 16, Sharding::kTable)}, o) ==
        "the embedding tables need 2.1 MiB on rank 0 (weights 2.0 MiB, their optimizer 128.0 KiB, dense "
        "gradients 0 B); "
        "1.0 MiB are there for them (parallel.embedding_memory_gb, else what is free). The largest there is "
        "'a', "
        "2.1 MiB of it as sharding 'table' places it; all ranks together need 2.2 MiB: take more ranks, "
        "fewer rows, or a "
        "table_dtype of 2 bytes");
  o.memory_bytes = 1400 << 10;
  CHECK(error_of({table("a", 32768, 16, Sharding::kTable), table("b", 1024, 16, Sharding::kTable)}, o)
            .ends_with("let parallel.embedding and the tables' sharding be auto, or row"));
  CHECK(error_of({table("a", 32768, 16), table("b", 1024, 16, Sharding::kTable)}, o).empty());
}

TEST_CASE("a plan of many tables is told in groups of equal ones, and of many ranks as a range") {
  std::vector<TableConfig> tables;
  for (int64_t t = 0; t < 26; ++t)
    tables.push_back(table(fmt::format("t{}", t), 1'000'000, 16, Sharding::kTable, {t}));
  tables.push_back(table("small", 100, 16, Sharding::kData, {26}));
  const std::string text = describe_plan(tables, plan_embeddings(tables, options(2)), options(2));
  INFO(text);
  CHECK(std::count(text.begin(), text.end(), '\n') == 6);
  CHECK(text.find("    26 tables table  on 1 rank        1,000,000 rows x  16 fp32, 61.0 MiB (t0, t1, t2, "
                  "t3, ...)\n") != std::string::npos);
  CHECK(text.find("     1 table  data   on all ranks           100 rows x  16 fp32, 6.2 KiB (small)\n") !=
        std::string::npos);
  CHECK(text.find("  rank 1               14  793.5 MiB   49.6 MiB     27,648") != std::string::npos);
  CHECK(text.ends_with("those of a step of 2,048 samples\n"));

  const std::string many = describe_plan(tables, plan_embeddings(tables, options(16)), options(16));
  CHECK(std::count(many.begin(), many.end(), '\n') == 6);
  CHECK(many.find("  least full            2") != std::string::npos);
  CHECK(many.find("  fullest               3") != std::string::npos);
}
