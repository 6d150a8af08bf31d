#include "data/labels.h"

#include <catch2/catch.hpp>

#include "core/error.h"

using Catch::Matchers::Message;
using trainer::DataError;
using trainer::data::LabelReader;
using trainer::spec::ProblemType;

namespace {

std::vector<double> read(const LabelReader& reader, std::string_view cell) {
  std::vector<double> values;
  reader.read(cell, values);
  return values;
}

using Values = std::vector<double>;

}  // namespace

TEST_CASE("a single label is an integer or a name") {
  const LabelReader numbers(ProblemType::kSingleLabel, 3, {});
  CHECK(read(numbers, " 2 ") == Values{2});
  CHECK_THROWS_MATCHES(read(numbers, "3"), DataError,
                       Message("got \"3\"; expected an integer from 0 to 2 (model.num_labels is 3)"));
  CHECK_THROWS_MATCHES(read(numbers, "-1"), DataError,
                       Message("got \"-1\"; expected an integer from 0 to 2 (model.num_labels is 3)"));
  CHECK_THROWS_MATCHES(read(numbers, "1.0"), DataError,
                       Message("got \"1.0\"; expected an integer from 0 to 2 (model.num_labels is 3)"));
  CHECK_THROWS_MATCHES(read(numbers, ""), DataError,
                       Message("got \"\"; expected an integer from 0 to 2 (model.num_labels is 3)"));
  CHECK_THROWS_MATCHES(read(numbers, std::string(50, 'x')), DataError,
                       Message("got \"" + std::string(40, 'x') +
                               "...\"; expected an integer from 0 to 2 (model.num_labels is 3)"));

  const LabelReader names(ProblemType::kSingleLabel, 2, {"not equivalent", "equivalent"});
  CHECK(read(names, "equivalent") == Values{1});
  CHECK(read(names, "0") == Values{0});
  CHECK_THROWS_MATCHES(read(names, "Equivalent"), DataError,
                       Message("got \"Equivalent\"; expected one of not equivalent, equivalent; did you mean "
                               "equivalent?"));
  CHECK_THROWS_MATCHES(read(names, "2"), DataError,
                       Message("got \"2\"; expected one of not equivalent, equivalent"));

  const LabelReader stars(ProblemType::kSingleLabel, 2, {"1", "2"});
  CHECK(read(stars, "1") == Values{0});
  CHECK_THROWS_MATCHES(read(stars, "0"), DataError, Message("got \"0\"; expected one of 1, 2"));
}

TEST_CASE("many labels are a list of them") {
  const LabelReader numbers(ProblemType::kMultiLabel, 4, {});
  CHECK(numbers.width() == 4);
  for (const char* cell : {"0,3", "0|3", "3 0", " 3 , 0 ", "0, 0, 3"})
    CHECK(read(numbers, cell) == Values{1, 0, 0, 1});
  CHECK(read(numbers, "") == Values{0, 0, 0, 0});
  CHECK_THROWS_MATCHES(read(numbers, "1,4"), DataError,
                       Message("got \"4\"; expected an integer from 0 to 3 (model.num_labels is 4)"));
  const LabelReader names(ProblemType::kMultiLabel, 2, {"world news", "sport"});
  CHECK(read(names, "sport, world news") == Values{1, 1});
  CHECK_THROWS_MATCHES(read(names, "sports"), DataError,
                       Message("got \"sports\"; expected one of world news, sport; did you mean sport?"));
}

TEST_CASE("regression targets are finite numbers") {
  const LabelReader one(ProblemType::kRegression, 1, {});
  CHECK(read(one, "-2.5e-1") == Values{-0.25});
  for (const char* cell : {"", "nan", "inf", "1e999", "x", "1,2"}) {
    CHECK_THROWS_MATCHES(read(one, cell), DataError,
                         Message("got \"" + std::string(cell) + "\"; expected a finite number"));
  }
  const LabelReader two(ProblemType::kRegression, 2, {});
  CHECK(read(two, "1, 2") == Values{1, 2});
  CHECK_THROWS_MATCHES(read(two, "1"), DataError,
                       Message("got \"1\"; expected 2 finite numbers (model.num_labels)"));
}

TEST_CASE("there are as many names as labels") {
  CHECK_THROWS_MATCHES(LabelReader(ProblemType::kSingleLabel, 3, {"a", "b"}), DataError,
                       Message("data.label_names: got 2 names; expected 3 (model.num_labels)"));
}
