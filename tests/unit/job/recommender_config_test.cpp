#include "job/recommender_config.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "core/error.h"
#include "core/file.h"
#include "spec/load.h"
#include "temporary_directory.h"

namespace trainer {
namespace {

using Catch::Matchers::Message;

// Of 13 dense and 26 sparse features, with the vocabulary's rows.
records::FeatureInfo criteo(int64_t rows = 1000) {
  records::FeatureInfo info;
  for (int i = 1; i <= 13; ++i) info.dense.push_back(fmt::format("I{}", i));
  for (int i = 1; i <= 26; ++i) {
    info.sparse.push_back({fmt::format("C{}", i), i - 1});
    info.tables.push_back({fmt::format("C{}", i), rows});
  }
  return info;
}

Job job_of(const std::string& model, World world = {}, const std::string& more = "") {
  return resolve(spec::parse("model: {type: recommender, " + model +
                                 "}\ndata: {train: {path: train.txt, format: criteo}, validation: {path: "
                                 "v.txt}}\n" +
                                 more,
                             "job.yaml", {}),
                 world, 0);
}

RecommenderConfig config_of(const std::string& recommender, const records::FeatureInfo& info = criteo()) {
  return load_recommender_config(job_of("recommender: {" + recommender + "}"), info);
}

void check_refused(const std::string& json, const std::vector<std::string>& faults) {
  const TemporaryDirectory dir;
  const std::string path = dir.write("config.json", json);
  std::string message = "the model's config is not one of a recommender";
  for (const std::string& fault : faults) message += "\n  " + path + ": " + fault;
  CHECK_THROWS_MATCHES(RecommenderConfig::load(dir.path), SpecError, Message(message));
}

}  // namespace

TEST_CASE("DLRM of the Criteo Kaggle shape has the layers and parameters of its reference") {
  const RecommenderConfig c = config_of("embedding_dim: 16, bottom_mlp: [512, 256, 64], top_mlp: [512, 256]");
  CHECK(c.bottom_mlp == std::vector<int64_t>{512, 256, 64, 16});
  CHECK(c.top_columns() == 16 + 27 * 26 / 2);
  CHECK(c.pooled_columns() == 26 * 16);
  CHECK(c.features[3].column == 3 * 16);
  // python3 dlrm_s_pytorch.py --arch-mlp-bot=13-512-256-64-16 --arch-mlp-top=512-256-1.
  CHECK(c.weights() ==
        ParameterCount{13 * 512 + 512 * 256 + 256 * 64 + 64 * 16 + 367 * 512 + 512 * 256 + 256, 7});
  CHECK(c.biases() == ParameterCount{512 + 256 + 64 + 16 + 512 + 256 + 1, 7});
  CHECK(c.table_parameters() == 26 * 1000 * 16);
  CHECK(c.forward_flops(2) == 4.0 * static_cast<double>(c.weights().count + 27 * 26 / 2 * 16));
}

TEST_CASE("Without dense features there is no bottom MLP") {
  records::FeatureInfo info = criteo();
  info.dense.clear();
  for (const char* architecture : {"dlrm", "dcnv2"}) {
    const RecommenderConfig c = config_of("architecture: " + std::string(architecture), info);
    CHECK(c.bottom_mlp.empty());
    CHECK(c.top_columns() == (c.cross_layers > 0 ? 26 * 16 : 26 * 25 / 2));
  }
}

TEST_CASE("DCNv2 of MLPerf's shape crosses the vectors side by side, by matrices of a rank or full ones") {
  const RecommenderConfig c = config_of(
      "architecture: dcnv2, embedding_dim: 128, bottom_mlp: [512, 256], top_mlp: [1024, 1024, 512, 256], "
      "cross_layers: 3, cross_rank: 512");
  CHECK(c.cross_columns() == 27 * 128);
  CHECK(c.top_columns() == 27 * 128);
  CHECK(c.weights() == ParameterCount{13 * 512 + 512 * 256 + 256 * 128 + 3 * 2 * 3456 * 512 + 3456 * 1024 +
                                          1024 * 1024 + 1024 * 512 + 512 * 256 + 256,
                                      3 + 6 + 5});
  CHECK(c.biases().count == 512 + 256 + 128 + 3 * 3456 + 1024 + 1024 + 512 + 256 + 1);
  const RecommenderConfig full =
      config_of("architecture: dcnv2, cross_layers: 2, bottom_mlp: [8], top_mlp: [4]");
  CHECK(full.weights() == ParameterCount{13 * 8 + 8 * 16 + 2 * 432 * 432 + 432 * 4 + 4, 6});
}

TEST_CASE("A row's last column is its first-order weight in DeepFM and Wide & Deep") {
  const RecommenderConfig fm = config_of("architecture: deepfm, embedding_dim: 10");
  CHECK(fm.tables[0].dim == 11);
  CHECK(fm.features[2].column == 22);
  CHECK(fm.top_columns() == 13 + 26 * 10);
  CHECK(fm.bottom_mlp.empty());
  CHECK(fm.weights().count == 273 * 512 + 512 * 256 + 256 + 13);
  const RecommenderConfig wide = config_of("architecture: wide_deep, tables: {C1: {dim: 3}}");
  CHECK(wide.tables[0].dim == 4);
  CHECK(wide.top_columns() == 13 + 3 + 25 * 16);
}

TEST_CASE("A table says what differs from the others; features may share one") {
  records::FeatureInfo info{
      .dense = {"d"}, .sparse = {{"a", 0}, {"b", 1}, {"c", 0}}, .tables = {{"a", 7}, {"b", 9}}};
  const Job job = job_of(
      "recommender: {architecture: dcnv2, pooling: mean, tables: {a: {features: [a, c], dim: 8, dtype: fp16, "
      "sharding: row}, b: {pooling: sum}}}",
      {}, "parallel: {embedding: column}");
  const RecommenderConfig c = load_recommender_config(job, info);
  CHECK(c.tables[0].features == std::vector<int64_t>{0, 2});
  CHECK(c.tables[0].rows == 7);
  CHECK(c.tables[0].dim == 8);
  CHECK(c.tables[0].dtype == spec::TableDtype::kFp16);
  CHECK(c.tables[0].pooling == spec::Pooling::kMean);
  CHECK(c.tables[0].sharding == spec::Sharding::kRow);
  CHECK(c.tables[1].pooling == spec::Pooling::kSum);
  CHECK(c.tables[1].sharding == spec::Sharding::kColumn);
  CHECK(c.features[2].column == 8 + 16);
  CHECK(c.pooled_columns() == 32);
}

TEST_CASE("A config that no model can have is refused by key") {
  CHECK_THROWS_MATCHES(
      config_of("tables: {X: {rows: 3}, Y: {rows: 2, features: [q]}}"), SpecError,
      Message("job.yaml:1:54: model.recommender.tables.X: is looked up by no feature; expected one of "
              "data.features.sparse, or its features\n"
              "job.yaml:1:68: model.recommender.tables.Y: is looked up by no feature; expected one of "
              "data.features.sparse\n2 faults in job.yaml"));
  CHECK_THROWS_MATCHES(
      config_of("rows: 3", {.dense = {"d"}, .sparse = {}, .tables = {}}), SpecError,
      Message("job.yaml: data.features.sparse: got none; expected at least one feature, whose "
              "embeddings the model learns\n1 fault in job.yaml"));
  CHECK_THROWS_MATCHES(
      config_of("rows: 3", {.dense = {}, .sparse = {{"a", 0}}, .tables = {{"a", 3}}}), SpecError,
      Message("job.yaml: model.recommender.architecture: got dlrm, and there is one feature, so no "
              "pair to multiply; expected more features, or wide_deep\n1 fault in job.yaml"));
}

TEST_CASE("A saved config loads as it was") {
  for (const char* architecture : {"dlrm", "dcnv2", "deepfm", "wide_deep"}) {
    const TemporaryDirectory dir;
    const RecommenderConfig c = config_of("architecture: " + std::string(architecture) + ", dropout: 0.25");
    dir.write("config.json", c.to_json());
    const RecommenderConfig again = RecommenderConfig::load(dir.path);
    CHECK(again.to_json() == c.to_json());
    CHECK(again.features[5].column == c.features[5].column);
    CHECK(again.tables[5].features == c.tables[5].features);
    CHECK(again.dropout == 0.25);
  }
}

TEST_CASE("Faults of a saved config are told together") {
  check_refused("{}",
                {"model_type: got nothing; expected \"recommender\"",
                 "architecture: got nothing; expected one of dlrm, dcnv2, deepfm, wide_deep",
                 "dense_features: got nothing; expected a list of names",
                 "tables: got nothing; expected a list of tables with name, rows, dim, pooling and dtype",
                 "sparse_features: got nothing; expected a list of features with name and table",
                 "bottom_mlp: got nothing; expected a list of channels",
                 "top_mlp: got nothing; expected a list of channels",
                 "top_mlp: got nothing; expected a list that ends with 1"});
  check_refused(
      R"({"model_type": "recommender", "architecture": "dlrm", "dense_features": [""],
                   "tables": [{"name": "a", "rows": 0, "dim": 3, "pooling": "sum", "dtype": "fp32"}],
                   "sparse_features": [{"name": "a", "table": "b"}], "bottom_mlp": [0], "top_mlp": [4, 1]})",
      {"dense_features: got [\"\"]; expected a list of names",
       R"(tables: got [{"name":"a","rows":0,"dim":3,"pooling":"sum","dtype":"fp32"}]; expected a list of )"
       "tables with name, rows, dim, pooling and dtype",
       R"(sparse_features: got [{"name":"a","table":"b"}]; expected a list of features with name and table)",
       "bottom_mlp: got [0]; expected a list of channels"});
}

