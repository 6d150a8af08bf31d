#pragma once

#include <string>
#include <utility>
#include <vector>

#include "job/bert_config.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "model/safetensors.h"

namespace trainer::model {

// transformers' BertForSequenceClassification (Devlin et al. 2018, arXiv:1810.04805) over packed tokens: no
// computation on padding. Parameters have transformers' names, but query, key and value are one:
// "...attention.self.qkv.weight" [3 C, C]. After the last layer's attention only first tokens go on: the
// classifier reads no other.
class BertClassifier : public Model {
 public:
  // What the job adds to a model's directory.
  struct Options {
    int64_t num_labels = 2;
    spec::ProblemType problem_type = spec::ProblemType::kSingleLabel;
    at::ScalarType compute_dtype = at::kFloat;
    std::vector<std::string> label_names;  // empty: LABEL_0, ...
    // Files that are saved beside the weights: {name, contents}.
    std::vector<std::pair<std::string, std::string>> tokenizer_files;
  };

  // Parameters are allocated, not initialized: see hf_weights.h.
  BertClassifier(BertConfig config, Options options);

  Output forward(const data::TextBatch& batch) override;
  double forward_flops(const std::vector<int32_t>& seqlens) const override;
  bool is_bias_or_norm(const std::string& parameter_name) const override;
  void save_pretrained(const std::filesystem::path& directory) const override;

  const BertConfig& config() const { return config_; }
  // `per_parameter` (a tensor for each of parameters(), in order and of its shape: values or gradients) as
  // views by transformers' names.
  NamedTensors hf_views(const std::vector<at::Tensor>& per_parameter) const;

 private:
  struct Affine {
    at::Tensor weight, bias;
  };
  struct Layer {
    Affine qkv, attention_output, attention_norm, intermediate, output, output_norm;
  };
  // Two precisions of one [N, C]: the next residual (fp32) and the next linear layer's input.
  struct Hidden {
    at::Tensor residual, input;
  };

  // Registers a parameter under a dotted path, making the modules on the way.
  at::Tensor parameter(const std::string& path, at::IntArrayRef shape);
  Affine affine(const std::string& path, at::IntArrayRef weight_shape);
  kernels::Dropout dropout(double p, const at::Tensor& row_keys, uint32_t site) const;
  double classifier_dropout() const {
    return config_.classifier_dropout.value_or(config_.hidden_dropout_prob);
  }
  Hidden embed(const data::TextBatch& batch) const;
  at::Tensor logits(const data::TextBatch& batch) const;
  Output empty_output(const data::TextBatch& batch) const;

  BertConfig config_;
  Options options_;
  at::Tensor word_embeddings_, position_embeddings_, token_type_embeddings_;
  Affine embeddings_norm_, pooler_, classifier_;
  std::vector<Layer> layers_;
};

}  // namespace trainer::model
