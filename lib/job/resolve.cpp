#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "job/faults.h"
#include "job/job.h"
#include "job/recommender_rules.h"
#include "spec/enums.h"

namespace trainer {
namespace {

using spec::Metric;
using spec::ProblemType;

// Fills in what the spec leaves open and reports what does not fit together, section by section.
class Resolver {
 public:
  Resolver(spec::JobSpec spec, const World& world, int64_t cuda_devices)
      : s_(std::move(spec)), cuda_devices_(cuda_devices), faults_(s_.said) {
    job_.world = world;
  }

  Job run() {
    device();
    identity();
    only_of_type();
    switch (s_.model.type) {
      case spec::ModelType::kBertClassifier:
        labels();
        data();
        break;
      case spec::ModelType::kGpt:
        gpt();
        text();
        break;
      case spec::ModelType::kRecommender:
        resolve_recommender(s_, job_.cuda, faults_, job_.warnings);
        break;
    }
    train();
    optimizer();
    schedule();
    evaluation();
    parallel();
    faults_.throw_if_any();
    job_.spec = std::move(s_);
    return std::move(job_);
  }

 private:
  template <class... Args>
  void warn(const std::string& key, fmt::format_string<Args...> format, Args&&... args) {
    job_.warnings.push_back(faults_.warning(key, fmt::format(format, std::forward<Args>(args)...)));
  }
  bool said(const std::string& key) const { return s_.said.contains(key); }
  // Whether `key` was said by --set and `other` in the file.
  bool overrides(const std::string& key, const std::string& other) const {
    const auto& places = s_.said.places;
    const auto a = places.find(key), b = places.find(other);
    return a != places.end() && b != places.end() && a->second.source > 0 && b->second.source == 0;
  }

  void device() {
    using spec::BackendChoice;
    using spec::DeviceChoice;
    const auto& h = s_.hardware;
    job_.cuda = h.device == DeviceChoice::kCuda || (h.device == DeviceChoice::kAuto && cuda_devices_ > 0);
    if (h.device == DeviceChoice::kCuda && cuda_devices_ == 0) {
      faults_.add(
          "hardware.device",
          "got cuda, but there is no GPU; expected auto or cpu (see nvidia-smi and CUDA_VISIBLE_DEVICES)");
    }
    if (h.backend == BackendChoice::kNccl && !job_.cuda) {
      faults_.add("hardware.backend", "got nccl on CPUs; expected gloo or auto");
    }
    if (h.backend == BackendChoice::kGloo && job_.cuda) {
      faults_.add("hardware.backend", "got gloo on GPUs; expected nccl or auto");
    }
    // One visible GPU for each of several workers is how Slurm's --gpus-per-task binds them.
    if (job_.cuda && cuda_devices_ > 1 && job_.world.local_size > cuda_devices_) {
      faults_.add("hardware.device",
                  "got {} workers on a node with {} GPUs; expected at most one a GPU, or cpu",
                  job_.world.local_size, cuda_devices_);
    }
    job_.backend = job_.world.size == 1 ? "none" : job_.cuda ? "nccl" : "gloo";
    const auto& env = s_.launch.env;
    if (h.threads_per_worker > 0 && env.count("OMP_NUM_THREADS") != 0 &&
        env.at("OMP_NUM_THREADS") != std::to_string(h.threads_per_worker)) {
      faults_.add("hardware.threads_per_worker",
                  "got {}, but launch.env.OMP_NUM_THREADS is {}; expected one of them", h.threads_per_worker,
                  env.at("OMP_NUM_THREADS"));
    }
  }

  void identity() {
    std::string& name = s_.job.name;
    const bool is_file_name =
        !name.empty() && name != "." && name != ".." &&
        std::none_of(name.begin(), name.end(), [](unsigned char c) { return c == '/' || c < 32; });
    if (!is_file_name) {
      faults_.add("job.name", "got {}; expected the name of a directory, without \"/\"", spec::shown(name));
    }
    if (s_.job.output_dir.empty()) s_.job.output_dir = "runs/" + name;
    job_.output_dir = s_.job.output_dir;
  }

