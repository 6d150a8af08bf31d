#include "train/job_data.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "core/error.h"
#include "data/open_windows.h"
#include "data/text_classification.h"
#include "job/gpt_config.h"
#include "metrics/language.h"
#include "metrics/recommender.h"
#include "text/wordpiece/wordpiece.h"

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
  const int64_t threads = at::get_num_threads();
  const auto tokenizer = data::open_tokenizer(job, threads);
  JobData data;
  if (tokenizer) {
    data.tokenizer = {tokenizer->vocab_size(), tokenizer->eos_id(), tokenizer->files()};
  }
  const int64_t vocab_size = load_gpt_config(job, data.tokenizer.vocab_size).vocab_size;
  data::WindowSets windows = data::open_windows(job, tokenizer, vocab_size, threads);
  data.train = std::move(windows.train);
  data.validation = std::move(windows.validation);
  const auto& metrics = job.spec.evaluation.metrics;
  if (tokenizer) {
    data.token_bytes = data::token_byte_lengths(*tokenizer, vocab_size);
  } else if (data.validation && std::count(metrics.begin(), metrics.end(), spec::Metric::kBitsPerByte) > 0) {
    fail<SpecError>(
        "evaluation.metrics: got bits_per_byte, but the tokens' tokenizer is not known; expected "
        "data.tokenizer");
  }
  return data;
}

}  // namespace

JobData open_job_data(const Job& job) {
  return job.spec.model.type == spec::ModelType::kGpt ? open_language(job) : open_classification(job);
}

int64_t num_evaluation_samples(const Job& job, const JobData& data) {
  const int64_t most = job.spec.evaluation.samples, all = data.validation->size();
  return most > 0 ? std::min(most, all) : all;
}

std::unique_ptr<metrics::EvaluationMetrics> make_evaluation_metrics(const Job& job, const JobData& data,
                                                                    c10::Device device) {
  const auto& wanted = job.spec.evaluation.metrics;
  if (job.spec.model.type == spec::ModelType::kGpt) {
    return std::make_unique<metrics::LanguageMetrics>(wanted, data.token_bytes, device);
  }
  if (job.spec.model.type == spec::ModelType::kRecommender) {
    return std::make_unique<metrics::RecommenderMetrics>(wanted, num_evaluation_samples(job, data), device);
  }
  return std::make_unique<metrics::ClassificationMetrics>(job.spec.model.problem_type,
                                                          job.spec.model.num_labels, wanted, device);
}

}  // namespace trainer::train
