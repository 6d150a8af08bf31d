#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "core/error.h"
#include "dist/communicator.h"
#include "embedding/sharded.h"
#include "job/embedding_plan.h"
#include "model/recommender.h"
#include "records/feature_map.h"
#include "tensors/slices.h"

// Apart from model.cpp: programs that have no use for tables don't link them.

namespace trainer::model {
namespace {

RecommenderConfig config_of(const Job& job, const DataInfo& data) {
  if (!data.features) throw Error(ExitCode::kInternal, "internal error", "a recommender without features");
  return load_recommender_config(job, data.features->info());
}

std::shared_ptr<Recommender> make(const Job& job, const DataInfo& data, RecommenderConfig config,
                                  std::unique_ptr<embedding::ShardedEmbedding> embeddings) {
  return std::make_shared<Recommender>(
      std::move(config),
      Recommender::Options{.compute_dtype = compute_dtype(job.spec.train.precision),
                           .features = data.features},
      std::move(embeddings));
}

at::Device device_of(const Job& job) {
  if (!job.cuda) return at::kCPU;
  return c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice();  // the caller's
}

std::unique_ptr<embedding::ShardedEmbedding> make_tables(const Job& job, const RecommenderConfig& config,
                                                         const records::FeatureInfo& info,
                                                         dist::Communicator& communicator) {
  const spec::Recommender& r = job.spec.model.recommender;
  const spec::EmbeddingOptimizer& o = r.embedding_optimizer;
  const auto seed = static_cast<uint64_t>(job.spec.job.seed);
  const embedding::ShardedOptions options{
      .backend = r.embedding_backend,
      .optimizer = {.type = o.type,
                    .eps = o.eps,
                    .beta1 = o.beta1,
                    .beta2 = o.beta2,
                    .weight_decay = o.weight_decay,
                    .stochastic_rounding = o.stochastic_rounding,
                    .seed = seed},
      .placement = {.memory = r.embedding_memory, .cache_load_factor = r.cache_load_factor},
      .compression = job.spec.parallel.embedding_compression,
      .seed = seed};
  return std::make_unique<embedding::ShardedEmbedding>(
      config.tables, plan_embeddings(config.tables, embedding_plan_options(job, info)), options, communicator,
      device_of(job));
}

// This rank's part of the tables, without their optimizer's state, which a new training begins with anew.
void load_tables(embedding::ShardedEmbedding& embeddings, const std::string& directory) {
  tensors::SliceFiles files(directory, "tables");
  for (const tensors::Slice& slice : embeddings.slices()) {
    if (slice.name.ends_with(".weight")) files.fill(slice);
  }
}

}  // namespace

Loaded make_model(const Job& job, const DataInfo& data, dist::Communicator& communicator) {
  const spec::Model& spec = job.spec.model;
  if (spec.type != spec::ModelType::kRecommender) return make_model(job, data.tokenizer);
  RecommenderConfig config = config_of(job, data);
  auto embeddings = make_tables(job, config, data.features->info(), communicator);
  const auto model = make(job, data, std::move(config), std::move(embeddings));
  const auto seed = static_cast<uint64_t>(job.spec.job.seed);
  if (spec.init == spec::ModelInit::kRandom) {
    load_weights(*model, nullptr, "", seed);
    return {model, {}};
  }
  const WeightFiles files(spec.pretrained);
  LoadReport report = load_weights(*model, &files, spec.pretrained, seed);
  load_tables(*model->embeddings(), spec.pretrained);
  return {model, std::move(report)};
}

LoadReport check_weights(const Job& job, const DataInfo& data) {
  const spec::Model& spec = job.spec.model;
  if (spec.type != spec::ModelType::kRecommender) return check_weights(job, data.tokenizer);
  const auto model = make(job, data, config_of(job, data), nullptr);
  if (spec.init == spec::ModelInit::kRandom) return {};
  return check_weights(*model, WeightFiles(spec.pretrained), spec.pretrained);
}

}  // namespace trainer::model