TEST_CASE("A pretrained recommender has its own shape, and must be of the data's features") {
  const TemporaryDirectory dir;
  dir.write("config.json", config_of("bottom_mlp: [4], top_mlp: [3]").to_json());
  const Job job = job_of("pretrained: " + dir.path.string() +
                         ", recommender: {dropout: 0.5, tables: {C2: {sharding: row}}}");
  const RecommenderConfig c = load_recommender_config(job, criteo(900));
  CHECK(c.top_mlp == std::vector<int64_t>{3, 1});
  CHECK(c.tables[0].rows == 1000);
  CHECK(c.dropout == 0.5);
  CHECK(c.tables[1].sharding == spec::Sharding::kRow);

  records::FeatureInfo other = criteo();
  other.dense = {"I1"};
  other.sparse.resize(2);
  std::string names;
  for (int i = 1; i <= 26; ++i) names += fmt::format("{}C{} in C{}", i > 1 ? ", " : "", i, i);
  const std::string where = dir.path.string();
  CHECK_THROWS_MATCHES(
      load_recommender_config(job, other), SpecError,
      Message("job.yaml: data.features.dense: got [I1], but " + where +
              " is of [I1, I2, I3, I4, I5, I6, I7, I8, I9, I10, I11, I12, I13]; expected the same\n"
              "job.yaml: data.features.sparse: got [C1 in C1, C2 in C2], but " +
              where + " is of [" + names + "]; expected the same\n2 faults in job.yaml"));
  records::FeatureInfo more = criteo();
  more.tables[4].rows = 1001;
  CHECK_THROWS_MATCHES(load_recommender_config(job, more), SpecError,
                       Message("job.yaml: data.features: have 1001 rows in table C5; " + where +
                               " has 1000\n1 fault in job.yaml"));
}