  // Keys that mean something to other types of model only.
  void only_of_type() {
    using spec::ModelType;
    // A resolved spec has every key; what it leaves at its default says nothing.
    const spec::JobSpec none;
    const auto& [m, d, t, p] = std::tie(s_.model, s_.data, s_.train, s_.parallel);
    const std::vector<ModelType> bert{ModelType::kBertClassifier}, gpt{ModelType::kGpt},
        recommender{ModelType::kRecommender}, text{ModelType::kBertClassifier, ModelType::kGpt};
    const struct {
      const std::vector<ModelType>& types;
      const char* key;
      bool is_said;
    } keys[] = {
        {bert, "model.num_labels", m.num_labels != none.model.num_labels},
        {bert, "model.problem_type", m.problem_type != none.model.problem_type},
        {bert, "model.classifier_dropout", m.classifier_dropout.has_value()},
        {bert, "data.label_names", !d.label_names.empty()},
        {bert, "data.truncation", d.truncation != none.data.truncation},
        {bert, "data.train.text_pair", !d.train.text_pair.empty()},
        {bert, "data.train.label", !d.train.label.empty()},
        {bert, "train.batch_tokens", t.batch_tokens != 0},
        {gpt, "model.gpt", m.gpt != none.model.gpt},
        {gpt, "data.validation_fraction", d.validation_fraction != 0},
        {gpt, "data.tokenizer", d.tokenizer != none.data.tokenizer},
        {gpt, "data.documents", d.documents != none.data.documents},
        {gpt, "data.windows", d.windows != none.data.windows},
        {gpt, "train.recompute", t.recompute != none.train.recompute},
        {text, "model.hidden_dropout", m.hidden_dropout.has_value()},
        {text, "model.attention_dropout", m.attention_dropout.has_value()},
        {text, "data.train.text", !d.train.text.empty()},
        {text, "data.max_length", d.max_length != none.data.max_length},
        {text, "train.attention", t.attention != none.train.attention},
        {recommender, "model.recommender", m.recommender != none.model.recommender},
        {recommender, "data.features", d.features != none.data.features},
        {recommender, "parallel.embedding", p.embedding != none.parallel.embedding},
        {recommender, "parallel.embedding_compression",
         p.embedding_compression != none.parallel.embedding_compression},
        {recommender, "parallel.embedding_memory_gb",
         p.embedding_memory_gb != none.parallel.embedding_memory_gb},
    };
    for (const auto& [types, key, is_said] : keys) {
      if (!is_said || std::count(types.begin(), types.end(), m.type) != 0) continue;
      std::string names;
      for (const ModelType type : types)
        names += (names.empty() ? "" : " or ") + std::string(to_string(type));
      faults_.add(key, "is a key of model.type {}, and this is {}; expected nothing here", names,
                  to_string(m.type));
    }
  }

  void gpt() {
    auto& m = s_.model;
    if (m.pretrained.empty()) {
      if (said("model.init") && m.init == spec::ModelInit::kPretrained) {
        faults_.add("model.init",
                    "got pretrained without model.pretrained; expected a Hugging Face directory there");
      }
      m.init = spec::ModelInit::kRandom;
      return;
    }
    if (m.gpt.preset != spec::GptPreset::kNone) {
      faults_.add("model.gpt.preset", "got {}, and model.pretrained is {}; expected one of them",
                  to_string(m.gpt.preset), spec::shown(m.pretrained));
    }
    spec::Gpt shape;
    shape.pad_vocab_to = m.gpt.pad_vocab_to;
    if (m.gpt != shape && m.gpt.preset == spec::GptPreset::kNone) {
      faults_.add("model.gpt",
                  "got a shape, and model.pretrained is {}, which has its own; expected one of them",
                  spec::shown(m.pretrained));
    }
  }

  void text() {
    auto& d = s_.data;
    if (d.train.path.empty()) {
      faults_.add("data.train.path", "not given; expected text, JSON lines, Parquet, or files of tokens");
    }
    const auto is_table = [](spec::FileFormat f) {
      return f == spec::FileFormat::kTsv || f == spec::FileFormat::kCsv;
    };
    if (is_table(d.train.format)) {
      faults_.add("data.train.format",
                  "got {} with model.type gpt; expected text, jsonl, parquet, megatron, nanogpt or llm.c",
                  to_string(d.train.format));
    }
    if (d.validation_fraction > 0 && !d.validation.path.empty()) {
      faults_.add("data.validation_fraction", "got {}, and data.validation.path is {}; expected one of them",
                  d.validation_fraction, spec::shown(d.validation.path));
    }
    if (d.train.text.empty()) d.train.text = "text";
    if (d.validation.text.empty()) d.validation.text = d.train.text;
  }

