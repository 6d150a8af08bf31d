#include "text/bpe/config.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "text/json_node.h"

namespace trainer::text {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kOnlyByteLevel = "byte-level BPE as of GPT-2 and Llama 3 is what is built in";
constexpr const char* kEndOfText = "<|endoftext|>";

// Reads the directory's files, keeping each for BpeConfig::files.
class Reader {
 public:
  Reader(fs::path directory, BpeConfig& config) : directory_(std::move(directory)), config_(config) {}

  fs::path path(const char* name) const { return directory_ / name; }
  bool has(const char* name) const { return fs::exists(path(name)); }
  const std::string& read(const char* name) {
    return config_.files.emplace_back(TokenizerFile{name, read_file(path(name))}).contents;
  }
  // An object; an empty one when there is no such file.
  Json read_json(const char* name) {
    Json json = has(name) ? parse_json(path(name), read(name)) : Json::object();
    JsonNode{json, where(name)}.expect_object();
    return json;
  }
  std::string where(const char* name) const { return path(name).string() + ": "; }

 private:
  fs::path directory_;
  BpeConfig& config_;
};

void read_vocab(const JsonNode& vocab, BpeConfig& config) {
  vocab.expect_object();
  config.vocab.reserve(vocab.json.size());
  for (const auto& [token, id] : vocab.json.items()) {
    config.vocab.emplace_back(token, JsonNode{id, vocab.where + ": token " + Json(token).dump()}.id());
  }
}

// "a b", as older files have it.
std::pair<std::string, std::string> parse_merge(std::string_view merge, const std::string& where) {
  const size_t space = merge.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == merge.size() ||
      merge.find(' ', space + 1) != std::string_view::npos) {
    fail<DataError>("{}: got merge {}, expected two tokens with a space between", where,
                    Json(merge).dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return {std::string(merge.substr(0, space)), std::string(merge.substr(space + 1))};
}

void read_merges_txt(const std::string& contents, const std::string& path, BpeConfig& config) {
  int64_t line_number = 0;
  for (size_t begin = 0; begin < contents.size();) {
    const size_t end = std::min(contents.find('\n', begin), contents.size());
    std::string_view line = std::string_view(contents).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++line_number;
    begin = end + 1;
    if (line.starts_with("#version") || (line.empty() && begin >= contents.size())) continue;
    config.merges.push_back(parse_merge(line, fmt::format("{}:{}", path, line_number)));
  }
}

void read_merges(const JsonNode& merges, BpeConfig& config) {
  merges.expect_list();
  config.merges.reserve(merges.json.size());
  for (size_t i = 0; i < merges.json.size(); ++i) {
    const Json& merge = merges.json[i];
    if (merge.is_string()) {
      config.merges.push_back(parse_merge(merge.get_ref<const std::string&>(), merges.at(i).where));
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      config.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    } else {
      merges.at(i).expected("\"a b\" or [\"a\", \"b\"]");
    }
  }
}

void read_model(const JsonNode& model, BpeConfig& config) {
  model.expect_object();
  if (model.has("type") || !model.has("merges")) model.expect_type("BPE", kOnlyByteLevel);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model.has(key) && !model.at(key).string().empty()) model.at(key).expected("none");
  }
  if (model.has("byte_fallback") && model.at("byte_fallback").boolean()) {
    fail<DataError>("{}: got true, expected false; {}, not SentencePiece's", model.at("byte_fallback").where,
                    kOnlyByteLevel);
  }
  if (model.has("dropout") && !(model.at("dropout").json == 0.0)) {
    model.at("dropout").expected("none: the same text gives the same ids");
  }
  model.read("ignore_merges", config.ignore_merges);
  read_vocab(model.at("vocab"), config);
  read_merges(model.at("merges"), config);
}

