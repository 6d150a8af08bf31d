#include <torch/torch.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/file.h"
#include "data/click_records.h"
#include "dist/communicator.h"
#include "embedding/sharded.h"
#include "model/model.h"
#include "records/open.h"
#include "spec/load.h"

// Against plain PyTorch in fp64 (tests/parity/make/recommender.py).

namespace trainer::model {
namespace {

using Json = nlohmann::json;

const std::filesystem::path kReferences = std::filesystem::path(TEST_DATA) / "recommender";

Job job_of(const std::string& name, const Json& expected) {
  const std::filesystem::path model = kReferences / name;
  const Json config = Json::parse(read_file(model / "config.json"));
  Json tables = expected["tables"];
  for (const Json& table : config["tables"]) tables[table["name"]]["rows"] = table["rows"];
  // YAML is a superset of JSON.
  const Json spec{
      {"model",
       {{"type", "recommender"},
        {"pretrained", model.string()},
        {"recommender",
         {{"tables", tables}, {"embedding_optimizer", {{"type", expected["embedding_optimizer"]}}}}}}},
      {"data",
       {{"train", {{"path", (kReferences / "clicks.csv").string()}}},
        {"features",
         {{"label", "label"},
          {"dense", config["dense_features"]},
          {"sparse", expected["features"]},
          {"ids", "identity"},
          {"separator", "|"},
          {"weight_separator", ":"}}}}},
      {"evaluation", {{"every", "never"}}}};
  return resolve(spec::parse(spec.dump(), "job.yaml", {}), World(), 0);
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& type,
                                                        std::vector<at::Tensor> parameters, double lr) {
  using namespace torch::optim;
  if (type == "sgd") return std::make_unique<SGD>(parameters, SGDOptions(lr));
  if (type == "adagrad") return std::make_unique<Adagrad>(parameters, AdagradOptions(lr).eps(1e-8));
  return std::make_unique<AdamW>(parameters, AdamWOptions(lr).weight_decay(0));
}

}  // namespace

TEST_CASE(
    "Losses of the first 20 steps are those of plain PyTorch, for each architecture and each tables' "
    "optimizer") {
  for (const char* name : {"dlrm", "dlrm_weighted", "dcnv2", "dcnv2_full", "deepfm", "wide_deep"}) {
    CAPTURE(name);
    const Json expected = Json::parse(read_file(kReferences / name / "expected.json"));
    const Job job = job_of(name, expected);
    const records::RecordSets sets = records::open_records(job.spec.data, job.spec.model.recommender, 1);
    const data::ClickRecords clicks(sets.train, sets.map->info());
    const auto communicator = dist::make_single_process();
    const auto [model, report] = make_model(job, {.features = sets.map}, *communicator);
    CHECK(report.newly_initialized.empty());
    CHECK(report.unused.empty());
    const auto optimizer =
        make_optimizer(expected["optimizer"], model->parameters(), expected["lr"].get<double>());
    const at::Tensor table_lr = at::scalar_tensor(expected["table_lr"].get<double>());
    const int64_t size = expected["batch_size"], num_batches = (clicks.size() + size - 1) / size;
    for (size_t step = 0; step < expected["losses"].size(); ++step) {
      CAPTURE(step);
      const int64_t begin = static_cast<int64_t>(step) % num_batches * size;
      std::vector<int64_t> rows(static_cast<size_t>(std::min(size, clicks.size() - begin)));
      std::iota(rows.begin(), rows.end(), begin);
      const at::Tensor loss =
          model->forward(clicks.batch(rows, 0, 0, false)).loss_sum / static_cast<double>(rows.size());
      CHECK(std::abs(loss.item<double>() - expected["losses"][step].get<double>()) < 1e-5);
      optimizer->zero_grad();
      loss.backward();
      optimizer->step();
      model->embeddings()->step(table_lr, at::ones({}), at::zeros({}));
    }
  }
}

}  // namespace trainer::model
