#include "train/job_data.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <tuple>

#include "core/error.h"
#include "data/click_records.h"
#include "data/open_windows.h"
#include "data/text_classification.h"
#include "job/gpt_config.h"
#include "metrics/language.h"
#include "metrics/recommender.h"
#include "records/feature_map.h"
#include "records/open.h"
#include "text/wordpiece/wordpiece.h"

namespace trainer::train {
namespace {

JobData open_classification(const Job& job, bool needs_labels) {
  const auto tokenizer =
      std::make_shared<const text::WordPiece>(text::WordPiece::load(job.spec.model.pretrained));
  JobData data;
  data.info.tokenizer.vocab_size = tokenizer->vocab_size();
  const auto& [train, validation] = std::tie(job.spec.data.train, job.spec.data.validation);
  data.train = data::open_text_classification(job, train, tokenizer, needs_labels);
  if (validation == train) {
    data.validation = data.train;
  } else if (!validation.path.empty()) {
    data.validation = data::open_text_classification(job, validation, tokenizer, needs_labels);
  }
  return data;
}

JobData open_language(const Job& job) {
  const int64_t threads = at::get_num_threads();
  const auto tokenizer = data::open_tokenizer(job, threads);
  JobData data;
  if (tokenizer) {
    data.info.tokenizer = {tokenizer->vocab_size(), tokenizer->eos_id(), tokenizer->files()};
  }
  const int64_t vocab_size = load_gpt_config(job, data.info.tokenizer.vocab_size).vocab_size;
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

// A pretrained model's own map counts; a new one is fitted.
JobData open_clicks(const Job& job, bool needs_labels) {
  const spec::Model& model = job.spec.model;
  const int64_t threads = at::get_num_threads();
  records::RecordSets sets;
  if (model.init == spec::ModelInit::kPretrained) {
    sets.map = std::make_shared<const records::FeatureMap>(records::FeatureMap::load(model.pretrained));
    const auto& [train, validation] = std::tie(job.spec.data.train, job.spec.data.validation);
    sets.train = records::open_records(train, *sets.map, needs_labels, threads);
    if (validation == train) {
      sets.validation = sets.train;
    } else if (!validation.path.empty()) {
      sets.validation = records::open_records(validation, *sets.map, needs_labels, threads);
    }
  } else {
    sets = records::open_records(job.spec.data, model.recommender, threads);
  }
  const auto dataset = [&](std::shared_ptr<const records::Records> rows) {
    return rows ? std::make_shared<const data::ClickRecords>(std::move(rows), sets.map->info()) : nullptr;
  };
  JobData data;
  data.info.features = sets.map;
  data.train = dataset(sets.train);
  data.validation = dataset(sets.validation);
  return data;
}

}  // namespace

JobData open_job_data(const Job& job, bool needs_labels) {
  switch (job.spec.model.type) {
    case spec::ModelType::kGpt:
      return open_language(job);
    case spec::ModelType::kRecommender:
      return open_clicks(job, needs_labels);
    case spec::ModelType::kBertClassifier:
      break;
  }
  return open_classification(job, needs_labels);
}

DataSize data_size(const JobData& data, int64_t samples, int64_t steps) {
  DataSize size{.samples = samples, .steps = steps, .tokenizer_vocab_size = data.info.tokenizer.vocab_size};
  if (data.info.features) size.features = data.info.features->info();
  return size;
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
