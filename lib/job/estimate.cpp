#include "job/estimate.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"

// C channels (hidden size), I intermediate size, L layers.

namespace trainer {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Matrices of the encoder's linear layers: those that autocast keeps a copy of in the compute type.
int64_t matrix_parameters(const BertShape& b) {
  return b.num_layers * (4 * b.hidden_size * b.hidden_size + 2 * b.hidden_size * b.intermediate_size);
}

int64_t state_per_parameter(const spec::Optimizer& o) {
  switch (o.type) {
    case spec::OptimizerType::kAdamW:
      return 2;
    case spec::OptimizerType::kAdagrad:
      return 1;
    case spec::OptimizerType::kSgd:
      return o.momentum > 0 ? 1 : 0;
  }
  return 0;
}

// Kept for backward, a token and layer: two fp32 residuals; in the compute type the inputs of the linear
// layers (also of the output of attention), q, k, v, the outputs that dropout and norm read, and the MLP's
// middle before and after GELU. Dropout keeps no masks, attention no probabilities.
int64_t activation_bytes_per_token(const BertShape& b, int64_t compute_bytes) {
  const int64_t copies = compute_bytes < 4 ? 2 : 0;  // of the residuals, as inputs of linear layers
  return 2 * 4 * b.hidden_size + compute_bytes * ((6 + copies) * b.hidden_size + 2 * b.intermediate_size);
}

}  // namespace

BertShape BertShape::load(const std::filesystem::path& config_json) {
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(read_file(config_json));
  } catch (const DataError& error) {
    throw SpecError(error.what());
  } catch (const nlohmann::json::exception& error) {
    fail<SpecError>("{}: not valid JSON: {}", config_json.string(), error.what());
  }
  if (!json.is_object()) fail<SpecError>("{}: expected a JSON object", config_json.string());
  const auto type = json.value("model_type", nlohmann::json("bert"));
  if (type != "bert")
    fail<SpecError>("{}: model_type: got {}; expected \"bert\"", config_json.string(), type.dump());
  const auto size = [&](const char* key, int64_t otherwise) {  // as transformers' BertConfig
    const auto it = json.find(key);
    if (it == json.end()) return otherwise;
    if (!it->is_number_integer() || it->get<int64_t>() < 1 || it->get<int64_t>() > 100'000'000) {
      fail<SpecError>("{}: {}: got {}; expected an integer from 1 to 100000000", config_json.string(), key,
                      it->dump());
    }
    return it->get<int64_t>();
  };
  BertShape shape;
  shape.vocab_size = size("vocab_size", 30522);
  shape.hidden_size = size("hidden_size", 768);
  shape.num_layers = size("num_hidden_layers", 12);
  shape.intermediate_size = size("intermediate_size", 3072);
  shape.max_positions = size("max_position_embeddings", 512);
  shape.type_vocab_size = size("type_vocab_size", 2);
  return shape;
}

int64_t BertShape::parameters(int64_t num_labels) const {
  const int64_t c = hidden_size, i = intermediate_size;
  const int64_t norm = 2 * c;
  const int64_t embeddings = (vocab_size + max_positions + type_vocab_size) * c + norm;
  const int64_t layer = 4 * (c * c + c) + norm + (c * i + i) + (i * c + c) + norm;
  return embeddings + num_layers * layer + (c * c + c) + (c * num_labels + num_labels);
}

double BertShape::forward_flops(double sequences, double tokens, int64_t num_labels) const {
  const auto c = static_cast<double>(hidden_size), i = static_cast<double>(intermediate_size);
  const auto layers = static_cast<double>(num_layers);
  const double rows = sequences * tokens;
  const double attention =
      layers * (3 * rows * c * c + 2 * rows * tokens * c);  // q, k, v; q k^T and its product with v
  const double rest = (rows * (layers - 1) + sequences) * (c * c + 2 * c * i);  // output projection and MLP
  const double head = sequences * c * (c + static_cast<double>(num_labels));
  return 2 * (attention + rest + head);
}

Estimate estimate(const Job& job, const DataSize& data) {
  const auto& spec = job.spec;
  const auto& train = spec.train;
  const BertShape shape = BertShape::load(std::filesystem::path(spec.model.pretrained) / "config.json");
  const int64_t compute_bytes = train.precision == spec::Precision::kFp32 ? 4 : 2;
  Estimate e;
  e.parameters = e.trainable = shape.parameters(spec.model.num_labels);
  e.weight_bytes = 4 * e.parameters + (compute_bytes < 4 ? compute_bytes * matrix_parameters(shape) : 0);
  e.gradient_bytes = 4 * e.trainable;
  e.optimizer_bytes = 4 * state_per_parameter(spec.optimizer) * e.trainable;
  const int64_t most_tokens =
      train.batch_tokens > 0 ? train.batch_tokens : train.batch_size * spec.data.max_length;
  e.activation_bytes = most_tokens * shape.num_layers * activation_bytes_per_token(shape, compute_bytes);
  e.tokens_per_sequence = data.mean_tokens > 0 ? data.mean_tokens : static_cast<double>(spec.data.max_length);
  double step_sequences = static_cast<double>(job.global_batch);
  if (train.batch_tokens > 0) {
    const double limit = static_cast<double>(train.batch_tokens) / e.tokens_per_sequence;
    step_sequences = std::min(limit, static_cast<double>(train.batch_size)) *
                     static_cast<double>(train.gradient_accumulation * job.world.size);
  } else if (data.samples > 0) {
    e.steps_per_epoch = ceil_div(data.samples, job.global_batch);
  }
  e.step_flops = 3 * shape.forward_flops(step_sequences, e.tokens_per_sequence, spec.model.num_labels);
  e.steps = train.steps.value_or(train.epochs.value_or(0) * e.steps_per_epoch);
  return e;
}

}  // namespace trainer
