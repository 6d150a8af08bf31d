#include "model/model.h"

#include "core/error.h"
#include "core/file.h"
#include "model/bert.h"
#include "model/hf_weights.h"
#include "text/wordpiece.h"

namespace trainer::model {
namespace {

namespace fs = std::filesystem;

at::ScalarType compute_dtype(spec::Precision precision) {
  switch (precision) {
    case spec::Precision::kFp32:
      return at::kFloat;
    case spec::Precision::kBf16:
      return at::kBFloat16;
    case spec::Precision::kFp16:
      return at::kHalf;
  }
  return at::kFloat;
}

void check_directory(const fs::path& directory) {
  constexpr const char* kHint =
      "hint: scripts/setup.sh makes assets/minilm-l6; any Hugging Face directory of a BERT with config.json, "
      "model.safetensors and vocab.txt serves";
  if (directory.empty()) {
    fail<SpecError>("model.pretrained: got nothing; expected a Hugging Face directory; {}", kHint);
  }
  if (!fs::is_directory(directory)) {
    fail<SpecError>("model.pretrained: {} is not a directory; {}", directory.string(), kHint);
  }
  if (!fs::exists(directory / "config.json")) {
    fail<SpecError>("model.pretrained: {} has no config.json; {}", directory.string(), kHint);
  }
}

}  // namespace

Loaded make_model(const Job& job, int64_t tokenizer_vocab_size) {
  const spec::Model& spec = job.spec.model;
  const fs::path directory = spec.pretrained;
  check_directory(directory);

  BertConfig config = load_bert_config(job, tokenizer_vocab_size);
  config.hidden_dropout_prob = spec.hidden_dropout.value_or(config.hidden_dropout_prob);
  config.attention_probs_dropout_prob = spec.attention_dropout.value_or(config.attention_probs_dropout_prob);
  if (spec.classifier_dropout) config.classifier_dropout = spec.classifier_dropout;

  BertClassifier::Options options{.num_labels = spec.num_labels,
                                  .problem_type = spec.problem_type,
                                  .compute_dtype = compute_dtype(job.spec.train.precision),
                                  .label_names = job.spec.data.label_names,
                                  .tokenizer_files = {}};
  // Kept in memory (1 MB): saving must not depend on a directory that may be gone by then.
  for (const std::string& name : text::tokenizer_files(directory))
    options.tokenizer_files.emplace_back(name, read_file(directory / name));
  auto model = std::make_shared<BertClassifier>(std::move(config), std::move(options));
  const auto seed = static_cast<uint64_t>(job.spec.job.seed);
  LoadReport report;
  if (spec.init == spec::ModelInit::kRandom) {
    load_weights(*model, nullptr, directory.string(), seed);
  } else {
    const WeightFiles files(directory);
    report = load_weights(*model, &files, directory.string(), seed);
  }
  return {std::move(model), std::move(report)};
}

}  // namespace trainer::model
