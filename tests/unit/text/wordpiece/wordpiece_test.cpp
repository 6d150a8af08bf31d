#include "text/wordpiece/wordpiece.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "text/tokenizer.h"

namespace fs = std::filesystem;
namespace text = trainer::text;
using Catch::Matchers::Message;
using Json = nlohmann::json;

namespace {

const fs::path kData = TEST_DATA;

std::string unhex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

trainer::spec::Truncation truncation(const std::string& name) {
  return name == "longest_first" ? trainer::spec::Truncation::kLongestFirst
         : name == "only_first"  ? trainer::spec::Truncation::kOnlyFirst
                                 : trainer::spec::Truncation::kOnlySecond;
}

// The shape of tests/parity/make/wordpiece_cases.py: [ids, token types, flat offsets].
Json result(const text::Encoding& e) {
  Json offsets = Json::array();
  for (const auto& [start, end] : e.offsets) {
    offsets.push_back(start);
    offsets.push_back(end);
  }
  return {e.ids, e.token_types, offsets};
}

text::TextPair pair(std::string_view a, std::string_view b) {
  return {a, b, true};
}

}  // namespace

TEST_CASE("ids, token types and offsets are those of BertTokenizerFast on hard texts") {
  const Json cases = Json::parse(trainer::read_file(kData / "wordpiece_cases.json"));
  REQUIRE(cases.size() > 2000);
  const char* directories[] = {"tiny_bert", "tiny_bert_cased", "tiny_bert_added"};
  for (size_t d = 0; d < 3; ++d) {
    const auto tokenizer = text::WordPiece::load(kData / directories[d]);
    for (const Json& c : cases) {
      const std::string first = c[0].is_object() ? unhex(c[0]["hex"]) : c[0].get<std::string>();
      const std::string second = c[1].is_null() ? "" : c[1].get<std::string>();
      const text::TextPair input{first, second, !c[1].is_null()};
      text::EncodeOptions options{c[2], truncation(c[3]), true};
      INFO(directories[d] << ": " << c[0].dump() << ", " << c[1].dump() << ", " << c[2] << ", " << c[3]);
      if (c[4][d].is_null()) {
        CHECK_THROWS_AS(tokenizer.encode(input, options), trainer::DataError);
        continue;
      }
      const text::Encoding got = tokenizer.encode(input, options);
      CHECK(result(got) == c[4][d]);
      options.with_offsets = false;
      const text::Encoding without = tokenizer.encode(input, options);
      CHECK(without.ids == got.ids);
      CHECK(without.token_types == got.token_types);
      CHECK(without.offsets.empty());
    }
  }
}

TEST_CASE("a batch is encoded in order on any number of threads") {
  const Json cases = Json::parse(trainer::read_file(kData / "wordpiece_cases.json"));
  const auto tokenizer = text::WordPiece::load(kData / "tiny_bert");
  std::vector<std::string> texts;
  for (const Json& c : cases) {
    if (c[0].is_string()) texts.push_back(c[0]);
  }
  std::vector<text::TextPair> inputs;
  for (size_t i = 0; i < texts.size(); ++i)
    inputs.push_back({texts[i], texts[texts.size() - 1 - i], i % 2 == 0});
  for (const int64_t threads : {1, 2, 3}) {
    const auto batch = tokenizer.encode_batch(inputs, {}, threads);
    REQUIRE(batch.size() == inputs.size());
    for (size_t i = 0; i < batch.size(); ++i) {
      const auto one = tokenizer.encode(inputs[i], {});
      CHECK((batch[i].ids == one.ids && batch[i].token_types == one.token_types));
    }
  }
  CHECK(tokenizer.encode_batch({}, {}, 2).empty());
}

TEST_CASE("a batch reports its first text that cannot be truncated") {
  const auto tokenizer = text::WordPiece::load(kData / "tiny_bert");
  std::vector<text::TextPair> inputs(300, pair("a", "b"));
  inputs[250] = inputs[137] = pair("a", "b c d");
  for (const int64_t threads : {1, 3}) {
    CHECK_THROWS_MATCHES(
        tokenizer.encode_batch(inputs, {5, trainer::spec::Truncation::kOnlyFirst, false}, threads),
        trainer::DataError,
        Message("text 137 of 300: truncation only_first: 2 tokens must go to fit max_length 5, but the first "
                "text has 1 "
                "and must keep one; the second text has 3"));
  }
}

TEST_CASE("truncation that cannot reach the length says which text is in the way") {
  using trainer::spec::Truncation;
  const auto tokenizer = text::WordPiece::load(kData / "tiny_bert");
  CHECK_THROWS_MATCHES(tokenizer.encode(pair("a b c", "d"), {4, Truncation::kOnlySecond, false}),
                       trainer::DataError,
                       Message("truncation only_second: 3 tokens must go to fit max_length 4, but the second "
                               "text has 1 and must keep "
                               "one; the first text has 3"));
  CHECK_THROWS_MATCHES(
      tokenizer.encode({"a b c", {}, false}, {4, Truncation::kOnlySecond, false}), trainer::DataError,
      Message("truncation only_second: one text of 3 tokens exceeds max_length 4, and there is no "
              "second text"));
  CHECK_THROWS_MATCHES(tokenizer.encode(pair("a", "b"), {2, Truncation::kLongestFirst, false}),
                       trainer::DataError, Message("max_length is 2, but a pair has 3 special tokens"));
  CHECK_THROWS_MATCHES(tokenizer.encode({"a", {}, false}, {1, Truncation::kLongestFirst, false}),
                       trainer::DataError, Message("max_length is 1, but a text has 2 special tokens"));
}

TEST_CASE("the vocabulary's size counts added tokens") {
  const auto lines = [](const fs::path& path) {
    const std::string s = trainer::read_file(path);
    return std::count(s.begin(), s.end(), '\n');
  };
  CHECK(text::WordPiece::load(kData / "tiny_bert").vocab_size() == lines(kData / "tiny_bert/vocab.txt"));
  CHECK(text::WordPiece::load(kData / "tiny_bert_added").vocab_size() ==
        lines(kData / "tiny_bert_added/vocab.txt") + 8);
}

TEST_CASE("the tokenizer's files are listed for a saved model") {
  CHECK(text::tokenizer_files(kData / "tiny_bert") ==
        std::vector<std::string>{"tokenizer_config.json", "vocab.txt", "special_tokens_map.json"});
  CHECK(text::tokenizer_files(kData / "tiny_bert_cased") ==
        std::vector<std::string>{"tokenizer.json", "tokenizer_config.json"});
}
