#pragma once

#include <string>
#include <vector>

#include "job/bert_config.h"
#include "kernels/ops.h"
#include "model/hf/directory.h"
#include "model/hf/weights.h"
#include "model/layers.h"

namespace trainer::model {

// transformers' BertForSequenceClassification (Devlin et al. 2018, arXiv:1810.04805) over packed tokens: no
// computation on padding. Parameters have transformers' names, but query, key and value are one:
// "...attention.self.qkv.weight" [3 C, C]. After the last layer's attention only first tokens go on: the
// classifier reads no other.
class BertClassifier : public HfModel {
 public:
  // What the job adds to a model's directory.
  struct Options {
    int64_t num_labels = 2;
    spec::ProblemType problem_type = spec::ProblemType::kSingleLabel;
    at::ScalarType compute_dtype = at::kFloat;
    std::vector<std::string> label_names;  // empty: LABEL_0, ...
    Files tokenizer_files;
  };

  // Parameters are allocated, not initialized: see hf/weights.h. Weights without the prefix "bert.", and
  // norms named gamma and beta, are understood.
  BertClassifier(BertConfig config, Options options);

  Output forward(const data::Batch& batch) override;
  double forward_flops(const data::Batch& batch) const override;
  std::optional<kernels::AttentionShape> attention_shape() const override;
  bool is_bias_or_norm(const std::string& parameter_name) const override;
  void save_pretrained(const std::filesystem::path& directory) const override;

  NamedTensors hf_views(const std::vector<at::Tensor>& per_parameter) const override;
  void initialize(const std::string& hf_name, const at::Tensor& weight,
                  at::Generator& generator) const override;
  std::vector<std::string> aliases(const std::string& hf_name) const override;
  bool is_ignored(const std::string& file_name) const override;
  std::string kind() const override { return "BERT"; }
  std::string shape_hint() const override { return "the classifier's first size is model.num_labels"; }

  const BertConfig& config() const { return config_; }

 private:
  struct Layer {
    Affine qkv, attention_output, attention_norm, intermediate, output, output_norm;
  };
  // Two precisions of one [N, C]: the next residual (fp32) and the next linear layer's input.
  struct Hidden {
    at::Tensor residual, input;
  };

  double classifier_dropout() const {
    return config_.classifier_dropout.value_or(config_.hidden_dropout_prob);
  }
  Hidden embed(const data::Batch& batch) const;
  at::Tensor logits(const data::Batch& batch) const;
  Output empty_output(const data::Batch& batch) const;

  BertConfig config_;
  Options options_;
  at::Tensor word_embeddings_, position_embeddings_, token_type_embeddings_;
  Affine embeddings_norm_, pooler_, classifier_;
  std::vector<Layer> layers_;
};

}  // namespace trainer::model
