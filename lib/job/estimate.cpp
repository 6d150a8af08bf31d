#include "job/estimate.h"

#include <algorithm>

#include "core/error.h"
#include "core/math.h"
#include "job/bert_config.h"
#include "job/embedding_plan.h"
#include "job/faults.h"
#include "job/gpt_config.h"
#include "job/recommender_config.h"
#include "spec/describe.h"

namespace trainer {
namespace {

// Of a worker that trains a model of no size.
constexpr int64_t kProgramBytes = int64_t{150} << 20;

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

double activation_bytes(const Job& job, const Estimate& e, const ModelCost& cost) {
  double beside = cost.activation_bytes + cost.first_gradient_bytes;
  // One process with one micro-batch a step frees its gradients before forward: they are made as activations
  // go.
  const bool made_anew = job.world.size == 1 && job.spec.train.gradient_accumulation == 1;
  if (made_anew) beside -= static_cast<double>(e.gradient_bytes);
  beside = std::max(beside, cost.evaluation_bytes);
  if (job.cuda) return beside;
  const double held =
      static_cast<double>(e.weight_bytes + e.gradient_bytes + e.optimizer_bytes + e.mean_bytes);
  return beside + cost.scratch_bytes + (held + beside) / 16;  // limit() of kernels/cpu_memory.cpp
}

// Over the data's features, else over those that are said.
ModelCost cost_of_recommender(const Job& job, const DataSize& data, Estimate& e) {
  const auto info = data.features ? data.features : said_features(job.spec);
  if (!info) return {};
  const RecommenderConfig c = load_recommender_config(job, *info);
  e.model = c.describe();
  e.tables = {.parameters = c.table_parameters(),
              .tables = static_cast<int64_t>(c.tables.size()),
              .knows_rows = c.knows_rows()};
  if (c.knows_rows()) {
    const EmbeddingPlanOptions options = embedding_plan_options(job, *info);
    const EmbeddingPlan plan = plan_embeddings(c.tables, options);
    const RankLoad& most = *std::max_element(
        plan.ranks.begin(), plan.ranks.end(),
        [](const RankLoad& a, const RankLoad& b) { return a.memory_bytes() < b.memory_bytes(); });
    e.tables->weight_bytes = most.weight_bytes;
    e.tables->optimizer_bytes = most.state_bytes;
    e.tables->gradient_bytes = most.gradient_bytes;
    e.tables->plan = describe_plan(c.tables, plan, options);
  }
  return recommender_cost(job, c);
}

ModelCost cost_of(const Job& job, const DataSize& data, Estimate& e) {
  switch (job.spec.model.type) {
    case spec::ModelType::kBertClassifier:
      return bert_cost(job, e.tokens_per_sequence);
    case spec::ModelType::kGpt:
      return gpt_cost(job, e.tokens_per_sequence, data.tokenizer_vocab_size);
    case spec::ModelType::kRecommender:
      return cost_of_recommender(job, data, e);
  }
  return {};
}

}  // namespace

Estimate estimate(const Job& job, const DataSize& data) {
  const auto& spec = job.spec;
  const auto& train = spec.train;
  Estimate e;
  e.tokens_per_sequence = data.mean_tokens > 0 ? data.mean_tokens : static_cast<double>(spec.data.max_length);
  const ModelCost cost = cost_of(job, data, e);
  e.parameters = e.trainable = cost.weights.count + cost.biases_and_norms.count;
  (spec.optimizer.decay_bias_and_norm ? e.decayed : e.spared) += cost.biases_and_norms;
  e.decayed += cost.weights;
  // Where ATen multiplies (on GPUs, and in fp16), each use casts a matrix to the compute type and keeps the
  // copy for backward; our CPU kernels cast while they pack, into scratch memory.
  const bool copies =
      train.precision == spec::Precision::kFp16 || (train.precision == spec::Precision::kBf16 && job.cuda);
  e.weight_bytes = 4 * e.parameters + (copies ? 2 * cost.matrix_parameters : 0);
  e.gradient_bytes = 4 * e.trainable;
  e.optimizer_bytes = 4 * state_per_parameter(spec.optimizer) * e.trainable;
  e.mean_bytes = train.ema_decay > 0 ? 4 * e.trainable : 0;
  e.program_bytes = job.cuda ? 0 : kProgramBytes;
  e.activation_bytes = activation_bytes(job, e, cost);
  double sequences = static_cast<double>(job.global_batch);
  if (train.batch_tokens > 0) {
    const double limit = static_cast<double>(train.batch_tokens) / e.tokens_per_sequence;
    sequences = std::min(limit, static_cast<double>(train.batch_size)) *
                static_cast<double>(train.gradient_accumulation * job.world.size);
  } else if (data.samples > 0) {
    e.steps_per_epoch = ceil_div(data.samples, job.global_batch);
  }
  e.step_flops = 3 * sequences * cost.forward_flops;
  e.steps = data.steps > 0 ? data.steps : train.steps.value_or(train.epochs.value_or(0) * e.steps_per_epoch);
  if (e.steps > static_cast<int64_t>(spec::kMostSteps)) {
    JobFaults faults(spec.said);
    faults.add("train.epochs", "got {}, {} steps in all; expected at most {}", train.epochs.value_or(0),
               e.steps, spec::kMostSteps);
    faults.throw_if_any();
  }
  return e;
}

}  // namespace trainer
