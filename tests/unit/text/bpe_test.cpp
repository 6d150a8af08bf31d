#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "core/error.h"
#include "core/file.h"
#include "temporary_directory.h"
#include "text/bpe/merges.h"
#include "text/bpe/pre_tokenizer.h"
#include "text/tokenizer.h"

namespace fs = std::filesystem;
namespace text = trainer::text;
using Catch::Matchers::Message;
using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

namespace {

const fs::path kData = TEST_DATA;

std::shared_ptr<const text::Tokenizer> load(const fs::path& path) {
  return text::load_tokenizer(text::TokenizerKind::kAuto, path);
}

std::vector<std::pair<std::string, std::vector<Ids>>> read_cases() {
  std::vector<std::pair<std::string, std::vector<Ids>>> cases;
  for (const Json& c : Json::parse(trainer::read_file(kData / "bpe_cases.json")))
    cases.push_back({c[0], {c[1].get<Ids>(), c[2].get<Ids>()}});
  return cases;
}

// A text of many kinds, about `size` bytes.
std::string long_text(size_t size) {
  std::string out;
  while (out.size() < size) {
    for (const auto& [text, ids] : read_cases()) out += text + (out.size() % 3 == 0 ? "\n" : " word");
  }
  return out;
}

// A copy of tiny_bpe_llama's tokenizer.json with a change, in a directory of its own.
struct Changed {
  TemporaryDirectory directory;
  Json json = Json::parse(trainer::read_file(kData / "tiny_bpe_llama/tokenizer.json"));

  std::string load_error() {
    trainer::write_file_atomic(directory.path / "tokenizer.json", json.dump());
    try {
      load(directory.path);
    } catch (const trainer::DataError& e) {
      const std::string prefix = (directory.path / "tokenizer.json").string() + ": ";
      const std::string message = e.what();
      return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
    }
    return "";
  }
};

}  // namespace

TEST_CASE("ids are those of Hugging Face tokenizers on hard texts, and decoding gives the texts back") {
  const auto cases = read_cases();
  REQUIRE(cases.size() > 300);
  const char* directories[] = {"tiny_bpe", "tiny_bpe_llama"};
  for (size_t d = 0; d < 2; ++d) {
    const auto tokenizer = load(kData / directories[d]);
    for (const auto& [text, ids] : cases) {
      INFO(directories[d] << ": " << Json(text).dump());
      CHECK(tokenizer->encode(text) == ids[d]);
      if (d == 0) CHECK(tokenizer->decode(ids[d]) == text);  // the other has tokens that take spaces
    }
  }
}

TEST_CASE("a text has the same ids on any number of threads") {
  const std::string text = long_text(3'000'000);
  for (const char* directory : {"tiny_bpe", "tiny_bpe_llama"}) {
    const auto tokenizer = load(kData / directory);
    const Ids serial = tokenizer->encode(text);
    CHECK(tokenizer->encode(text, 2) == serial);
    CHECK(tokenizer->encode(text, 5) == serial);
  }
  const std::string spaceless(1'000'000, 'x');
  const auto tokenizer = load(kData / "tiny_bpe");
  CHECK(tokenizer->encode(spaceless, 3) == tokenizer->encode(spaceless));
}

TEST_CASE("many texts are encoded in order on any number of threads") {
  const auto tokenizer = load(kData / "tiny_bpe_llama");
  const auto cases = read_cases();
  std::vector<std::string_view> texts;
  for (const auto& [text, ids] : cases) texts.push_back(text);
  for (const int64_t threads : {1, 2, 3}) {
    const auto batch = tokenizer->encode_batch(texts, threads);
    REQUIRE(batch.size() == texts.size());
    for (size_t i = 0; i < batch.size(); ++i) CHECK(batch[i] == cases[i].second[1]);
  }
  CHECK(tokenizer->encode_batch({}, 2).empty());
}

TEST_CASE("bytes that are not UTF-8 come back as they were") {
  const auto tokenizer = load(kData / "tiny_bpe");
  std::mt19937 rng(4);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(rng() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(rng() % 4 == 0 ? " a\n'"[rng() % 4] : rng());
    REQUIRE(tokenizer->decode(tokenizer->encode(bytes)) == bytes);
  }
}

