#include "train/job_data.h"

#include <ATen/ATen.h>

#include "data/language.h"
#include "data/subset.h"
#include "data/text_classification.h"
#include "text/wordpiece.h"

namespace trainer::train {
namespace {

JobData open_classification(const Job& job) {
  const auto tokenizer =
      std::make_shared<const text::WordPiece>(text::WordPiece::load(job.spec.model.pretrained));
  JobData data;
  data.tokenizer.vocab_size = tokenizer->vocab_size();
  data.train = data::open_text_classification(job, job.spec.data.train, tokenizer);
  if (!job.spec.data.validation.path.empty()) {
    data.validation = data::open_text_classification(job, job.spec.data.validation, tokenizer);
  }
  return data;
}

JobData open_language(const Job& job) {
  data::LanguageData language = data::open_language(job);
  JobData data;
  const text::Tokenizer& tokenizer = *language.tokenizer;
  data.tokenizer = {tokenizer.vocab_size(), tokenizer.eos_id(), tokenizer.files()};
  std::vector<int32_t> token_bytes;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    token_bytes.push_back(static_cast<int32_t>(tokenizer.token_bytes(id).size()));
  }
  data.token_bytes = at::tensor(token_bytes, at::kInt);
  data.train = std::move(language.train);
  data.validation = std::move(language.validation);
  return data;
}

}  // namespace

JobData open_job_data(const Job& job) {
  JobData data = job.spec.model.type == spec::ModelType::kGpt ? open_language(job) : open_classification(job);
  const int64_t most = job.spec.evaluation.samples;
  if (data.validation && most > 0 && most < data.validation->size()) {
    data.validation = std::make_shared<const data::Subset>(std::move(data.validation), most);
  }
  return data;
}

std::unique_ptr<metrics::EvaluationMetrics> make_evaluation_metrics(const Job& job, const JobData& data,
                                                                    c10::Device device) {
  const auto& wanted = job.spec.evaluation.metrics;
  if (job.spec.model.type == spec::ModelType::kGpt) {
    return std::make_unique<metrics::LanguageMetrics>(wanted, data.token_bytes, device);
  }
  return std::make_unique<metrics::ClassificationMetrics>(job.spec.model.problem_type,
                                                          job.spec.model.num_labels, wanted, device);
}

}  // namespace trainer::train
