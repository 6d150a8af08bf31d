#include "job/recommender_rules.h"

#include <algorithm>
#include <map>

#include "spec/enums.h"

namespace trainer {
namespace {

using spec::Architecture;
using spec::FileFormat;

class Rules {
 public:
  Rules(spec::JobSpec& spec, bool cuda, JobFaults& faults, std::vector<std::string>& warnings)
      : s_(spec), r_(spec.model.recommender), cuda_(cuda), faults_(faults), warnings_(warnings) {}

  void apply() {
    pretrained();
    layers();
    tables();
    table_optimizer();
    data();
    train();
  }

 private:
  template <class... Args>
  void warn(const std::string& key, fmt::format_string<Args...> format, Args&&... args) {
    warnings_.push_back(faults_.warning(key, fmt::format(format, std::forward<Args>(args)...)));
  }
  // `differs`: from the default; a resolved spec has every key.
  void unused(bool differs, const std::string& key, const std::string& with) {
    if (differs) warn(key, "has no effect with {}", with);
  }

  void pretrained() {
    auto& m = s_.model;
    if (m.pretrained.empty()) {
      if (s_.said.contains("model.init") && m.init == spec::ModelInit::kPretrained) {
        faults_.add(
            "model.init",
            "got pretrained without model.pretrained; expected the directory of a saved recommender there");
      }
      m.init = spec::ModelInit::kRandom;
      return;
    }
    // But for the saved model's own: how training goes, and what the data's features are.
    spec::Recommender shape;
    shape.rows = r_.rows;
    shape.dropout = r_.dropout, shape.embedding_backend = r_.embedding_backend;
    shape.embedding_memory = r_.embedding_memory, shape.cache_load_factor = r_.cache_load_factor;
    shape.embedding_optimizer = r_.embedding_optimizer;
    for (const auto& [name, table] : r_.tables) {
      spec::EmbeddingTable& kept = shape.tables[name];
      kept.features = table.features;
      kept.rows = table.rows;
      kept.sharding = table.sharding;
    }
    if (r_ != shape) {
      faults_.add("model.recommender",
                  "got a shape, and model.pretrained is {}, which has its own; expected one of them",
                  spec::shown(m.pretrained));
    }
  }

  void layers() {
    const spec::Recommender defaults;
    const std::string with = "architecture " + std::string(to_string(r_.architecture));
    const bool has_bottom = r_.architecture == Architecture::kDlrm || r_.architecture == Architecture::kDcnv2;
    unused(!has_bottom && r_.bottom_mlp != defaults.bottom_mlp, "model.recommender.bottom_mlp", with);
    if (r_.architecture != Architecture::kDcnv2) {
      unused(r_.cross_layers != defaults.cross_layers, "model.recommender.cross_layers", with);
      unused(r_.cross_rank != defaults.cross_rank, "model.recommender.cross_rank", with);
    }
  }

  void tables() {
    const bool needs_one_dim =
        r_.architecture == Architecture::kDlrm || r_.architecture == Architecture::kDeepfm;
    std::map<std::string, std::string> table_of;
    for (const auto& [name, table] : r_.tables) {
      const std::string key = "model.recommender.tables." + name;
      if (needs_one_dim && table.dim && *table.dim != r_.embedding_dim) {
        faults_.add(
            key + ".dim",
            "got {}, but {} multiplies embeddings with each other; expected model.recommender.embedding_dim "
            "({}), or architecture dcnv2 or wide_deep",
            *table.dim, to_string(r_.architecture), r_.embedding_dim);
      }
      for (const std::string& feature : table.features.empty() ? std::vector{name} : table.features) {
        const auto [other, is_new] = table_of.emplace(feature, name);
        if (!is_new) {
          faults_.add(key + ".features", "got {}, a feature of table {}; expected one table a feature",
                      spec::shown(feature), other->second);
        }
      }
    }
    const spec::Recommender defaults;
    if (r_.embedding_memory != spec::EmbeddingMemory::kUvmCached) {
      unused(r_.cache_load_factor != defaults.cache_load_factor, "model.recommender.cache_load_factor",
             "embedding_memory " + std::string(to_string(r_.embedding_memory)));
    }
    unused(!cuda_ && r_.embedding_memory != defaults.embedding_memory, "model.recommender.embedding_memory",
           "CPUs");
  }