TEST_CASE("special tokens are found in a text unless they are to be ignored") {
  const auto tokenizer = load(kData / "tiny_bpe_llama");
  const std::string text = "a<|endoftext|>b";
  REQUIRE(tokenizer->eos_id());
  const int32_t eos = *tokenizer->eos_id();
  CHECK(tokenizer->token_bytes(eos) == "<|endoftext|>");
  CHECK(tokenizer->is_special(eos));
  const Ids found = tokenizer->encode(text);
  REQUIRE(found.size() == 3);
  CHECK(found[1] == eos);
  CHECK(tokenizer->decode(found) == text);
  CHECK(tokenizer->decode(found, true) == "ab");
  const Ids ignored = tokenizer->encode(text, 1, text::SpecialTokens::kIgnore);
  CHECK(std::count(ignored.begin(), ignored.end(), eos) == 0);
  CHECK(tokenizer->decode(ignored, true) == text);
  // Added tokens that are not special are words of the vocabulary like others.
  CHECK(tokenizer->encode("x <|end|>", 1, text::SpecialTokens::kIgnore) == tokenizer->encode("x <|end|>"));
}

TEST_CASE("a space before the text is added when the vocabulary's settings say so") {
  TemporaryDirectory directory;
  for (const char* name : {"vocab.json", "merges.txt"}) {
    fs::copy(kData / "tiny_bpe" / name, directory.path / name);
  }
  const auto plain = load(directory.path);
  trainer::write_file_atomic(directory.path / "tokenizer_config.json", R"({"add_prefix_space": true})");
  const auto spaced = load(directory.path);
  CHECK(spaced->encode("the end") == plain->encode(" the end"));
  CHECK(spaced->encode(" the end") == plain->encode(" the end"));
  CHECK(spaced->encode("<|endoftext|>the") == plain->encode("<|endoftext|> the"));
  CHECK(spaced->encode("").empty());
  const std::string text = long_text(1'000'000);
  CHECK(spaced->encode(text, 3) == spaced->encode(text));
}

TEST_CASE("a saved directory has the tokenizer's files, and loads to the same ids") {
  for (const char* name : {"tiny_bpe", "tiny_bpe_llama"}) {
    const auto tokenizer = load(kData / name);
    TemporaryDirectory directory;
    std::vector<std::string> names;
    for (const auto& [file, contents] : tokenizer->files()) {
      names.push_back(file);
      trainer::write_file_atomic(directory.path / file, contents);
    }
    const std::vector<std::string> bare = {"vocab.json", "merges.txt", "tokenizer_config.json"};
    CHECK(names == (name == std::string("tiny_bpe")
                        ? bare
                        : std::vector<std::string>{"tokenizer.json", "tokenizer_config.json"}));
    const auto again = load(directory.path);
    CHECK(again->eos_id() == tokenizer->eos_id());
    CHECK(again->vocab_size() == tokenizer->vocab_size());
    for (const auto& [text, ids] : read_cases()) CHECK(again->encode(text) == tokenizer->encode(text));
  }
}

TEST_CASE("added tokens come from the files beside tokenizer.json, too") {
  Changed changed;
  REQUIRE(changed.load_error().empty());
  const auto before = load(changed.directory.path);
  CHECK(before->token_bytes(*before->eos_id()) == "<|endoftext|>");  // known by its name
  trainer::write_file_atomic(
      changed.directory.path / "tokenizer_config.json",
      R"({"added_tokens_decoder": {"700": {"content": "<x>", "special": true}}, "pad_token": "<pad>",
          "additional_special_tokens": ["<y>"]})");
  trainer::write_file_atomic(changed.directory.path / "special_tokens_map.json",
                             R"({"eos_token": {"content": "<x>"}})");
  trainer::write_file_atomic(changed.directory.path / "added_tokens.json", R"({"<z>": 702})");
  const auto tokenizer = load(changed.directory.path);
  CHECK(tokenizer->eos_id() == 700);
  CHECK(tokenizer->encode("<x><z><pad><y>") == Ids{700, 702, 703, 704});
  CHECK(tokenizer->vocab_size() == 705);
  CHECK(tokenizer->is_special(703));
  CHECK_FALSE(tokenizer->is_special(702));
  CHECK_THROWS_MATCHES(tokenizer->token_bytes(701), trainer::DataError,
                       Message("no token has the id 701; the tokenizer's vocabulary has 705"));
  CHECK_THROWS_AS(tokenizer->decode(Ids{-1}), trainer::DataError);
  CHECK_THROWS_AS(tokenizer->decode(Ids{705}), trainer::DataError);

  trainer::write_file_atomic(changed.directory.path / "tokenizer_config.json",
                             R"({"added_tokens_decoder": {"7x": {"content": "<x>"}}})");
  CHECK_THROWS_WITH(
      load(changed.directory.path),
      Catch::Contains("tokenizer_config.json: added_tokens_decoder.7x: got {\"content\":\"<x>\"}, "
                      "expected its id as the key"));
}