TEST_CASE("What is said of features without their data is known, but the rows of a vocabulary") {
  const auto features = [](const std::string& recommender, const std::string& data) {
    return said_features(
        spec::parse("model: {type: recommender, recommender: {" + recommender + "}}\ndata: {" + data + "}",
                    "job.yaml", {}));
  };
  const auto kaggle = features("rows: 5", "train: {format: criteo}");
  REQUIRE(kaggle);
  CHECK(kaggle->dense.size() == 13);
  CHECK(kaggle->sparse[25].name == "C26");
  CHECK(kaggle->tables[25].rows == 0);
  const auto shared = features("rows: 5, tables: {t: {features: [a, c], rows: 7}}",
                               "features: {dense: [d], sparse: [b, a, c], ids: modulo}");
  REQUIRE(shared);
  CHECK(shared->tables.size() == 2);
  CHECK(shared->tables[0].name == "b");
  CHECK(shared->tables[0].rows == 5);
  CHECK(shared->tables[1].name == "t");
  CHECK(shared->tables[1].rows == 7);
  CHECK(shared->sparse[2].table == 1);
  CHECK_FALSE(features("rows: 5", "features: {sparse: [\"C*\"]}"));
  CHECK_FALSE(features("rows: 5", "train: {format: records}"));
}

TEST_CASE("What a recommender's spec leaves open is resolved") {
  const Job job = job_of("recommender: {rows: 5}", {}, "optimizer: {lr: 0.02}");
  CHECK(job.spec.train.clip_grad_norm == 0);
  CHECK(job.spec.model.init == spec::ModelInit::kRandom);
  CHECK(job.spec.evaluation.metrics == std::vector{spec::Metric::kLoss, spec::Metric::kAuc});
  CHECK(job.spec.model.recommender.embedding_optimizer.lr == 0.02);
  CHECK(job.warnings.empty());
  CHECK(
      job_of("recommender: {embedding_optimizer: {lr: 0.5}}").spec.model.recommender.embedding_optimizer.lr ==
      0.5);
  const Job again = resolve(spec::parse(spec::to_yaml(job.spec), "job.yaml", {}), World(), 0);
  CHECK(again.spec == job.spec);
  CHECK(again.warnings.empty());
}

