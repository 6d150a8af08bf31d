#include "model/recommender.h"

#include <torch/torch.h>

#include <catch2/catch.hpp>

#include "recommender_fixture.h"
#include "spec/enums.h"
#include "temporary_directory.h"

// B records, F features, E channels of an embedding.

namespace trainer::model {
namespace {

using spec::Architecture;
using Values = std::map<std::string, at::Tensor>;

const std::vector<Architecture> kAll{Architecture::kDlrm, Architecture::kDcnv2, Architecture::kDeepfm,
                                     Architecture::kWideDeep};

// Parameters and tables, as leaves in fp64.
Values values_of(Recommender& model) {
  Values values;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    values[name] = tensor.detach().to(at::kDouble).clone().requires_grad_(true);
  };
  for (const auto& item : model.named_parameters()) add(item.key(), item.value());
  for (const tensors::Slice& slice : model.embeddings()->slices()) {
    if (slice.name.ends_with(".weight")) add(slice.name, slice.tensor);
  }
  return values;
}

// Each feature's embeddings [B, E] by its own loop over bags.
std::vector<at::Tensor> embed(const RecommenderConfig& config, Values& values, const data::Batch& batch) {
  const int64_t size = batch.num_samples();
  std::vector<at::Tensor> features;
  for (size_t f = 0; f < config.features.size(); ++f) {
    const TableConfig& table = config.tables[static_cast<size_t>(config.features[f].table)];
    const at::Tensor& weight = values.at("embeddings." + table.name + ".weight");
    std::vector<at::Tensor> rows;
    for (int64_t i = 0; i < size; ++i) {
      const int64_t bag = static_cast<int64_t>(f) * size + i;
      const auto begin = batch.records.offsets[bag].item<int64_t>(),
                 end = batch.records.offsets[bag + 1].item<int64_t>();
      at::Tensor sum = at::zeros({table.dim}, at::kDouble);
      for (int64_t j = begin; j < end; ++j) {
        const at::Tensor row = weight[batch.records.ids[j].item<int64_t>()];
        sum = sum + (batch.records.weights.defined() ? row * batch.records.weights[j].item<double>() : row);
      }
      if (table.pooling == spec::Pooling::kMean && end > begin) sum = sum / static_cast<double>(end - begin);
      rows.push_back(sum);
    }
    features.push_back(at::stack(rows));
  }
  return features;
}

at::Tensor mlp(const Values& values, const std::string& name, at::Tensor x, bool ends_in_relu) {
  for (int i = 0; values.contains(fmt::format("{}.{}.weight", name, i)); ++i) {
    if (i > 0) x = x.relu();
    x = at::linear(x, values.at(fmt::format("{}.{}.weight", name, i)),
                   values.at(fmt::format("{}.{}.bias", name, i)));
  }
  return ends_in_relu ? x.relu() : x;
}

at::Tensor expected_logits(const RecommenderConfig& c, Values& values, const data::Batch& batch) {
  const at::Tensor dense = batch.records.dense.to(at::kDouble);
  std::vector<at::Tensor> x = embed(c, values, batch);
  if (c.has_first_order()) {
    at::Tensor logit = at::zeros({batch.num_samples()}, at::kDouble), deep = dense;
    if (c.num_dense() > 0) logit = (dense * values.at("wide.weight")).sum(1);
    for (at::Tensor& v : x) {
      logit = logit + v.select(1, v.size(1) - 1);
      v = v.slice(1, 0, v.size(1) - 1);
      deep = at::cat({deep, v}, 1);
    }
    if (c.architecture == Architecture::kDeepfm) {
      for (size_t i = 0; i < x.size(); ++i) {
        for (size_t j = 0; j < i; ++j) logit = logit + (x[i] * x[j]).sum(1);
      }
    }
    return logit + mlp(values, "top", deep, false).squeeze(1);
  }
  if (c.num_dense() > 0) x.insert(x.begin(), mlp(values, "bottom", dense, true));
  if (c.architecture == Architecture::kDlrm) {
    std::vector<at::Tensor> columns;
    if (c.num_dense() > 0) columns.push_back(x[0]);
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t j = 0; j < i; ++j) columns.push_back((x[i] * x[j]).sum(1, true));
    }
    return mlp(values, "top", at::cat(columns, 1), false).squeeze(1);
  }
  const at::Tensor x0 = at::cat(x, 1);
  at::Tensor y = x0;
  for (int64_t i = 0; i < c.cross_layers; ++i) {
    const std::string name = fmt::format("cross.{}.", i);
    const at::Tensor w = c.cross_rank > 0 ? at::matmul(values.at(name + "w"), values.at(name + "v"))
                                          : values.at(name + "weight");
    y = x0 * at::linear(y, w, values.at(name + "bias")) + y;
  }
  return mlp(values, "top", y, false).squeeze(1);
}