TEST_CASE("merges in pairs and in strings are the same") {
  Changed changed;
  bool as_pairs = false;
  for (Json& merge : changed.json["model"]["merges"]) {
    as_pairs = merge.is_array();
    merge = as_pairs ? Json(merge[0].get<std::string>() + " " + merge[1].get<std::string>()) : merge;
  }
  REQUIRE(as_pairs);
  REQUIRE(changed.load_error().empty());
  const auto tokenizer = load(changed.directory.path / "tokenizer.json");
  for (const auto& [text, ids] : read_cases()) CHECK(tokenizer->encode(text) == ids[1]);
}

TEST_CASE("components that are not built in are refused with what is") {
  const auto error = [](auto change) {
    Changed changed;
    change(changed.json);
    return changed.load_error();
  };
  const std::string why = "; byte-level BPE as of GPT-2 and Llama 3 is what is built in";
  CHECK(error([](Json& j) { j["model"]["type"] = "Unigram"; }) ==
        "model.type: got \"Unigram\", expected \"BPE\"" + why);
  CHECK(error([](Json& j) { j["model"]["byte_fallback"] = true; }) ==
        "model.byte_fallback: got true, expected false" + why + ", not SentencePiece's");
  CHECK(error([](Json& j) { j["model"]["dropout"] = 0.1; }) ==
        "model.dropout: got 0.1, expected none: the same text gives the same ids");
  CHECK(error([](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }) ==
        "model.end_of_word_suffix: got \"</w>\", expected none");
  CHECK(error([](Json& j) {
          j["normalizer"] = {{"type", "NFC"}};
        }) == "normalizer: got {\"type\":\"NFC\"}, expected none: decoding could not give the text back");
  CHECK(error([](Json& j) { j["decoder"]["type"] = "WordPiece"; }) ==
        "decoder.type: got \"WordPiece\", expected \"ByteLevel\"" + why);
  CHECK(error([](Json& j) {
          j["pre_tokenizer"] = {{"type", "Metaspace"}};
        }) == "pre_tokenizer.type: got \"Metaspace\", expected \"ByteLevel\"" + why);
  CHECK(error([](Json& j) {
          j["pre_tokenizer"] = {{"type", "ByteLevel"}, {"use_regex", false}};
        }) == "pre_tokenizer.use_regex: got false, expected true: there is no other pattern");
  const std::string list = "pre_tokenizer.pretokenizers";
  CHECK_THAT(error([](Json& j) { j["pre_tokenizer"]["pretokenizers"].erase(0); }),
             Catch::StartsWith(list + ": got [{") && Catch::EndsWith("expected a Split and a ByteLevel"));
  CHECK(error([](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["type"] = "Digits"; }) ==
        list + "[0].type: got \"Digits\", expected \"Split\"" + why);
  CHECK(error([](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "MergedWithNext"; }) ==
        list + "[0].behavior: got \"MergedWithNext\", expected \"Isolated\", or \"Removed\" inverted");
  CHECK(error([](Json& j) { j["pre_tokenizer"]["pretokenizers"][1]["use_regex"] = true; }) ==
        list + "[1].use_regex: got true, expected false: a Split with a pattern stands before");
  CHECK(error([](Json& j) { j["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; }) ==
        list + "[1].add_prefix_space: got true, expected false: it would put a space before every word");
  CHECK_THAT(error([](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\w+"; }),
             Catch::StartsWith(
                 list + "[0].pattern.Regex: no such pattern is built in: \\w+\nexpected one of\n  's|'t|"));
}

TEST_CASE("a vocabulary that is not whole is refused") {
  const auto error = [](auto change) {
    Changed changed;
    change(changed.json);
    std::string message = changed.load_error();
    const std::string prefix = changed.directory.path.string() + ": ";
    return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
  };
  const size_t size = Changed().json["model"]["vocab"].size();
  CHECK(error([](Json& j) { j["model"]["vocab"].erase("Ġ"); }) ==
        fmt::format(
            "vocabulary of {} tokens has none for byte 0x20 (\"Ġ\"); a byte-level vocabulary has all 256, so "
            "that every text has ids",
            size - 1));
  CHECK(error([](Json& j) { j["model"]["vocab"]["zzz"] = 3; }) ==
        "vocabulary has id 3 twice, once for token \"zzz\"");
  CHECK(error([](Json& j) { j["model"]["vocab"]["zzz"] = -3; }) ==
        "model.vocab: token \"zzz\": got -3, expected a token's id: an integer >= 0");
  CHECK(error([](Json& j) {
          j["model"]["merges"][2] = {"a", "zzz"};
        }) == fmt::format("merge 2 (\"a zzz\"): token \"zzz\" is not in the vocabulary of {}", size));
  CHECK(error([](Json& j) { j["model"]["merges"][2] = "a b c"; }) ==
        "model.merges[2]: got merge \"a b c\", expected two tokens with a space between");
  CHECK(error([](Json& j) { j["model"]["merges"][2] = 7; }) ==
        "model.merges[2]: got 7, expected \"a b\" or [\"a\", \"b\"]");
}

TEST_CASE("a directory without a byte-level BPE tokenizer says what is missing") {
  CHECK_THROWS_MATCHES(
      load(kData / "tiny_bert"), trainer::DataError,
      Message((kData / "tiny_bert").string() +
              ": no byte-level BPE tokenizer: got neither tokenizer.json nor vocab.json with "
              "merges.txt; vocab.txt is WordPiece's, which cannot give text back"));
  CHECK_THROWS_MATCHES(
      load(kData / "bpe_cases.json"), trainer::DataError,
      Message((kData / "bpe_cases.json").string() +
              ": not a tokenizer's file; expected tokenizer.json, vocab.json or merges.txt"));
  CHECK_THROWS_MATCHES(
      load("nowhere"), trainer::SpecError,
      Message("nowhere: no such file or directory; expected a tokenizer's directory (tokenizer.json, or "
              "vocab.json and merges.txt, or trainer_tokenizer.json), or a file of it"));
  TemporaryDirectory directory;
  fs::copy(kData / "tiny_bpe/vocab.json", directory.path / "vocab.json");
  trainer::write_file_atomic(directory.path / "merges.txt", "#version: 0.2\na b\n\n");
  CHECK_THROWS_MATCHES(
      load(directory.path), trainer::DataError,
      Message(directory.path.string() + ": merge 0 (\"a b\"): token \"ab\" is not in the vocabulary of 500"));
  trainer::write_file_atomic(directory.path / "merges.txt", "#version: 0.2\nab\n");
  CHECK_THROWS_MATCHES(load(directory.path), trainer::DataError,
                       Message((directory.path / "merges.txt").string() +
                               ":2: got merge \"ab\", expected two tokens with a space between"));
}

TEST_CASE("merging by a queue and by looking at all pairs is the same") {
  // Random rules, so that some make a pair of lower rank than their own; a word of twice 41 equal halves that do
  // not merge across is long, each half alone is short.
  std::mt19937 rng(8);
  for (int run = 0; run < 200; ++run) {
    std::vector<text::Merges::Rule> rules;
    int32_t next = 4;
    for (; next < 60; ++next) {
      rules.push_back({static_cast<int32_t>(rng() % static_cast<unsigned>(next)),
                       static_cast<int32_t>(rng() % static_cast<unsigned>(next)), next});
    }
    std::shuffle(rules.begin(), rules.end(), rng);
    const text::Merges merges(rules);
    text::Merges::Scratch scratch;
    Ids half(30);
    for (int32_t& id : half) id = static_cast<int32_t>(rng() % 4);
    Ids word = half;
    word.push_back(1000);  // in no rule
    word.insert(word.end(), half.begin(), half.end());
    merges.apply(half, 0, scratch);
    merges.apply(word, 0, scratch);
    Ids expected = half;
    expected.push_back(1000);
    expected.insert(expected.end(), half.begin(), half.end());
    REQUIRE(word == expected);
  }
}