TEST_CASE("A recommender's settings without effect are warned of") {
  CHECK(job_of("recommender: {architecture: deepfm, bottom_mlp: [3], cross_layers: 2, cross_rank: 4, "
               "cache_load_factor: 0.5, embedding_memory: uvm, embedding_optimizer: {type: sgd, eps: 0.1, "
               "beta1: 0.5, "
               "beta2: 0.5}}",
               {}, "train: {clip_grad_norm: 1}")
            .warnings ==
        std::vector<std::string>{
            "job.yaml:1:76: model.recommender.bottom_mlp: has no effect with architecture deepfm",
            "job.yaml:1:95: model.recommender.cross_layers: has no effect with architecture deepfm",
            "job.yaml:1:110: model.recommender.cross_rank: has no effect with architecture deepfm",
            "job.yaml:1:132: model.recommender.cache_load_factor: has no effect with embedding_memory uvm",
            "job.yaml:1:155: model.recommender.embedding_memory: has no effect with CPUs",
            "job.yaml:1:210: model.recommender.embedding_optimizer.beta1: has no effect with type sgd",
            "job.yaml:1:222: model.recommender.embedding_optimizer.beta2: has no effect with type sgd",
            "job.yaml:1:198: model.recommender.embedding_optimizer.eps: has no effect with type sgd",
            "job.yaml:3:25: train.clip_grad_norm: clips by the norm of the dense part's gradients; tables "
            "are not "
            "clipped"});
}

TEST_CASE("A recommender's parameters, tables apart, FLOPs and memory are estimated and described") {
  World world;
  world.size = world.local_size = 2;
  const Job job = job_of("recommender: {embedding_optimizer: {lr: 0.05}}", world, "train: {batch_size: 100}");
  const DataSize size{.samples = 1000, .features = criteo()};
  const Estimate e = estimate(job, size);
  const RecommenderConfig c = load_recommender_config(job, criteo());
  CHECK(e.parameters == c.weights().count + c.biases().count);
  CHECK(e.decayed == c.weights());
  REQUIRE(e.tables);
  CHECK(e.tables->parameters == 26 * 1000 * 16);
  CHECK(e.tables->weight_bytes >= 26 * 1000 * 16 * 4 / 2);
  CHECK(e.tables->optimizer_bytes >= 26 * 1000 * 4 / 2);
  CHECK(e.step_flops == 3 * c.forward_flops(200));
  CHECK(e.steps == 15);
  const std::string text = describe(job, e, size);
  INFO(text);
  for (const char* line : {"model      recommender, dlrm; 13 dense and 26 sparse features; bottom "
                           "13-512-256-64-16; top 367-512-256-1\n",
                           "parameters 416,000 in 26 tables; 475,985 dense\n",
                           "data       train.txt (1,000 records); validation v.txt; ids by vocabulary\n",
                           "tables     rowwise_adagrad, learning rate 0.05\n", " a step\n"}) {
    CHECK(text.find(line) != std::string::npos);
  }
}

TEST_CASE("Where rows wait for a vocabulary, or features for the data, a description says so") {
  const Job job = job_of("recommender: {dropout: 0}");
  const std::string text = describe(job, estimate(job));
  INFO(text);
  CHECK(text.find("26 tables with as many rows as their vocabularies will have; 475,985 dense") !=
        std::string::npos);
  const Job unknown = resolve(
      spec::parse("model: {type: recommender}\ndata: {train: {path: d, format: records}}", "job.yaml", {}),
      World(), 0);
  CHECK(describe(unknown, estimate(unknown))
            .find("recommender, dlrm; its features are known when the data is read") != std::string::npos);
}

TEST_CASE("A directory that is no saved recommender is refused before training") {
  const TemporaryDirectory dir;
  const std::string train = dir.write("train.txt", "x");
  const auto check = [&] {
    check_files(resolve(spec::parse("model: {type: recommender, pretrained: " + dir.path.string() +
                                        "}\ndata: {train: {path: " + train + ", format: criteo}}",
                                    "job.yaml", {}),
                        World(), 0));
  };
  const std::string where = "job.yaml:1:40: model.pretrained: ", path = dir.path.string();
  CHECK_THROWS_MATCHES(
      check(), SpecError,
      Message(where + path + " has no features.json, so ids have no rows; expected a saved recommender\n" +
              where + path +
              " has no weights; expected model.safetensors and tables.index.json, or model.init: "
              "random\n" +
              where + path + "/config.json: cannot open: No such file or directory\n3 faults in job.yaml"));
  for (const char* file : {"features.json", "model.safetensors", "tables.index.json"}) dir.write(file, "{}");
  dir.write("config.json", config_of("rows: 3").to_json());
  CHECK_NOTHROW(check());
}

}  // namespace trainer
