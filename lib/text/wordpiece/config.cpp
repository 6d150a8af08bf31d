#include "text/wordpiece/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "text/json_node.h"
#include "text/unicode.h"

namespace trainer::text {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kOnlyBert = "only BERT's WordPiece tokenizers are supported";

void read_vocab_txt(const fs::path& path, WordPieceConfig& config) {
  const std::string text = read_file(path);
  int32_t id = 0;
  for (size_t begin = 0; begin < text.size(); ++id) {
    const size_t newline = std::min(text.find('\n', begin), text.size());
    // Without white space at the end.
    size_t end = begin;
    for (size_t i = begin; i < newline;) {
      if (!is_whitespace(next_code_point(text, i))) end = i;
    }
    if (end > begin) config.vocab.emplace_back(text.substr(begin, end - begin), id);
    begin = newline + 1;
  }
}

void read_tokenizer_json(const fs::path& path, WordPieceConfig& config) {
  const Json json = parse_json(path);
  const JsonNode root{json, path.string() + ": "};
  root.expect_object();
  const JsonNode model = root.at("model");
  model.expect_type("WordPiece", kOnlyBert);
  model.read("unk_token", config.unk_token);
  model.read("continuing_subword_prefix", config.continuing_subword_prefix);
  if (model.has("max_input_chars_per_word")) {
    config.max_input_chars_per_word = model.at("max_input_chars_per_word").integer();
  }
  const JsonNode vocab = model.at("vocab");
  vocab.expect_object();
  for (const auto& [token, id] : vocab.json.items()) {
    const int32_t checked = JsonNode{id, vocab.where + ": token " + Json(token).dump()}.id();
    if (!token.empty()) config.vocab.emplace_back(token, checked);
  }

  const JsonNode normalizer = root.at("normalizer");
  normalizer.expect_type("BertNormalizer", kOnlyBert);
  normalizer.read("clean_text", config.normalizer.clean_text);
  normalizer.read("handle_chinese_chars", config.normalizer.handle_chinese_chars);
  normalizer.read("lowercase", config.normalizer.lowercase);
  if (normalizer.has("strip_accents"))
    config.normalizer.strip_accents = normalizer.at("strip_accents").boolean();
  root.at("pre_tokenizer").expect_type("BertPreTokenizer", kOnlyBert);
  if (root.has("post_processor")) {
    const JsonNode post = root.at("post_processor");
    post.expect_object();
    const std::string type = post.at("type").string();
    if (type != "TemplateProcessing" && type != "BertProcessing")
      post.expect_type("TemplateProcessing", kOnlyBert);
  }
  if (root.has("added_tokens")) config.added_tokens = read_added_tokens(root.at("added_tokens"));
}

// tokenizer_config.json and the legacy files beside it.
void read_settings(const fs::path& directory, WordPieceConfig& config) {
  const auto parse_object = [&](const char* name) {
    const fs::path path = directory / name;
    Json json = fs::exists(path) ? parse_json(path) : Json::object();
    JsonNode{json, path.string() + ": "}.expect_object();
    return json;
  };
  const Json json = parse_object("tokenizer_config.json");
  const JsonNode root{json, (directory / "tokenizer_config.json").string() + ": "};
  root.read("do_lower_case", config.normalizer.lowercase);
  root.read("tokenize_chinese_chars", config.normalizer.handle_chinese_chars);
  if (root.has("strip_accents")) config.normalizer.strip_accents = root.at("strip_accents").boolean();

  Json legacy = Json::object(), added = Json::object();
  if (root.has("added_tokens_decoder")) {
    const JsonNode tokens = root.at("added_tokens_decoder");
    tokens.expect_object();
    config.added_tokens.clear();
    for (const auto& [id, value] : tokens.json.items()) {
      const JsonNode node{value, tokens.where + "." + id};
      config.added_tokens.push_back(read_added_token(node, false));
    }
  } else {
    legacy = parse_object("special_tokens_map.json");
    added = parse_object("added_tokens.json");
  }

  const JsonNode map{legacy, (directory / "special_tokens_map.json").string() + ": "};
  const auto named = [&](const char* key, std::string& content) {
    const JsonNode& source = map.has(key) ? map : root;
    AddedToken token;
    token.special = true;
    token.content = content;
    if (source.has(key)) token = read_added_token(source.at(key), true);
    content = token.content;
    add_new(std::move(token), config.added_tokens);
  };
  std::string pad_token = "[PAD]", mask_token = "[MASK]";
  named("unk_token", config.unk_token);
  named("sep_token", config.sep_token);
  named("pad_token", pad_token);
  named("cls_token", config.cls_token);
  named("mask_token", mask_token);
  add_other_special(root, map, config.added_tokens);
  for (AddedToken& token : read_added_token_ids({added, (directory / "added_tokens.json").string() + ": "})) {
    add_new(std::move(token), config.added_tokens);
  }
  bool split_special = false;
  root.read("split_special_tokens", split_special);
  if (split_special)
    std::erase_if(config.added_tokens, [](const AddedToken& token) { return token.special; });
}

}  // namespace

WordPieceConfig load_wordpiece_config(const fs::path& directory) {
  WordPieceConfig config;
  if (fs::exists(directory / "tokenizer.json")) {
    read_tokenizer_json(directory / "tokenizer.json", config);
  } else if (fs::exists(directory / "vocab.txt")) {
    read_vocab_txt(directory / "vocab.txt", config);
  } else {
    fail<DataError>(
        "{}: no tokenizer: got neither tokenizer.json nor vocab.txt; expected a Hugging Face directory",
        directory.string());
  }
  read_settings(directory, config);
  return config;
}

}  // namespace trainer::text
