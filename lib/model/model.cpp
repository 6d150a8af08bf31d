#include "model/model.h"

#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "model/bert.h"
#include "model/gpt.h"
#include "model/layers.h"
#include "text/tokenizer.h"

namespace trainer::model {
namespace {

namespace fs = std::filesystem;

void check_directory(const fs::path& directory, bool is_gpt) {
  const std::string_view hint = is_gpt ? "hint: any Hugging Face directory of a GPT-2 or a Llama with "
                                         "config.json and model.safetensors serves"
                                       : "hint: scripts/setup.sh makes assets/minilm-l6; any Hugging Face "
                                         "directory of a BERT with config.json, "
                                         "model.safetensors and vocab.txt serves";
  if (directory.empty()) {
    fail<SpecError>("model.pretrained: got nothing; expected a Hugging Face directory; {}", hint);
  }
  if (!fs::is_directory(directory)) {
    fail<SpecError>("model.pretrained: {} is not a directory; {}", directory.string(), hint);
  }
  if (!fs::exists(directory / "config.json")) {
    fail<SpecError>("model.pretrained: {} has no config.json; {}", directory.string(), hint);
  }
}

// Kept in memory (megabytes): saving must not depend on a directory that may be gone by then.
Files tokenizer_files(const TokenizerInfo& tokenizer, const fs::path& directory) {
  if (!tokenizer.files.empty() || directory.empty()) return tokenizer.files;
  Files files;
  for (const std::string& name : text::tokenizer_files(directory)) {
    files.push_back({name, read_file(directory / name)});
  }
  return files;
}

std::shared_ptr<HfModel> make_bert(const Job& job, const TokenizerInfo& tokenizer) {
  const spec::Model& spec = job.spec.model;
  check_directory(spec.pretrained, false);
  BertConfig config = load_bert_config(job, tokenizer.vocab_size);
  config.hidden_dropout_prob = spec.hidden_dropout.value_or(config.hidden_dropout_prob);
  config.attention_probs_dropout_prob = spec.attention_dropout.value_or(config.attention_probs_dropout_prob);
  if (spec.classifier_dropout) config.classifier_dropout = spec.classifier_dropout;
  return std::make_shared<BertClassifier>(
      std::move(config),
      BertClassifier::Options{.num_labels = spec.num_labels,
                              .problem_type = spec.problem_type,
                              .compute_dtype = compute_dtype(job.spec.train.precision),
                              .label_names = job.spec.data.label_names,
                              .tokenizer_files = tokenizer_files(tokenizer, spec.pretrained)});
}

std::shared_ptr<HfModel> make_gpt(const Job& job, const TokenizerInfo& tokenizer) {
  const spec::Model& spec = job.spec.model;
  if (!spec.pretrained.empty()) check_directory(spec.pretrained, true);
  GptConfig config = load_gpt_config(job, tokenizer.vocab_size);
  if (config.json.empty() && tokenizer.eos_id) config.eos_token_ids = {*tokenizer.eos_id};
  Files files = tokenizer_files(tokenizer, spec.pretrained);
  // How transformers samples from it.
  constexpr const char* kGeneration = "generation_config.json";
  if (const fs::path file = fs::path(spec.pretrained) / kGeneration;
      !spec.pretrained.empty() && fs::exists(file)) {
    files.push_back({kGeneration, read_file(file)});
  }
  return std::make_shared<Gpt>(std::move(config),
                               Gpt::Options{.compute_dtype = compute_dtype(job.spec.train.precision),
                                            .recompute = job.spec.train.recompute,
                                            .tokenizer_files = std::move(files)});
}

// Its weights are allocated, not set.
std::shared_ptr<HfModel> make_empty(const Job& job, const TokenizerInfo& tokenizer) {
  return job.spec.model.type == spec::ModelType::kGpt ? make_gpt(job, tokenizer) : make_bert(job, tokenizer);
}

// Of a layer by its number: "encoder.layer.3.", "h.3.", "layers.3.".
bool is_of_layer(const std::string& name) {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    const size_t end = name.find_first_not_of("0123456789", dot + 1);
    if (end != std::string::npos && end > dot + 1 && name[end] == '.') return true;
  }
  return false;
}

}  // namespace

std::string LoadReport::warning(spec::ModelType type) const {
  // A classifier's head is new.
  const bool has_head = type == spec::ModelType::kBertClassifier;
  const auto fresh = std::count_if(newly_initialized.begin(), newly_initialized.end(),
                                   [&](const std::string& name) { return !has_head || is_of_layer(name); });
  const auto left = std::count_if(unused.begin(), unused.end(), is_of_layer);
  if (fresh == 0 && left == 0) return "";
  std::string text = "model.pretrained: config.json and the weights are not of one model: ";
  if (fresh > 0) text += fmt::format("{} weights are in no file and begin as random numbers", fresh);
  if (left > 0) text += fmt::format("{}{} in the files are not used", fresh > 0 ? "; " : "", left);
  return text;
}

LoadReport check_weights(const Job& job, const TokenizerInfo& tokenizer) {
  if (job.spec.model.init == spec::ModelInit::kRandom) return {};
  const std::string& where = job.spec.model.pretrained;
  const WeightFiles files(where);
  // Memory that is never touched is none.
  return check_weights(*make_empty(job, tokenizer), files, where);
}

Loaded make_model(const Job& job, const TokenizerInfo& tokenizer) {
  const spec::Model& spec = job.spec.model;
  auto model = make_empty(job, tokenizer);
  const auto seed = static_cast<uint64_t>(job.spec.job.seed);
  LoadReport report;
  if (spec.init == spec::ModelInit::kRandom) {
    load_weights(*model, nullptr, spec.pretrained, seed);
  } else {
    const WeightFiles files(spec.pretrained);
    report = load_weights(*model, &files, spec.pretrained, seed);
  }
  return {std::move(model), std::move(report)};
}

}  // namespace trainer::model