double largest_difference(const at::Tensor& got, const at::Tensor& expected) {
  REQUIRE(got.sizes() == expected.sizes());
  return (got.to(at::kDouble) - expected).abs().max().item<double>();
}

// One step of plain gradient descent on the tables: what they lose is their gradient.
Values table_gradients(Recommender& model) {
  Values before;
  const auto weights = [&](const auto& visit) {
    for (const tensors::Slice& slice : model.embeddings()->slices()) {
      if (slice.name.ends_with(".weight")) visit(slice);
    }
  };
  weights([&](const tensors::Slice& slice) { before[slice.name] = slice.tensor.to(at::kDouble).clone(); });
  model.embeddings()->step(at::ones({}), at::ones({}), at::zeros({}));
  Values gradients;
  weights([&](const tensors::Slice& slice) {
    gradients[slice.name] = before[slice.name] - slice.tensor.to(at::kDouble);
  });
  return gradients;
}

}  // namespace

TEST_CASE("Every architecture's logits, loss and gradients are those of its formula") {
  for (const Architecture architecture : kAll) {
    for (const int64_t num_dense : {kDense, int64_t{0}}) {
      for (const int64_t rank : {0, 3}) {
        RecommenderConfig config = small_config(architecture, num_dense);
        if (architecture == Architecture::kDcnv2) {
          config.cross_rank = rank;
        } else if (rank > 0) {
          continue;
        }
        CAPTURE(spec::to_string(architecture), num_dense, rank);
        Made made = make_recommender(config, at::kFloat, 3, spec::TableOptimizerType::kSgd);
        Recommender& model = *made.model;
        const data::Batch batch = click_batch(config, 9, 1, num_dense > 0);
        Values values = values_of(model);
        const at::Tensor expected = expected_logits(config, values, batch);
        const at::Tensor labels = batch.labels.to(at::kDouble);
        const at::Tensor loss =
            -(labels * expected.sigmoid().log() + (1 - labels) * (1 - expected.sigmoid()).log()).sum();
        loss.backward();

        const Output output = model.forward(batch);
        CHECK(largest_difference(output.logits, expected) < 1e-5);
        CHECK(output.loss_sum.item<double>() == Approx(loss.item<double>()).epsilon(1e-6));
        output.loss_sum.backward();
        for (const auto& item : model.named_parameters()) {
          INFO(item.key());
          CHECK(largest_difference(item.value().grad(), values.at(item.key()).grad()) < 1e-5);
        }
        for (const auto& [name, gradient] : table_gradients(model)) {
          INFO(name);
          CHECK(largest_difference(gradient, values.at(name).grad()) < 1e-5);
        }
      }
    }
  }
}

TEST_CASE("In bf16 logits are those of fp32 to its precision") {
  for (const Architecture architecture : kAll) {
    CAPTURE(spec::to_string(architecture));
    const RecommenderConfig config = small_config(architecture);
    const data::Batch batch = click_batch(config, 33);
    Made fp32 = make_recommender(config), bf16 = make_recommender(config, at::kBFloat16);
    const at::Tensor expected = fp32.model->forward(batch).logits, got = bf16.model->forward(batch).logits;
    CHECK(got.scalar_type() == at::kFloat);
    CHECK(largest_difference(got, expected.to(at::kDouble)) <
          0.02 * expected.abs().max().item<double>() + 0.01);
    CHECK_FALSE(at::equal(got, expected));
  }
}

TEST_CASE(
    "An empty batch has a loss of zero that depends on every parameter, and its backward is one of the "
    "embeddings too") {
  for (const Architecture architecture : kAll) {
    CAPTURE(spec::to_string(architecture));
    const RecommenderConfig config = small_config(architecture);
    Made made = make_recommender(config);
    const Output output = made.model->forward(click_batch(config, 0));
    CHECK(output.logits.sizes() == at::IntArrayRef{0});
    CHECK(output.loss_sum.item<float>() == 0);
    output.loss_sum.backward();
    for (const auto& item : made.model->named_parameters()) {
      INFO(item.key());
      REQUIRE(item.value().grad().defined());
      CHECK(at::equal(item.value().grad(), at::zeros_like(item.value())));
    }
    CHECK(made.model->embeddings()->gradient_flag().item<float>() == 0);
    made.model->embeddings()->step(at::ones({}), at::ones({}), at::zeros({}));
  }
}