  void labels() {
    auto& m = s_.model;
    const auto& names = s_.data.label_names;
    if (m.pretrained.empty()) {
      faults_.add(
          "model.pretrained", "not given; expected a Hugging Face directory{}",
          m.init == spec::ModelInit::kRandom ? " (init: random takes its config.json and tokenizer)" : "");
    }
    const bool is_open = !said("model.num_labels") && m.num_labels == spec::Model().num_labels;
    if (m.problem_type == ProblemType::kRegression) {
      if (is_open) m.num_labels = 1;
      if (!names.empty()) {
        faults_.add("data.label_names", "got names, but labels are numbers in regression; expected none");
      }
      return;
    }
    if (is_open && !names.empty()) m.num_labels = static_cast<int64_t>(names.size());
    if (!names.empty() && static_cast<int64_t>(names.size()) != m.num_labels) {
      faults_.add("data.label_names", "got {} names, but model.num_labels is {}; expected as many",
                  names.size(), m.num_labels);
    }
    if (m.problem_type == ProblemType::kSingleLabel && m.num_labels < 2) {
      faults_.add(
          is_open && !names.empty() ? "data.label_names" : "model.num_labels",
          "got 1 label with single_label_classification; expected at least 2, or problem_type: regression");
    }
  }

  void data() {
    auto& d = s_.data;
    const auto format = d.train.format;
    if (format != spec::FileFormat::kAuto && format != spec::FileFormat::kTsv &&
        format != spec::FileFormat::kCsv) {
      faults_.add("data.train.format", "got {} with model.type {}; expected auto, tsv or csv",
                  to_string(format), to_string(s_.model.type));
    }
    if (d.max_length < 3) {
      faults_.add("data.max_length", "got {}; expected an integer >= 3: special tokens count", d.max_length);
    }
    if (d.train.path.empty()) faults_.add("data.train.path", "not given; expected a .tsv or .csv file");
    if (d.train.text.empty()) faults_.add("data.train.text", "not given; expected the column of the text");
    if (d.train.label.empty()) faults_.add("data.train.label", "not given; expected the column of the label");
    source("data.train", d.train);
    if (!d.validation.path.empty()) source("data.validation", d.validation);
    const bool is_partial = d.validation.path.empty() && !said("data.validation.path") &&
                            std::any_of(s_.said.places.begin(), s_.said.places.end(), [](const auto& said) {
                              return said.first.rfind("data.validation.", 0) == 0;
                            });
    if (is_partial) faults_.add("data.validation", "has no path; expected data.validation.path");
    if (d.truncation == spec::Truncation::kOnlySecond && d.train.text_pair.empty()) {
      faults_.add("data.truncation",
                  "got only_second, but there is no data.train.text_pair; expected longest_first");
    }
    if (d.validation.text_pair.empty() != d.train.text_pair.empty() && !d.validation.path.empty()) {
      faults_.add("data.validation.text_pair", "got {} texts, but data.train has {}; expected as many",
                  d.validation.text_pair.empty() ? 1 : 2, d.train.text_pair.empty() ? 1 : 2);
    }
  }

  // Faults of a value that validation only inherited are told once, at data.train.
  void source(const std::string& key, const spec::DataSource& d) {
    const bool is_train = key == "data.train";
    const std::pair<const char*, const std::string*> columns[] = {
        {"text", &d.text}, {"text_pair", &d.text_pair}, {"label", &d.label}};
    for (const auto& [name, column] : columns) {
      const std::string full = key + "." + name;
      const bool is_number =
          std::all_of(column->begin(), column->end(), [](unsigned char c) { return std::isdigit(c); });
      if (!d.header && !is_number && (is_train || said(full) || said(key + ".header"))) {
        faults_.add(full, "got {}, but header is false; expected the column's number, from 0",
                    spec::shown(*column));
      }
      for (const auto& [other, other_column] : columns) {
        if (column == other_column) break;  // each pair once
        if (!column->empty() && *column == *other_column && (is_train || said(full))) {
          faults_.add(full, "got {}, the column of {}; expected another one", spec::shown(*column), other);
          break;
        }
      }
    }
  }

