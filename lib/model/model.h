#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/batch.h"
#include "job/job.h"
#include "kernels/attention_backend.h"
#include "text/tokenizer.h"

namespace trainer::dist {
class Communicator;
}
namespace trainer::embedding {
class ShardedEmbedding;
}
namespace trainer::records {
class FeatureMap;
}

namespace trainer::model {

struct Output {
  // [] fp32, sum over targets (B, or B × L if not single-label; a language model's: tokens with a label);
  // undefined without labels.
  at::Tensor loss_sum;
  at::Tensor logits;  // [B, L] fp32; of a language model undefined: they never exist whole
};

// What the training loop needs of a model; parameters are the torch::nn::Module's own.
class Model : public torch::nn::Module {
 public:
  // Train or eval mode as in torch::nn::Module. Computes in the job's precision, under the caller's autocast
  // or without. Dropout is a function of batch.row_keys. An empty batch gives a zero loss_sum that still
  // depends on every parameter.
  virtual Output forward(const data::Batch& batch) = 0;
  // Multiply-accumulates × 2 of a forward pass; a training step executes 3 times it.
  virtual double forward_flops(const data::Batch& batch) const = 0;
  // In training, of every layer; of a model without attention nothing.
  virtual std::optional<kernels::AttentionShape> attention_shape() const = 0;
  // The tables that are no parameters of the module: they update themselves. Null: none.
  virtual embedding::ShardedEmbedding* embeddings() { return nullptr; }
  // Parameters that weight decay should spare by default: biases and norms.
  virtual bool is_bias_or_norm(const std::string& parameter_name) const = 0;
  // Writes a Hugging Face directory (config.json, model.safetensors, tokenizer files). Not atomic: the caller
  // renames. Throws CheckpointError.
  virtual void save_pretrained(const std::filesystem::path& directory) const = 0;
  // The exact inverse: fills the parameters from what save_pretrained() of the same model wrote. Throws CheckpointError
  // naming what is missing or of another shape.
  virtual void load_pretrained(const std::filesystem::path& directory) = 0;
};

// How a loaded directory and the model's weights differ, by transformers' names.
struct LoadReport {
  std::vector<std::string> newly_initialized;  // in the model, not in the files
  std::vector<std::string> unused;             // in the files, not in the model

  // What is not usual, as a new classifier or a head that is left are: layers that only one side has, any new weight of a
  // language model. Empty: nothing.
  std::string warning(spec::ModelType type) const;
};

struct Loaded {
  std::shared_ptr<Model> model;
  LoadReport report;
};

// What a model must know of the job's tokenizer.
struct TokenizerInfo {
  int64_t vocab_size = 0;                       // 0: not known; else no id must be out of the embedding table
  std::optional<int64_t> eos_id = {};           // for a new model's config.json
  std::vector<text::TokenizerFile> files = {};  // saved beside the weights; empty: those of model.pretrained
};

// What a model must know of the job's data.
struct DataInfo {
  TokenizerInfo tokenizer = {};
  std::shared_ptr<const records::FeatureMap> features = {};  // of a recommender
};

// Builds the job's model and loads its weights: parameters fp32, on CPU; a recommender's tables where the job has its device,
// this rank's part of them. Random initialization is a function of job.seed. Throws SpecError or CheckpointError. Of a
// recommender a collective; `communicator` outlives the model.
Loaded make_model(const Job& job, const DataInfo& data, dist::Communicator& communicator);
// Of other models, which are whole on every rank.
Loaded make_model(const Job& job, const TokenizerInfo& tokenizer = {});
// Whether that will load: reads the headers of the pretrained weights alone. Reports and throws as make_model().
LoadReport check_weights(const Job& job, const DataInfo& data);
LoadReport check_weights(const Job& job, const TokenizerInfo& tokenizer = {});

}  // namespace trainer::model
