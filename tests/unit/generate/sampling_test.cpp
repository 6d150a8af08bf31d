#include "generate/sampling.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>

#include "core/error.h"

using trainer::generate::candidates;
using trainer::generate::draw;
using trainer::generate::Sampling;

namespace {

// Logits of these probabilities.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3));
  return logits;
}

using Candidates = std::vector<std::pair<int64_t, double>>;

void check(const Candidates& got, const Candidates& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i].first == expected[i].first);
    CHECK(got[i].second == Approx(expected[i].second));
  }
}

const std::vector<float> kLogits = logits_of({0.1, 0.4, 0.2, 0.3});

}  // namespace

TEST_CASE("without limits every token may come, by its probability") {
  check(candidates(kLogits, {}, {}), {{1, 0.4}, {3, 0.3}, {2, 0.2}, {0, 0.1}});
}

TEST_CASE("a temperature is a power of the probabilities, and 0 takes the most likely token") {
  // Halved: squares, 0.01 : 0.16 : 0.04 : 0.09.
  check(candidates(kLogits, {}, {.temperature = 0.5}),
        {{1, 16.0 / 30}, {3, 9.0 / 30}, {2, 4.0 / 30}, {0, 1.0 / 30}});
  check(candidates(kLogits, {}, {.temperature = 0}), {{1, 1.0}});
}

TEST_CASE("top-k keeps the k most likely tokens, and those as likely as the last") {
  check(candidates(kLogits, {}, {.top_k = 2}), {{1, 4.0 / 7}, {3, 3.0 / 7}});
  check(candidates(logits_of({0.25, 0.25, 0.5}), {}, {.top_k = 2}), {{2, 0.5}, {0, 0.25}, {1, 0.25}});
  CHECK(candidates(kLogits, {}, {.top_k = 100}).size() == 4);
}

TEST_CASE("top-p keeps the fewest tokens whose probabilities reach it, and always one") {
  check(candidates(kLogits, {}, {.top_p = 0.65}), {{1, 4.0 / 7}, {3, 3.0 / 7}});
  check(candidates(kLogits, {}, {.top_p = 0.75}), {{1, 4.0 / 9}, {3, 3.0 / 9}, {2, 2.0 / 9}});
  check(candidates(kLogits, {}, {.top_p = 1e-9}), {{1, 1.0}});
}

TEST_CASE("ids of the history beyond the logits are no candidates and change nothing") {
  const std::vector<int64_t> history = {1, 4, 100};
  check(candidates(kLogits, history, {.repetition_penalty = 1}), candidates(kLogits, {}, {}));
  check(candidates(kLogits, history, {.repetition_penalty = 2}),
        candidates(kLogits, std::vector<int64_t>{1}, {.repetition_penalty = 2}));
}

TEST_CASE("top-p counts what top-k left") {
  // Of 4/7 and 3/7 the first reaches 0.5 alone.
  check(candidates(kLogits, {}, {.top_k = 2, .top_p = 0.5}), {{1, 1.0}});
}

TEST_CASE("the repetition penalty divides positive logits and multiplies others, once a token") {
  const std::vector<float> logits = {2, -1, 0.5};
  const std::vector<int64_t> history = {0, 1, 0};
  const double a = std::exp(1.0), b = std::exp(-2.0), c = std::exp(0.5);
  check(candidates(logits, history, {.repetition_penalty = 2}),
        {{0, a / (a + b + c)}, {2, c / (a + b + c)}, {1, b / (a + b + c)}});
}

TEST_CASE("tokens are drawn as often as their probabilities say, and the same by the same seed") {
  std::mt19937_64 random(7), again(7);
  std::map<int64_t, int> counts;
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    const int64_t id = draw(kLogits, {}, {}, random);
    CHECK(id == draw(kLogits, {}, {}, again));
    ++counts[id];
  }
  const double probabilities[] = {0.1, 0.4, 0.2, 0.3};
  for (int64_t id = 0; id < 4; ++id) {
    const double p = probabilities[id];
    CHECK(std::abs(counts[id] - kDraws * p) < 5 * std::sqrt(kDraws * p * (1 - p)));
  }
}

TEST_CASE("logits that are not numbers are an error") {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits = {kNaN, kNaN};
  CHECK_THROWS_MATCHES(candidates(logits, {}, {}), trainer::NumericError,
                       Catch::Matchers::Message(
                           "the model's logits are inf or NaN; hint: are its weights? try --precision fp32"));
  check(candidates(std::vector<float>{kNaN, 1, kNaN}, {}, {}), {{1, 1.0}});
}