  void train() {
    auto& t = s_.train;
    if (t.epochs && t.steps) {
      if (overrides("train.steps", "train.epochs")) {
        t.epochs.reset();
      } else if (overrides("train.epochs", "train.steps")) {
        t.steps.reset();
      } else {
        faults_.add("train.steps", "got {}, and train.epochs is {}; expected one of them", *t.steps,
                    *t.epochs);
      }
    }
    if (!t.epochs && !t.steps) t.epochs = 3;
    // A token budget alone limits the batch: every sample has a token.
    if (t.batch_tokens > 0) {
      if (!said("train.batch_size") && t.batch_size == spec::Train().batch_size)
        t.batch_size = t.batch_tokens;
      if (t.batch_tokens < s_.data.max_length && s_.model.type != spec::ModelType::kGpt) {
        faults_.add("train.batch_tokens", "got {}, less than data.max_length; expected at least {}, or 0",
                    t.batch_tokens, s_.data.max_length);
      }
    } else {
      job_.global_batch = t.batch_size * t.gradient_accumulation * job_.world.size;
      if (s_.evaluation.batch_size == 0) s_.evaluation.batch_size = t.batch_size;
    }
    if (t.tf32 && !job_.cuda) warn("train.tf32", "has no effect on CPUs");
    if (t.attention != spec::Attention::kAuto && !job_.cuda) {
      faults_.add("train.attention",
                  "got {}, a kernel of GPUs, and this job runs on CPUs, which have their own; expected auto",
                  to_string(t.attention));
    } else if ((t.attention == spec::Attention::kFlash || t.attention == spec::Attention::kCudnn) &&
               t.precision == spec::Precision::kFp32) {
      faults_.add("train.attention",
                  "got {}, and train.precision is fp32; expected bf16 or fp16 there, or {}",
                  to_string(t.attention), "auto, memory_efficient or math here");
    }
    if (t.loss_scale != spec::LossScale() && t.precision != spec::Precision::kFp16) {
      warn("train.loss_scale", "has no effect in {}, only in fp16", to_string(t.precision));
    }
  }

  void optimizer() {
    using spec::OptimizerType;
    const auto& o = s_.optimizer;
    const spec::Optimizer defaults;
    const bool is_sgd = o.type == OptimizerType::kSgd;
    if (o.nesterov && is_sgd && o.momentum == 0) {
      faults_.add("optimizer.nesterov", "got true without momentum; expected optimizer.momentum > 0");
    }
    const auto type = to_string(o.type);
    const auto unused = [&](bool differs, const char* key) {
      if (differs) warn(key, "has no effect with optimizer.type {}", type);
    };
    if (!is_sgd) unused(o.momentum != defaults.momentum, "optimizer.momentum");
    if (!is_sgd) unused(o.nesterov, "optimizer.nesterov");
    if (is_sgd) unused(o.eps != defaults.eps, "optimizer.eps");
    if (o.type != OptimizerType::kAdamW) {
      unused(o.beta1 != defaults.beta1, "optimizer.beta1");
      unused(o.beta2 != defaults.beta2, "optimizer.beta2");
    }
  }

  void schedule() {
    using spec::ScheduleType;
    auto& c = s_.schedule;
    if (c.warmup_steps > 0 && c.warmup_ratio > 0) {
      if (overrides("schedule.warmup_ratio", "schedule.warmup_steps")) {
        c.warmup_steps = 0;
      } else if (overrides("schedule.warmup_steps", "schedule.warmup_ratio")) {
        c.warmup_ratio = 0;
      } else {
        faults_.add("schedule.warmup_ratio", "got {}, and schedule.warmup_steps is {}; expected one of them",
                    c.warmup_ratio, c.warmup_steps);
      }
    }
    const auto steps = s_.train.steps;
    if (steps && c.warmup_steps >= *steps) {
      constexpr const char* kMessage =
          "got {} of train.steps {}: the learning rate never reaches its peak; expected fewer";
      // A short run by --set train.steps is tried on purpose.
      if (overrides("train.steps", "schedule.warmup_steps")) {
        warn("schedule.warmup_steps", kMessage, c.warmup_steps, *steps);
      } else {
        faults_.add("schedule.warmup_steps", kMessage, c.warmup_steps, *steps);
      }
    }
    if (c.type == ScheduleType::kConstant && c.min_lr_ratio > 0) {
      warn("schedule.min_lr_ratio", "has no effect with schedule.type constant");
    }
    if (c.type != ScheduleType::kPolynomial && c.power != spec::Schedule().power) {
      warn("schedule.power", "has no effect with schedule.type {}", to_string(c.type));
    }
  }

