#include "text/wordpiece/config.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "temporary_directory.h"
#include "text/wordpiece/wordpiece.h"

namespace fs = std::filesystem;
namespace text = trainer::text;
using Json = nlohmann::json;

namespace {

// A Hugging Face directory with the given files.
struct Directory : TemporaryDirectory {
  using Files = std::map<std::string, std::string>;
  explicit Directory(const Files& files) {
    for (const auto& [name, content] : files) write(name, content);
  }
};

// The message of the DataError that loading gives, without the directory.
std::string fault(const Directory::Files& files) {
  const Directory directory(files);
  try {
    text::WordPiece::load(directory.path);
  } catch (const trainer::DataError& e) {
    std::string message = e.what();
    const std::string path = directory.path.string();
    for (size_t i; (i = message.find(path)) != std::string::npos;) message.replace(i, path.size(), 1, 'D');
    return message;
  }
  return "no error";
}

constexpr const char* kVocab = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##b\n";

Json tokenizer_json() {
  return Json::parse(
      R"({"added_tokens": [{"id": 3, "content": "[SEP]", "special": true, "normalized": false}],
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
                   "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100,
              "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "##b": 6}}})");
}

std::string fault_of_json(const char* pointer, const Json& value) {
  Json json = tokenizer_json();
  json[Json::json_pointer(pointer)] = value;
  return fault({{"tokenizer.json", json.dump()}});
}

}  // namespace

TEST_CASE("a directory without a tokenizer is an error") {
  CHECK(fault({{"config.json", "{}"}}) ==
        "D: no tokenizer: got neither tokenizer.json nor vocab.txt; expected a Hugging Face directory");
}

TEST_CASE("a vocabulary without a needed token is an error") {
  CHECK(fault({{"vocab.txt", "[CLS]\n[SEP]\na\n"}}) ==
        "D: vocabulary of 3 tokens has no unk_token \"[UNK]\"");
  CHECK(fault({{"vocab.txt", "[UNK]\n[SEP]\na\n"}}) ==
        "D: vocabulary of 3 tokens has no cls_token \"[CLS]\"");
  CHECK(fault({{"vocab.txt", "[UNK]\n[CLS]\na\n"}}) ==
        "D: vocabulary of 3 tokens has no sep_token \"[SEP]\"");
  CHECK(fault({{"vocab.txt", kVocab}, {"tokenizer_config.json", R"({"cls_token": "<s>"})"}}) ==
        "D: vocabulary of 8 tokens has no cls_token \"<s>\"");
}

TEST_CASE("a token or an id given twice is an error") {
  CHECK(fault({{"vocab.txt", std::string(kVocab) + "a \n"}}) ==
        "D: vocabulary has token \"a\" twice (ids 5 and 8)");
  CHECK(fault_of_json("/model/vocab/a", 6) == "D: vocabulary has id 6 twice (tokens \"##b\" and \"a\")");
  CHECK(fault({{"tokenizer.json", R"({"model": {"vocab": {"a": 1, "b": 2, "a": 3}}})"}}) ==
        "D/tokenizer.json: duplicate key \"a\"");
}

TEST_CASE("malformed JSON is an error that names the file") {
  const std::string message = fault({{"tokenizer.json", "{\"model\": "}});
  CHECK(message.find("D/tokenizer.json: malformed JSON: ") == 0);
  CHECK(fault({{"tokenizer.json", "[]"}}) == "D/tokenizer.json: got [], expected an object");
  CHECK(fault({{"vocab.txt", kVocab}, {"tokenizer_config.json", "3"}}) ==
        "D/tokenizer_config.json: got 3, expected an object");
}

TEST_CASE("another kind of tokenizer is refused") {
  CHECK(fault_of_json("/model/type", "BPE") ==
        "D/tokenizer.json: model.type: got \"BPE\", expected \"WordPiece\"; only BERT's WordPiece tokenizers "
        "are "
        "supported");
  CHECK(fault_of_json("/normalizer/type", "NFC") ==
        "D/tokenizer.json: normalizer.type: got \"NFC\", expected \"BertNormalizer\"; only BERT's WordPiece "
        "tokenizers "
        "are supported");
  CHECK(fault_of_json("/pre_tokenizer/type", "ByteLevel") ==
        "D/tokenizer.json: pre_tokenizer.type: got \"ByteLevel\", expected \"BertPreTokenizer\"; only BERT's "
        "WordPiece "
        "tokenizers are supported");
  CHECK(fault_of_json("/post_processor/type", "RobertaProcessing") ==
        "D/tokenizer.json: post_processor.type: got \"RobertaProcessing\", expected \"TemplateProcessing\"; "
        "only BERT's "
        "WordPiece tokenizers are supported");
}

TEST_CASE("a value of the wrong type is an error that names the key") {
  CHECK(fault_of_json("/normalizer/lowercase", "yes") ==
        "D/tokenizer.json: normalizer.lowercase: got \"yes\", expected true or false");
  CHECK(fault_of_json("/model/max_input_chars_per_word", 1.5) ==
        "D/tokenizer.json: model.max_input_chars_per_word: got 1.5, expected an integer");
  CHECK(fault_of_json("/model/vocab/a", -1) ==
        "D/tokenizer.json: model.vocab: token \"a\": got -1, expected a token's id: an integer >= 0");
  CHECK(fault_of_json("/added_tokens/0/id", (int64_t{1} << 32) + 3) ==
        "D/tokenizer.json: added_tokens[0].id: got 4294967299, expected a token's id: an integer >= 0");
  CHECK(fault({{"vocab.txt", kVocab}, {"added_tokens.json", R"({"<x>": -1})"}}) ==
        "D/added_tokens.json: \"<x>\": got -1, expected a token's id: an integer >= 0");
  CHECK(fault_of_json("/model/vocab", Json::array()) ==
        "D/tokenizer.json: model.vocab: got [], expected an object");
  CHECK(fault_of_json("/added_tokens", 1) == "D/tokenizer.json: added_tokens: got 1, expected a list");
  CHECK(fault_of_json("/added_tokens/0/content", 1) ==
        "D/tokenizer.json: added_tokens[0].content: got 1, expected a string");
  CHECK(fault_of_json("/model/type", nullptr) == "D/tokenizer.json: model.type: got null, expected a string");
}

TEST_CASE("tokenizer_config.json overrides tokenizer.json") {
  const Directory directory(
      {{"tokenizer.json", tokenizer_json().dump()},
       {"tokenizer_config.json", R"({"do_lower_case": false, "strip_accents": true})"}});
  const auto config = text::load_wordpiece_config(directory.path);
  CHECK_FALSE(config.normalizer.lowercase);
  CHECK(config.normalizer.strips_accents());
  CHECK(config.normalizer.handle_chinese_chars);
  CHECK(config.vocab.size() == 7);
}

TEST_CASE("vocab.txt may have CRLF line ends, and empty lines that only count") {
  const Directory directory(
      Directory::Files{{"vocab.txt", "[PAD]\r\n[UNK]\r\n\r\n[CLS]\r\n\r\n[SEP]\r\na\r\n"}});
  const auto ids = text::WordPiece::load(directory.path).encode({"a b", {}, false}, {}).ids;
  CHECK(ids == std::vector<int32_t>{3, 6, 1, 5});
}

TEST_CASE("the prefix of continuing pieces and the longest word come from tokenizer.json") {
  Json json = tokenizer_json();
  json["model"]["continuing_subword_prefix"] = "";
  json["model"]["max_input_chars_per_word"] = 3;
  json["model"]["vocab"]["b"] = 7;
  const Directory directory(Directory::Files{{"tokenizer.json", json.dump()}});
  const auto ids = text::WordPiece::load(directory.path).encode({"ab abb abba", {}, false}, {}).ids;
  CHECK(ids == std::vector<int32_t>{2, 5, 7, 5, 7, 7, 1, 3});
}

TEST_CASE("special tokens are not looked for when split_special_tokens is set") {
  const Directory directory(
      {{"vocab.txt", kVocab}, {"tokenizer_config.json", R"({"split_special_tokens": true})"}});
  const auto ids = text::WordPiece::load(directory.path).encode({"[SEP]", {}, false}, {}).ids;
  CHECK(ids == std::vector<int32_t>{2, 1, 1, 1, 3});
}
