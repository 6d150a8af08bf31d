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
    data::TextBatch batch = reference_batch(reference);
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

}  // namespace trainer::model