// {"type": "ByteLevel"}, or {"type": "Sequence", "pretokenizers": [Split, ByteLevel]}.
void read_pre_tokenizer(const JsonNode& node, BpeConfig& config) {
  node.expect_object();
  const auto byte_level = [&](const JsonNode& n, bool expect_regex) {
    n.expect_type("ByteLevel", kOnlyByteLevel);
    bool use_regex = true, add_prefix_space = true;  // as the library's
    n.read("use_regex", use_regex);
    n.read("add_prefix_space", add_prefix_space);
    if (use_regex != expect_regex) {
      n.at("use_regex")
          .expected(expect_regex ? "true: there is no other pattern"
                                 : "false: a Split with a pattern stands before");
    }
    return add_prefix_space;
  };
  if (node.at("type").string() != "Sequence") {
    config.add_prefix_space = byte_level(node, true);
    return;
  }
  const JsonNode list = node.at("pretokenizers");
  list.expect_list();
  if (list.json.size() != 2) list.expected("a Split and a ByteLevel");
  const JsonNode split = list.at(size_t{0});
  split.expect_type("Split", kOnlyByteLevel);
  const JsonNode regex = split.at("pattern").at("Regex");
  config.pattern = PreTokenizer::find_pattern(regex.string(), regex.where);
  // The patterns match all there is, so both ways to say it are one.
  bool invert = false;
  split.read("invert", invert);
  const std::string behavior = split.at("behavior").string();
  if (behavior != (invert ? "Removed" : "Isolated")) {
    split.at("behavior").expected("\"Isolated\", or \"Removed\" inverted");
  }
  if (byte_level(list.at(1), false)) {
    list.at(1).at("add_prefix_space").expected("false: it would put a space before every word");
  }
}

// The special token that the template of one text begins with: {"type": "TemplateProcessing", "single":
// [{"SpecialToken": {"id": "<|begin_of_text|>"}}, {"Sequence": ...}]}, alone or in a "Sequence" of processors.
void read_post_processor(const JsonNode& node, BpeConfig& config) {
  const std::string type = node.at("type").string();
  if (type == "Sequence") {
    const JsonNode list = node.at("processors");
    list.expect_list();
    for (size_t i = 0; i < list.json.size(); ++i) read_post_processor(list.at(i), config);
  } else if (type == "TemplateProcessing") {
    const JsonNode pieces = node.at("single");
    pieces.expect_list();
    if (pieces.json.empty() || !pieces.at(size_t{0}).has("SpecialToken")) return;
    config.bos_token = pieces.at(size_t{0}).at("SpecialToken").at("id").string();
  }
}

void read_tokenizer_json(Reader& reader, BpeConfig& config) {
  const Json json = reader.read_json("tokenizer.json");
  const JsonNode root{json, reader.where("tokenizer.json")};
  // What it is comes first: a WordPiece tokenizer's file is refused for that.
  read_model(root.at("model"), config);
  if (root.has("normalizer")) {
    const JsonNode normalizer = root.at("normalizer");
    bool empty = normalizer.json.is_object() && normalizer.json.value("type", "") == "Sequence" &&
                 normalizer.json.value("normalizers", Json()).empty();
    if (!empty) normalizer.expected("none: decoding could not give the text back");
  }
  read_pre_tokenizer(root.at("pre_tokenizer"), config);
  root.at("decoder").expect_type("ByteLevel", kOnlyByteLevel);
  if (root.has("post_processor")) read_post_processor(root.at("post_processor"), config);
  if (!root.has("added_tokens")) return;
  config.added_tokens = read_added_tokens(root.at("added_tokens"));
}

