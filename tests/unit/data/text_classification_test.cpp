#include "data/text_classification.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "core/mix64.h"
#include "fixture.h"

using Catch::Matchers::Message;
using trainer::DataError;
using trainer::data::Batch;
using trainer::data::LabelReader;
using trainer::data::TextClassification;
using trainer::data::test::encode_characters;
using trainer::spec::DataSource;
using trainer::spec::ProblemType;

namespace {

DataSource pairs(const std::string& path) {
  DataSource source;
  source.path = path;
  source.text = "a";
  source.text_pair = "b";
  source.label = "y";
  return source;
}

TextClassification open(const std::string& path, ProblemType problem = ProblemType::kSingleLabel,
                        int64_t labels = 2) {
  return TextClassification(pairs(path), LabelReader(problem, labels, {}), encode_characters);
}

std::vector<int64_t> values(const at::Tensor& tensor) {
  const at::Tensor longs = tensor.to(at::kLong).contiguous();
  return {longs.data_ptr<int64_t>(), longs.data_ptr<int64_t>() + longs.numel()};
}

using Longs = std::vector<int64_t>;

}  // namespace

TEST_CASE("a batch is its samples end to end") {
  const TemporaryDirectory dir;
  const TextClassification data = open(dir.write("x.tsv", "y\ta\tb\n0\tAB\tC\n1\t\tD\n1\tE\t\n"));
  REQUIRE(data.size() == 3);
  for (int time = 0; time < 2; ++time) {  // the second from kept ids
    const Batch batch = data.batch({2, 0}, 42, 3, false);
    CHECK(values(batch.input_ids) == Longs{1, 'E', 2, 2, 1, 'A', 'B', 2, 'C', 2});
    CHECK(values(batch.token_type_ids) == Longs{0, 0, 0, 1, 0, 0, 0, 0, 1, 1});
    CHECK(values(batch.position_ids) == Longs{0, 1, 2, 3, 0, 1, 2, 3, 4, 5});
    CHECK(values(batch.cu_seqlens) == Longs{0, 4, 10});
    CHECK(batch.cu_seqlens.scalar_type() == at::kInt);
    CHECK(values(batch.labels) == Longs{1, 0});
    CHECK(batch.labels.scalar_type() == at::kLong);
    CHECK(batch.seqlens == std::vector<int32_t>{4, 6});
    CHECK(batch.samples == Longs{2, 0});
    CHECK(batch.num_tokens() == 10);
  }
  CHECK(data.lengths(2) == std::vector<int32_t>{6, 4, 4});
  CHECK(data.cost(0) == 3);
}

TEST_CASE("where labels are not needed, a file may lack their column, but a bad label is one still") {
  const TemporaryDirectory dir;
  const auto open_unlabelled = [&](const std::string& path) {
    return TextClassification(pairs(path), LabelReader(ProblemType::kSingleLabel, 2, {}), encode_characters,
                              /*needs_labels=*/false);
  };
  CHECK_FALSE(open_unlabelled(dir.write("x.tsv", "a\tb\nA\tB\n")).batch({0}, 42, 0, false).labels.defined());
  CHECK(values(open_unlabelled(dir.write("y.tsv", "a\tb\ty\nA\tB\t1\n")).batch({0}, 42, 0, false).labels) ==
        Longs{1});
  CHECK_THROWS_AS(open_unlabelled(dir.write("z.tsv", "a\tb\ty\nA\tB\t2\n")), DataError);
  CHECK_THROWS_AS(open(dir.write("w.tsv", "a\tb\nA\tB\n")), DataError);
}

TEST_CASE("an empty batch has tensors of no elements") {
  const TemporaryDirectory dir;
  const Batch batch = open(dir.write("x.tsv", "y\ta\tb\n0\tA\tB\n")).batch({}, 42, 0, false);
  CHECK(batch.num_samples() == 0);
  CHECK(batch.num_tokens() == 0);
  CHECK(values(batch.cu_seqlens) == Longs{0});
  CHECK(batch.labels.sizes() == at::IntArrayRef{0});
}