  void table_optimizer() {
    using spec::TableOptimizerType;
    auto& o = r_.embedding_optimizer;
    const spec::EmbeddingOptimizer defaults;
    const std::string key = "model.recommender.embedding_optimizer.";
    const std::string with = "type " + std::string(to_string(o.type));
    if (o.type != TableOptimizerType::kAdam) {
      unused(o.beta1 != defaults.beta1, key + "beta1", with);
      unused(o.beta2 != defaults.beta2, key + "beta2", with);
    }
    unused(o.type == TableOptimizerType::kSgd && o.eps != defaults.eps, key + "eps", with);
    if (!o.lr) o.lr = s_.optimizer.lr;
  }

  void data() {
    const auto& d = s_.data;
    const auto& f = d.features;
    const FileFormat format = d.train.format;
    if (d.train.path.empty()) {
      faults_.add("data.train.path",
                  "not given; expected click records: a file or what trainer prepare wrote");
    }
    const bool reads_columns = format == FileFormat::kTsv || format == FileFormat::kCsv;
    const bool has_columns = format == FileFormat::kCriteo || format == FileFormat::kRecords;
    if (!reads_columns && !has_columns && format != FileFormat::kAuto) {
      faults_.add("data.train.format",
                  "got {} with model.type recommender; expected auto, tsv, csv, criteo or records",
                  to_string(format));
    }
    // Of other files what they are is known when they are opened.
    if (reads_columns || (format == FileFormat::kAuto && d.train.path.ends_with(".csv"))) {
      if (f.label.empty()) faults_.add("data.features.label", "not given; expected the column of the label");
      if (f.sparse.empty()) {
        faults_.add("data.features.sparse",
                    "not given; expected the columns of ids, each a name or a pattern with *");
      }
    }
    for (const std::string& name : f.dense) {
      if (std::count(f.sparse.begin(), f.sparse.end(), name) != 0) {
        faults_.add("data.features.dense", "got {}, which is in sparse too; expected it in one of them",
                    spec::shown(name));
      }
    }
    for (const auto& [key, list] :
         {std::pair{"data.features.dense", &f.dense}, {"data.features.sparse", &f.sparse}}) {
      for (const std::string& name : *list) {
        if (name == f.label && !name.empty()) {
          faults_.add(key, "got {}, the label; expected other columns", spec::shown(name));
        }
      }
    }
    const bool has_rows = r_.rows || s_.model.pretrained != "";
    if (f.ids != spec::IdMapping::kVocabulary && !has_rows && format != FileFormat::kRecords) {
      for (const std::string& name : f.sparse) {
        const bool said = std::any_of(r_.tables.begin(), r_.tables.end(), [&](const auto& item) {
          const auto& [table, t] = item;
          return t.rows && (t.features.empty() ? table == name
                                               : std::count(t.features.begin(), t.features.end(), name) != 0);
        });
        if (said || name.find('*') != std::string::npos) continue;
        faults_.add("data.features.ids",
                    "got {}, but {} has no rows; expected model.recommender.rows, or the table's",
                    to_string(f.ids), spec::shown(name));
      }
    }
  }

  void train() {
    auto& t = s_.train;
    if (!s_.said.contains("train.clip_grad_norm") && t.clip_grad_norm == spec::Train().clip_grad_norm) {
      t.clip_grad_norm = 0;
    }
    if (t.clip_grad_norm > 0) {
      warn("train.clip_grad_norm", "clips by the norm of the dense part's gradients; tables are not clipped");
    }
    if (t.ema_decay > 0) {
      faults_.add("train.ema_decay",
                  "got {} with model.type recommender, whose tables have no running mean; expected 0",
                  t.ema_decay);
    }
  }

  spec::JobSpec& s_;
  spec::Recommender& r_;
  bool cuda_;
  JobFaults& faults_;
  std::vector<std::string>& warnings_;
};

}  // namespace

void resolve_recommender(spec::JobSpec& spec, bool cuda, JobFaults& faults,
                         std::vector<std::string>& warnings) {
  Rules(spec, cuda, faults, warnings).apply();
}

}  // namespace trainer