// added_tokens_decoder of tokenizer_config.json, and added_tokens.json: tokens with ids, by id.
void read_more_tokens(Reader& reader, const JsonNode& settings, BpeConfig& config) {
  std::vector<AddedToken> listed;
  if (settings.has("added_tokens_decoder")) {
    const JsonNode tokens = settings.at("added_tokens_decoder");
    tokens.expect_object();
    for (const auto& [key, value] : tokens.json.items()) {
      const JsonNode node{value, tokens.where + "." + key};
      AddedToken token = read_added_token(node, false);
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
      if (error != std::errc() || end != key.data() + key.size() || token.id < 0)
        node.expected("its id as the key");
      listed.push_back(std::move(token));
    }
  }
  const Json more = reader.read_json("added_tokens.json");
  for (AddedToken& token : read_added_token_ids({more, reader.where("added_tokens.json")})) {
    listed.push_back(std::move(token));
  }
  std::stable_sort(listed.begin(), listed.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  for (AddedToken& token : listed) add_new(std::move(token), config.added_tokens);
}

// tokenizer_config.json and the older files beside it: more added tokens, and which of them ends a document.
void read_settings(Reader& reader, BpeConfig& config) {
  const bool only_vocab = config.files[0].name != "tokenizer.json";
  const bool has_settings = reader.has("tokenizer_config.json");
  const Json json = reader.read_json("tokenizer_config.json");
  const JsonNode root{json, reader.where("tokenizer_config.json")};
  const Json map_json = reader.read_json("special_tokens_map.json");
  const JsonNode map{map_json, reader.where("special_tokens_map.json")};
  if (only_vocab) root.read("add_prefix_space", config.add_prefix_space);
  read_more_tokens(reader, root, config);

  for (const std::string_view role :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const char* const key = role.data();
    AddedToken token;
    token.special = true;
    // GPT2Tokenizer's defaults.
    if (only_vocab && (role == "bos_token" || role == "eos_token" || role == "unk_token"))
      token.content = kEndOfText;
    if (json.contains(key) || map_json.contains(key)) {  // null: none
      const JsonNode& source = json.contains(key) ? root : map;
      token.content.clear();
      if (source.has(key)) token = read_added_token(source.at(key), true);
    }
    if (role == "eos_token") config.eos_token = token.content;
    add_new(std::move(token), config.added_tokens);
  }
  add_other_special(root, map, config.added_tokens);
  if (has_settings) return;

  // tokenizer.json does not say which token ends a document.
  for (const AddedToken& token : config.added_tokens) {
    if (config.eos_token.empty() && (token.content == kEndOfText || token.content == "<|end_of_text|>")) {
      config.eos_token = token.content;
    }
  }
  Json settings{{"tokenizer_class", only_vocab ? "GPT2Tokenizer" : "PreTrainedTokenizerFast"}};
  if (!config.eos_token.empty()) settings["eos_token"] = config.eos_token;
  config.files.push_back({"tokenizer_config.json", settings.dump(2) + "\n"});
}

}  // namespace

BpeConfig load_bpe_config(const fs::path& path) {
  BpeConfig config;
  const bool is_directory = fs::is_directory(path);
  Reader reader(is_directory ? path : path.parent_path(), config);
  const std::string name = path.filename().string();
  if (!is_directory && name != "tokenizer.json" && name != "vocab.json" && name != "merges.txt") {
    fail<DataError>("{}: not a tokenizer's file; expected tokenizer.json, vocab.json or merges.txt",
                    path.string());
  }
  if (is_directory ? reader.has("tokenizer.json") : name == "tokenizer.json") {
    read_tokenizer_json(reader, config);
  } else if (reader.has("vocab.json") && reader.has("merges.txt")) {
    const Json vocab = reader.read_json("vocab.json");
    read_vocab({vocab, reader.where("vocab.json")}, config);
    read_merges_txt(reader.read("merges.txt"), reader.path("merges.txt").string(), config);
  } else {
    fail<DataError>(
        "{}: no byte-level BPE tokenizer: got neither tokenizer.json nor vocab.json with merges.txt{}",
        path.string(),
        reader.has("vocab.txt") ? "; vocab.txt is WordPiece's, which cannot give text back" : "");
  }
  read_settings(reader, config);
  return config;
}

}  // namespace trainer::text