TEST_CASE("Dropout between the top layers is a function of the rows' keys, in training alone") {
  RecommenderConfig config = small_config(Architecture::kDlrm);
  config.dropout = 0.5;
  Made made = make_recommender(config);
  const data::Batch batch = click_batch(config, 12);
  const at::Tensor first = made.model->forward(batch).logits;
  CHECK(at::equal(made.model->forward(batch).logits, first));
  data::Batch other = batch;
  other.row_keys = batch.row_keys + 1;
  CHECK_FALSE(at::equal(made.model->forward(other).logits, first));
  made.model->eval();
  const at::Tensor without = made.model->forward(batch).logits;
  CHECK_FALSE(at::equal(without, first));
  CHECK(at::equal(made.model->forward(other).logits, without));
}

TEST_CASE("New weights are those of DLRM's reference, a function of the seed") {
  RecommenderConfig config = small_config(Architecture::kDlrm);
  config.top_mlp = {512, 400, 1};
  Made made = make_recommender(config, at::kFloat, 5);
  const auto parameters = made.model->named_parameters();
  const at::Tensor weight = parameters["top.1.weight"].detach(), bias = parameters["top.1.bias"].detach();
  // Standard deviations of n numbers are known to 1 / sqrt(2 n): four times that.
  CHECK(weight.std().item<double>() == Approx(std::sqrt(2.0 / 912)).epsilon(4 / std::sqrt(2.0 * 512 * 400)));
  CHECK(bias.std().item<double>() == Approx(std::sqrt(1.0 / 400)).epsilon(4 / std::sqrt(2.0 * 400)));
  CHECK(at::equal(make_recommender(config, at::kFloat, 5).model->named_parameters()["top.1.weight"], weight));
  CHECK_FALSE(
      at::equal(make_recommender(config, at::kFloat, 6).model->named_parameters()["top.1.weight"], weight));
  RecommenderConfig crossed = small_config(Architecture::kDcnv2);
  CHECK(
      at::equal(make_recommender(crossed).model->named_parameters()["cross.0.bias"], at::zeros({5 * kDim})));
}

TEST_CASE("Parameters have their names; biases are spared by weight decay; operations are counted") {
  RecommenderConfig config = small_config(Architecture::kDcnv2);
  config.cross_rank = 3;
  Made made = make_recommender(config);
  std::vector<std::string> names;
  ParameterCount weights, biases;
  for (const auto& item : made.model->named_parameters()) {
    names.push_back(item.key());
    (made.model->is_bias_or_norm(item.key()) ? biases : weights) += {item.value().numel(), 1};
  }
  CHECK(names == std::vector<std::string>{
                     "bottom.0.weight", "bottom.0.bias", "bottom.1.weight", "bottom.1.bias", "cross.0.w",
                     "cross.0.v", "cross.0.bias", "cross.1.w", "cross.1.v", "cross.1.bias", "top.0.weight",
                     "top.0.bias", "top.1.weight", "top.1.bias", "top.2.weight", "top.2.bias"});
  CHECK(weights == config.weights());
  CHECK(biases == config.biases());
  CHECK(made.model->forward_flops(click_batch(config, 7)) == config.forward_flops(7));
  CHECK_FALSE(made.model->attention_shape());
  for (const Architecture architecture : kAll) {
    const RecommenderConfig other = small_config(architecture);
    int64_t count = 0;
    for (const at::Tensor& parameter : make_recommender(other).model->parameters())
      count += parameter.numel();
    CHECK(count == other.weights().count + other.biases().count);
  }
}

TEST_CASE("The dense part of a saved recommender loads again, by name") {
  const TemporaryDirectory dir;
  const RecommenderConfig config = small_config(Architecture::kDeepfm);
  Made made = make_recommender(config);
  made.model->save_pretrained(dir.path);
  CHECK(RecommenderConfig::load(dir.path).to_json() == config.to_json());
  Made again = make_recommender(config, at::kFloat, 9);
  const LoadReport report = load_weights(*again.model, std::make_unique<WeightFiles>(dir.path.string()).get(),
                                         dir.path.string(), 1);
  CHECK(report.newly_initialized.empty());
  CHECK(report.unused.empty());
  for (const auto& item : made.model->named_parameters()) {
    CHECK(at::equal(again.model->named_parameters()[item.key()], item.value()));
  }
}

}  // namespace trainer::model
