// Runs a model on one batch, for comparison with transformers:
//
//   model_dump DIRECTORY PROBLEM NUM_LABELS INPUT OUTPUT SAVED     a classifier
//   model_dump JOB INPUT OUTPUT SAVED                              the gpt of a job's YAML
//
// INPUT (safetensors): lengths [B], input_ids [N], token_type_ids [N] (a classifier's), labels. OUTPUT
// (safetensors): logits in eval mode; loss_sum and gradient.<name> in train mode without dropout. SAVED: a
// directory, made by save_pretrained.
#include <cstdio>
#include <map>

#include "core/error.h"
#include "model/bert.h"
#include "model/gpt.h"
#include "spec/load.h"

namespace {

using trainer::spec::ProblemType;

const std::map<std::string, ProblemType> kProblems = {
    {"single_label_classification", ProblemType::kSingleLabel},
    {"multi_label_classification", ProblemType::kMultiLabel},
    {"regression", ProblemType::kRegression}};

trainer::data::Batch read_batch(const trainer::model::SafetensorsFile& file) {
  trainer::data::Batch batch;
  batch.input_ids = file.tensor("input_ids");
  if (file.tensors().contains("token_type_ids")) batch.token_type_ids = file.tensor("token_type_ids");
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

void dump(trainer::model::HfModel& model, const at::Tensor& logits, const trainer::data::Batch& batch,
          const char* output_path, const char* saved) {
  model.train();
  const at::Tensor loss_sum = model.forward(batch).loss_sum;
  loss_sum.backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : model.parameters()) gradients.push_back(parameter.grad());
  trainer::model::NamedTensors output{{"logits", logits}, {"loss_sum", loss_sum}};
  for (auto& [name, gradient] : model.hf_views(gradients)) output.emplace_back("gradient." + name, gradient);
  trainer::model::write_safetensors(output_path, output);
  model.save_pretrained(saved);
}

void dump_classifier(char** arguments) {
  trainer::Job job;
  job.spec.model.pretrained = arguments[1];
  job.spec.model.problem_type = kProblems.at(arguments[2]);
  job.spec.model.num_labels = std::stoll(arguments[3]);
  job.spec.model.hidden_dropout = job.spec.model.attention_dropout = job.spec.model.classifier_dropout = 0;
  const auto model =
      std::dynamic_pointer_cast<trainer::model::BertClassifier>(trainer::model::make_model(job).model);
  const auto batch = read_batch(trainer::model::SafetensorsFile(arguments[4]));
  const at::NoGradGuard no_grad;
  model->eval();
  const at::Tensor logits = model->forward(batch).logits;
  const at::AutoGradMode with_gradients(true);
  dump(*model, logits, batch, arguments[5], arguments[6]);
}

void dump_gpt(char** arguments) {
  const trainer::Job job = trainer::resolve(trainer::spec::load(arguments[1], {}), trainer::World(), 0);
  const auto model = std::dynamic_pointer_cast<trainer::model::Gpt>(trainer::model::make_model(job).model);
  const auto batch = read_batch(trainer::model::SafetensorsFile(arguments[2]));
  dump(*model, model->logits(batch), batch, arguments[3], arguments[4]);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 7) {
      dump_classifier(argv);
    } else if (argc == 5) {
      dump_gpt(argv);
    } else {
      trainer::fail<trainer::SpecError>("got {} arguments; expected 6 or 4, as in model_dump.cpp", argc - 1);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "model_dump: %s\n", error.what());
    return 1;
  }
}
