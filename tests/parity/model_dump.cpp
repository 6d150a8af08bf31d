// Runs a classifier on one batch, for comparison with transformers:
//
//   model_dump DIRECTORY PROBLEM NUM_LABELS INPUT OUTPUT SAVED
//
// INPUT (safetensors): lengths [B], input_ids [N], token_type_ids [N], labels. OUTPUT (safetensors): logits
// in eval mode; loss_sum and gradient.<name> in train mode without dropout. SAVED: a directory, made by
// save_pretrained.
#include <cstdio>
#include <map>

#include "core/error.h"
#include "model/bert.h"

namespace {

using trainer::spec::ProblemType;

const std::map<std::string, ProblemType> kProblems = {
    {"single_label_classification", ProblemType::kSingleLabel},
    {"multi_label_classification", ProblemType::kMultiLabel},
    {"regression", ProblemType::kRegression}};

trainer::data::TextBatch read_batch(const trainer::model::SafetensorsFile& file) {
  trainer::data::TextBatch batch;
  batch.input_ids = file.tensor("input_ids");
  batch.token_type_ids = file.tensor("token_type_ids");
  batch.labels = file.tensor("labels");
  const at::Tensor lengths = file.tensor("lengths");
  std::vector<at::Tensor> positions;
  for (int64_t i = 0; i < lengths.size(0); ++i) {
    batch.seqlens.push_back(lengths[i].item<int32_t>());
    positions.push_back(at::arange(batch.seqlens.back(), at::kLong));
  }
  batch.position_ids = at::cat(positions);
  batch.cu_seqlens = at::constant_pad_nd(lengths.cumsum(0), {1, 0}).to(at::kInt);
  return batch;
}

void dump(char** arguments) {
  trainer::Job job;
  job.spec.model.pretrained = arguments[1];
  job.spec.model.problem_type = kProblems.at(arguments[2]);
  job.spec.model.num_labels = std::stoll(arguments[3]);
  job.spec.model.hidden_dropout = job.spec.model.attention_dropout = job.spec.model.classifier_dropout = 0;
  const auto model =
      std::dynamic_pointer_cast<trainer::model::BertClassifier>(trainer::model::make_model(job).model);
  const auto batch = read_batch(trainer::model::SafetensorsFile(arguments[4]));

  trainer::model::NamedTensors output;
  {
    const at::NoGradGuard no_grad;
    model->eval();
    output.emplace_back("logits", model->forward(batch).logits);
    model->train();
  }
  const at::Tensor loss_sum = model->forward(batch).loss_sum;
  loss_sum.backward();
  output.emplace_back("loss_sum", loss_sum);
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : model->parameters()) gradients.push_back(parameter.grad());
  for (auto& [name, gradient] : model->hf_views(gradients)) output.emplace_back("gradient." + name, gradient);
  trainer::model::write_safetensors(arguments[5], output);
  model->save_pretrained(arguments[6]);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 7)
      trainer::fail<trainer::SpecError>("model_dump DIRECTORY PROBLEM NUM_LABELS INPUT OUTPUT SAVED");
    dump(argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "model_dump: %s\n", error.what());
    return 1;
  }
}
