#include "model/bert.h"

#include <catch2/catch.hpp>

#include "model_fixture.h"

namespace trainer::model {
namespace {

using spec::ProblemType;

struct Problem {
  ProblemType type;
  std::string name;
  int64_t num_labels;
};
const Problem kProblems[] = {{ProblemType::kSingleLabel, "single_label_classification", 3},
                             {ProblemType::kMultiLabel, "multi_label_classification", 4},
                             {ProblemType::kRegression, "regression", 1}};

double relative_difference(const at::Tensor& got, const at::Tensor& expected) {
  return ((got - expected).norm() / (expected.norm() + 1e-6)).item<double>();
}

std::vector<at::Tensor> gradients(const BertClassifier& model) {
  std::vector<at::Tensor> list;
  for (const at::Tensor& parameter : model.parameters()) list.push_back(parameter.grad());
  return list;
}

// A tiny model without dropout and with the reference's classifier.
std::shared_ptr<BertClassifier> reference_model(const Problem& problem, const SafetensorsFile& reference,
                                                spec::Precision precision = spec::Precision::kFp32) {
  Job job = tiny_job(problem.type, problem.num_labels);
  job.spec.model.hidden_dropout = job.spec.model.attention_dropout = 0;
  job.spec.train.precision = precision;
  auto model = make_bert(job);
  const at::NoGradGuard no_grad;
  for (const char* name : {"classifier.weight", "classifier.bias"}) {
    model->named_parameters()[name].copy_(reference.tensor(problem.name + "." + name));
  }
  return model;
}

}  // namespace

TEST_CASE("logits, losses and gradients of ragged batches equal those of transformers") {
  const SafetensorsFile reference(kReferenceBert / "reference.safetensors");
  for (const Problem& problem : kProblems) {
    INFO(problem.name);
    const auto model = reference_model(problem, reference);
    data::Batch batch = reference_batch(reference);
    batch.labels = reference.tensor(problem.name + ".labels");
    const Output output = model->forward(batch);
    CHECK(at::allclose(output.logits, reference.tensor(problem.name + ".logits"), 0, 1e-5));
    CHECK(at::allclose(output.loss_sum, reference.tensor(problem.name + ".loss_sum"), 1e-5));
    output.loss_sum.backward();
    int num_compared = 0;
    for (auto& [name, gradient] : model->hf_views(gradients(*model))) {
      const std::string key = problem.name + ".gradient." + name;
      if (!reference.tensors().contains(key)) continue;
      INFO(name);
      at::Tensor got = gradient;
      if (name.ends_with("word_embeddings.weight")) {
        got = gradient.index_select(0, reference.tensor(problem.name + ".gradient_rows"));
        CHECK(got.norm().item<float>() == gradient.norm().item<float>());
      }
      // Softmax does not see a shift of all keys: that gradient is zero, both have rounding errors.
      const bool is_zero = name.ends_with("key.bias");
      CHECK((is_zero ? got.norm().item<double>() : relative_difference(got, reference.tensor(key))) < 1e-4);
      ++num_compared;
    }
    CHECK(num_compared >= 10);
  }
}

TEST_CASE("in half precision logits and gradients stay near those of fp32") {
  const SafetensorsFile reference(kReferenceBert / "reference.safetensors");
  const Problem& problem = kProblems[0];
  for (const auto& [precision, tolerance] :
       {std::pair{spec::Precision::kBf16, 0.05}, std::pair{spec::Precision::kFp16, 0.01}}) {
    const auto model = reference_model(problem, reference, precision);
    data::Batch batch = reference_batch(reference);
    batch.labels = reference.tensor(problem.name + ".labels");
    const Output output = model->forward(batch);
    CHECK(output.logits.scalar_type() == at::kFloat);
    CHECK(relative_difference(output.logits, reference.tensor(problem.name + ".logits")) < tolerance);
    output.loss_sum.backward();
    for (auto& [name, gradient] : model->hf_views(gradients(*model))) {
      const std::string key = problem.name + ".gradient." + name;
      if (name.ends_with("key.bias") || name.ends_with("word_embeddings.weight")) continue;
      INFO(name);
      CHECK(gradient.scalar_type() == at::kFloat);
      CHECK(relative_difference(gradient, reference.tensor(key)) < tolerance);
    }
  }
}

TEST_CASE("a sequence's logits do not depend on the batch it is in, with dropout too") {
  const SafetensorsFile reference(kReferenceBert / "reference.safetensors");
  const auto model = make_bert(tiny_job());
  const data::Batch batch = reference_batch(reference);
  const int64_t begin = batch.cu_seqlens[1].item<int64_t>(), length = batch.seqlens[1];
  data::Batch one = make_batch(at::tensor({length}), batch.input_ids.narrow(0, begin, length),
                               batch.token_type_ids.narrow(0, begin, length));
  one.row_keys = batch.row_keys.narrow(0, begin, length);
  for (const bool training : {false, true}) {
    model->train(training);
    CHECK(at::allclose(model->forward(batch).logits[1], model->forward(one).logits[0], 0, 1e-5));
  }
  model->eval();
  const at::Tensor without = model->forward(batch).logits;
  model->train();
  const at::Tensor with = model->forward(batch).logits;
  CHECK_FALSE(at::allclose(without, with, 0, 1e-3));
  CHECK(at::equal(model->forward(batch).logits, with));  // no state: the same keys, the same masks
}

TEST_CASE("an empty batch gives zero loss and zero gradients, even beside infinite parameters") {
  const auto model = make_bert(tiny_job());
  {
    const at::NoGradGuard no_grad;
    model->parameters()[0].fill_(std::numeric_limits<float>::infinity());
  }
  data::Batch batch =
      make_batch(at::empty({0}, at::kLong), at::empty({0}, at::kLong), at::empty({0}, at::kLong));
  CHECK_FALSE(model->forward(batch).loss_sum.defined());
  batch.labels = at::empty({0}, at::kLong);
  const Output output = model->forward(batch);
  CHECK(output.logits.sizes() == at::IntArrayRef({0, 3}));
  CHECK(output.loss_sum.item<float>() == 0);
  output.loss_sum.backward();
  for (const at::Tensor& gradient : gradients(*model)) {
    REQUIRE(gradient.defined());
    CHECK(gradient.abs().max().item<float>() == 0);
  }
}

TEST_CASE("biases and norms are told from what weight decay is for") {
  const auto model = make_bert(tiny_job());
  CHECK(model->is_bias_or_norm("bert.embeddings.LayerNorm.weight"));
  CHECK(model->is_bias_or_norm("bert.encoder.layer.0.attention.self.qkv.bias"));
  CHECK_FALSE(model->is_bias_or_norm("bert.encoder.layer.0.attention.self.qkv.weight"));
  CHECK_FALSE(model->is_bias_or_norm("bert.embeddings.word_embeddings.weight"));

  ParameterCount weights, rest;
  for (const auto& item : model->named_parameters())
    (model->is_bias_or_norm(item.key()) ? rest : weights) += {item.value().numel(), 1};
  CHECK(weights == model->config().weights(3));
  CHECK(rest == model->config().biases_and_norms(3));
}

TEST_CASE("floating-point operations are those of the matrix products that are executed") {
  // C = 32, I = 64, 2 layers, L = 3; lengths 2 and 3: N = 5, pairs = 13. By hand:
  // query, key, value: 2 x 5 x 3 x 32 x 32; scores and context: 2 x 13 x 2 x 32; output and MLP of 5 rows,
  // then of the 2 first tokens: (5 + 2) x (32 x 32 + 2 x 32 x 64); pooler and classifier: 2 x 32 x (32 + 3).
  const double macs =
      2 * 5 * 3 * 32 * 32 + 2 * 13 * 2 * 32 + (5 + 2) * (32 * 32 + 2 * 32 * 64) + 2 * 32 * (32 + 3);
  data::Batch batch;
  batch.seqlens = {2, 3};
  CHECK(make_bert(tiny_job())->forward_flops(batch) == 2 * macs);
}

}  // namespace trainer::model