  void evaluation() {
    auto& e = s_.evaluation;
    metrics();
    const bool has_validation = !s_.data.validation.path.empty() || s_.data.validation_fraction > 0;
    if (!has_validation) {
      if (said("evaluation.every") && e.every != "never") {
        faults_.add("evaluation.every",
                    "got {}, but there is nothing to evaluate; expected data.validation.path{}",
                    spec::shown(e.every),
                    s_.model.type == spec::ModelType::kGpt ? " or data.validation_fraction" : "");
      }
      e.every = "never";
    }
    if (e.every == "never") {
      const char* why = has_validation ? "evaluation.every is never" : "there is nothing to evaluate";
      if (e.best)
        faults_.add("evaluation.best", "got {}, but {}; expected an evaluation", to_string(*e.best), why);
      if (e.early_stop_patience > 0) {
        faults_.add("evaluation.early_stop_patience", "got {}, but {}; expected an evaluation",
                    e.early_stop_patience, why);
      }
      job_.evaluation_every = -1;
    } else if (e.every != "epoch") {
      std::from_chars(e.every.data(), e.every.data() + e.every.size(), job_.evaluation_every);
    }
    if (e.early_stop_patience > 0 && !e.best) {
      faults_.add("evaluation.early_stop_patience",
                  "got {} without evaluation.best; expected the metric to watch there",
                  e.early_stop_patience);
    }
    if (e.best && std::count(e.metrics.begin(), e.metrics.end(), *e.best) == 0) e.metrics.push_back(*e.best);
  }

  // The metrics that the model has, those that are computed where none are said first, and their names for messages.
  struct Metrics {
    std::vector<Metric> fitting;
    int64_t num_default;
    std::string_view model, expected;
  };
  Metrics fitting_metrics() const {
    switch (s_.model.type) {
      case spec::ModelType::kGpt:
        return {{Metric::kLoss, Metric::kPerplexity, Metric::kBitsPerByte},
                2,
                "gpt",
                "perplexity or bits_per_byte"};
      case spec::ModelType::kRecommender:
        return {{Metric::kLoss, Metric::kAuc, Metric::kLogLoss, Metric::kNormalizedEntropy,
                 Metric::kCalibration, Metric::kGroupedAuc},
                2,
                "recommender",
                "auc, log_loss, normalized_entropy, calibration or grouped_auc"};
      case spec::ModelType::kBertClassifier:
        break;
    }
    const std::string_view problem = to_string(s_.model.problem_type);
    if (s_.model.problem_type == ProblemType::kRegression) {
      return {{Metric::kLoss, Metric::kPearson, Metric::kSpearman, Metric::kMse},
              3,
              problem,
              "pearson, spearman or mse"};
    }
    return {{Metric::kLoss, Metric::kAccuracy, Metric::kF1, Metric::kMcc}, 2, problem, "accuracy, f1 or mcc"};
  }

  void metrics() {
    auto& e = s_.evaluation;
    const Metrics model = fitting_metrics();
    const auto& fitting = model.fitting;
    const auto check = [&](const std::string& key, Metric metric) {
      if (std::count(fitting.begin(), fitting.end(), metric) != 0) return;
      faults_.add(key, "got {}, which {} does not have; expected loss, {}", to_string(metric), model.model,
                  model.expected);
    };
    if (!said("evaluation.metrics") && e.metrics == spec::Evaluation().metrics) {
      e.metrics.assign(fitting.begin(), fitting.begin() + model.num_default);
    }
    for (const Metric metric : e.metrics) check("evaluation.metrics", metric);
    if (e.best) check("evaluation.best", *e.best);
  }

  void parallel() {
    const auto& p = s_.parallel;
    if (p.static_graph && p.find_unused_parameters) {
      faults_.add(
          "parallel.static_graph",
          "got true with find_unused_parameters; expected one of them (a static graph finds its unused "
          "parameters in the first step)");
    }
  }

  spec::JobSpec s_;
  int64_t cuda_devices_;
  JobFaults faults_;
  Job job_;
};

}  // namespace

Job resolve(spec::JobSpec spec, const World& world, int64_t cuda_devices) {
  return Resolver(std::move(spec), world, cuda_devices).run();
}

}  // namespace trainer