TEST_CASE("row keys are of seed, epoch, sample and position, not of the batch") {
  const TemporaryDirectory dir;
  const TextClassification data = open(dir.write("x.tsv", "y\ta\tb\n0\tAB\tC\n1\tD\tE\n"));
  const Longs alone = values(data.batch({1}, 42, 3, false).row_keys);
  const Longs both = values(data.batch({0, 1}, 42, 3, false).row_keys);
  CHECK(Longs(both.begin() + 6, both.end()) == alone);
  using trainer::mix64;
  CHECK(static_cast<uint64_t>(alone[2]) == mix64(mix64(mix64(mix64(42) + 3) + 1) + 2));
  CHECK(values(data.batch({1}, 42, 4, false).row_keys) != alone);
  CHECK(values(data.batch({1}, 43, 3, false).row_keys) != alone);
}

TEST_CASE("the hash is splitmix64's") {
  // The first outputs of Vigna's splitmix64.c from state 0 (state advances by the golden ratio).
  CHECK(trainer::mix64(0) == 0xe220a8397b1dcdafULL);
  CHECK(trainer::mix64(0x9e3779b97f4a7c15ULL) == 0x6e789e6aa1b965f4ULL);
}

TEST_CASE("labels have the form of their problem") {
  const TemporaryDirectory dir;
  const std::string multi = dir.write("m.tsv", "y\ta\tb\n0,2\tA\tB\n\tA\tB\n");
  const at::Tensor many = open(multi, ProblemType::kMultiLabel, 3).batch({0, 1}, 0, 0, false).labels;
  CHECK(many.sizes() == at::IntArrayRef{2, 3});
  CHECK(many.scalar_type() == at::kFloat);
  CHECK(values(many) == Longs{1, 0, 1, 0, 0, 0});
  const TextClassification scores =
      open(dir.write("r.tsv", "y\ta\tb\n0.5\tA\tB\n-3\tA\tB\n"), ProblemType::kRegression, 1);
  const at::Tensor numbers = scores.batch({0, 1}, 0, 0, false).labels;
  CHECK(numbers.sizes() == at::IntArrayRef{2});
  CHECK(numbers.data_ptr<float>()[0] == 0.5F);
  CHECK(numbers.data_ptr<float>()[1] == -3.0F);
}

TEST_CASE("one text without a pair, and no label") {
  const TemporaryDirectory dir;
  DataSource source = pairs(dir.write("x.csv", "a,b\n\"x,\"\"y\",1\n"));
  source.text_pair = source.label = "";
  const TextClassification data(source, LabelReader(ProblemType::kSingleLabel, 2, {}), encode_characters);
  const Batch batch = data.batch({0}, 0, 0, false);
  CHECK(values(batch.input_ids) == Longs{1, 'x', ',', '"', 'y', 2});
  CHECK_FALSE(batch.labels.defined());
}

TEST_CASE("a bad label is found at once, with file, line and column") {
  const TemporaryDirectory dir;
  const std::string path = dir.write("x.tsv", "y\ta\tb\n0\tA\tB\n2\tA\tB\n");
  CHECK_THROWS_MATCHES(
      open(path), DataError,
      Message(path + ":3: y: got \"2\"; expected an integer from 0 to 1 (model.num_labels is 2)"));
  dir.write("x.tsv", "y\ta\tb\n");
  CHECK_THROWS_MATCHES(open(path), DataError, Message(path + ": has no rows"));
}

TEST_CASE("the fingerprint is of the contents") {
  const TemporaryDirectory dir;
  const uint64_t one = open(dir.write("x.tsv", "y\ta\tb\n0\tAB\tC\n")).fingerprint();
  CHECK(open(dir.write("z.tsv", "y\ta\tb\n0\tAB\tC\n")).fingerprint() == one);
  CHECK(open(dir.write("x.tsv", "y\ta\tb\n0\tAB\tD\n")).fingerprint() != one);
  CHECK(open(dir.write("x.tsv", "y\ta\tb\n0\tAB\tC")).fingerprint() != one);
}

TEST_CASE("an exception of the tokenizer reaches the caller of lengths") {
  const TemporaryDirectory dir;
  const TextClassification data(
      pairs(dir.write("x.tsv", "y\ta\tb\n0\tAB\tC\n")), LabelReader(ProblemType::kSingleLabel, 2, {}),
      [](const auto&) -> trainer::text::Encoding { trainer::fail<DataError>("bad"); });
  CHECK_THROWS_MATCHES(data.lengths(2), DataError, Message("bad"));
}
