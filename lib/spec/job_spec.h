#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

// The job spec as plain structs: a YAML key is the field's name, the initializer is its default. What each
// key means, its range and its unit stand beside it in spec/describe.h, from which parsing, schema and
// documentation are made.

namespace trainer::spec {

enum class Precision { kFp32, kBf16, kFp16 };
enum class ModelType { kBertClassifier, kGpt, kRecommender };
enum class ModelInit { kPretrained, kRandom };
enum class ProblemType { kSingleLabel, kMultiLabel, kRegression };
enum class GptPreset { kNone, kGpt2, kGpt2Medium, kGpt2Large, kGpt2Xl, kLlama1b, kLlama7b };
enum class Norm { kLayer, kRms };
enum class Activation { kGelu, kGeluTanh, kRelu, kSwiglu };
enum class Positions { kLearned, kRope };
enum class TokenizerType { kAuto, kBpe, kChar, kByte };
enum class Documents { kJoined, kSeparate };
enum class Windows { kEpoch, kRandom };
enum class Attention { kAuto, kFlash, kCudnn, kMemoryEfficient, kMath };
enum class Recompute { kNone, kMlp, kBlock };
enum class FileFormat {
  kAuto,
  kTsv,
  kCsv,
  kText,
  kJsonl,
  kParquet,
  kMegatron,
  kNanogpt,
  kLlmc,
  kCriteo,
  kRecords
};
enum class Quoting { kAuto, kNone, kRfc4180 };
enum class Truncation { kLongestFirst, kOnlyFirst, kOnlySecond };
enum class OptimizerType { kAdamW, kSgd, kAdagrad };
enum class ScheduleType { kConstant, kLinear, kCosine, kPolynomial, kInverseSqrt };
enum class Architecture { kDlrm, kDcnv2, kDeepfm, kWideDeep };
enum class Pooling { kSum, kMean };
enum class TableDtype { kFp32, kFp16, kBf16 };
enum class Sharding { kAuto, kTable, kRow, kColumn, kData };
enum class EmbeddingBackend { kAuto, kNative, kFbgemm };
enum class EmbeddingMemory { kDevice, kUvm, kUvmCached };
enum class TableOptimizerType { kRowwiseAdagrad, kAdagrad, kSgd, kAdam };
enum class IdMapping { kVocabulary, kModulo, kMurmur, kIdentity };
enum class DenseTransform { kNone, kLog };
enum class OutOfRange { kError, kWrap, kIgnore };
enum class Metric {
  kLoss,
  kAccuracy,
  kF1,
  kMcc,
  kPearson,
  kSpearman,
  kMse,
  kPerplexity,
  kBitsPerByte,
  kAuc,
  kLogLoss,
  kNormalizedEntropy,
  kCalibration,
  kGroupedAuc
};
enum class Strategy { kDdp };
enum class GradientCompression { kNone, kFp16, kBf16 };
enum class DeviceChoice { kAuto, kCuda, kCpu };
enum class BackendChoice { kAuto, kNccl, kGloo };
enum class NonFinite { kSkip, kAbort };
enum class Progress { kAuto, kBar, kLines, kNone };
enum class Network { kAuto, kSocket, kInfiniband, kNone };
enum class NumaBinding { kAuto, kNone, kNode, kSocket, kExclusive, kCoreComplex };

struct Job {
  std::string name = "job";
  int64_t seed = 42;
  std::string output_dir;  // empty: runs/<name>
  bool operator==(const Job&) const = default;
};

// What is unset is as in model.pretrained's config.json, else as in the preset, else as in GPT-2 (124M).
struct Gpt {
  GptPreset preset = GptPreset::kNone;
  std::optional<int64_t> layers;
  std::optional<int64_t> heads;
  std::optional<int64_t> kv_heads;  // unset: as heads
  std::optional<int64_t> hidden_size;
  std::optional<int64_t> intermediate_size;  // unset: 4 hidden_size
  std::optional<int64_t> max_positions;      // unset, without preset: data.max_length
  std::optional<int64_t> vocab_size;         // unset: the tokenizer's
  int64_t pad_vocab_to = 64;                 // rows of the embedding are a multiple of it
  std::optional<Norm> norm;
  std::optional<double> norm_eps;
  std::optional<Activation> activation;
  std::optional<Positions> positions;
  std::optional<double> rope_theta;
  std::optional<bool> bias;
  std::optional<bool> tie_embeddings;
  std::optional<double> initializer_range;
  bool operator==(const Gpt&) const = default;
};

// What is unset is as the recommender's own key of the same meaning.
struct EmbeddingTable {
  std::vector<std::string> features;  // empty: the feature that has the table's name
  std::optional<int64_t> rows;
  std::optional<int64_t> dim;
  std::optional<Pooling> pooling;
  std::optional<TableDtype> dtype;
  std::optional<Sharding> sharding;
  bool operator==(const EmbeddingTable&) const = default;
};

struct EmbeddingOptimizer {
  TableOptimizerType type = TableOptimizerType::kRowwiseAdagrad;
  std::optional<double> lr;  // unset: optimizer.lr
  double eps = 1e-8;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double weight_decay = 0;
  bool stochastic_rounding = true;
  bool operator==(const EmbeddingOptimizer&) const = default;
};

struct Recommender {
  Architecture architecture = Architecture::kDlrm;
  int64_t embedding_dim = 16;
  std::vector<int64_t> bottom_mlp = {512, 256, 64};
  std::vector<int64_t> top_mlp = {512, 256};
  int64_t cross_layers = 3;
  int64_t cross_rank = 0;  // 0: full matrices
  double dropout = 0;
  std::map<std::string, EmbeddingTable> tables;
  std::optional<int64_t> rows;  // of tables that say none; unset: those of the fitted vocabulary
  Pooling pooling = Pooling::kSum;
  TableDtype table_dtype = TableDtype::kFp32;
  EmbeddingBackend embedding_backend = EmbeddingBackend::kAuto;
  EmbeddingMemory embedding_memory = EmbeddingMemory::kDevice;
  double cache_load_factor = 0.2;  // of a table's rows, in the GPU's cache
  EmbeddingOptimizer embedding_optimizer;
  bool operator==(const Recommender&) const = default;
};

struct Model {
  ModelType type = ModelType::kBertClassifier;
  std::string pretrained;  // Hugging Face directory
  ModelInit init = ModelInit::kPretrained;
  int64_t num_labels = 2;
  ProblemType problem_type = ProblemType::kSingleLabel;
  std::optional<double> hidden_dropout;
  std::optional<double> attention_dropout;
  std::optional<double> classifier_dropout;
  Gpt gpt;
  Recommender recommender;
  bool operator==(const Model&) const = default;
};

struct DataSource {
  std::string path;
  FileFormat format = FileFormat::kAuto;
  Quoting quoting = Quoting::kAuto;
  bool header = true;
  std::string text;       // column name, or number from 0
  std::string text_pair;  // empty: one text
  std::string label;
  bool operator==(const DataSource&) const = default;
};

struct TokenizerSource {
  TokenizerType type = TokenizerType::kAuto;
  std::string path;  // empty: model.pretrained, or beside the tokens
  bool operator==(const TokenizerSource&) const = default;
};

// What the columns of click records are. In `dense` and `sparse` a name with * stands for all columns that match.
struct Features {
  std::string label;
  std::optional<double> label_threshold;  // a label of at least this is a click; unset: labels are 0 and 1
  std::vector<std::string> dense;
  std::vector<std::string> sparse;
  std::string group;  // of grouped_auc; empty: none
  IdMapping ids = IdMapping::kVocabulary;
  int64_t min_count = 1;         // occurrences in data.train that give an id a row of its own
  std::string separator;         // between the ids of a multi-hot feature; empty: one id
  std::string weight_separator;  // between an id and its weight; empty: no weights
  DenseTransform dense_transform = DenseTransform::kNone;
  OutOfRange out_of_range = OutOfRange::kError;
  bool operator==(const Features&) const = default;
};

struct Data {
  DataSource train;
  DataSource validation;           // what is not said is as in train; an empty path: none
  double validation_fraction = 0;  // of train, when validation has no path
  TokenizerSource tokenizer;
  Features features;
  Documents documents = Documents::kJoined;
  Windows windows = Windows::kEpoch;
  std::vector<std::string> label_names;  // empty: labels are integers (or floats in regression)
  int64_t max_length = 128;
  Truncation truncation = Truncation::kLongestFirst;
  bool shuffle = true;
  int64_t num_workers = 1;  // prefetching threads per rank
  int64_t prefetch = 4;     // batches
  bool pin_memory = true;
  bool operator==(const Data&) const = default;
};

struct LossScale {
  double initial = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  bool operator==(const LossScale&) const = default;
};

struct Train {
  std::optional<int64_t> epochs;  // exactly one of epochs and steps; neither: 3 epochs
  std::optional<int64_t> steps;
  int64_t batch_size = 16;  // samples per rank and micro-batch
  int64_t batch_tokens =
      0;  // > 0: batches by token budget per rank and micro-batch, batch_size is its sample limit
  int64_t gradient_accumulation = 1;
  Precision precision = Precision::kFp32;
  bool tf32 = false;
  double clip_grad_norm = 1.0;  // 0: off
  NonFinite on_nonfinite = NonFinite::kSkip;
  int64_t max_skipped_steps = 20;  // in a row, then the job fails
  LossScale loss_scale;
  Attention attention = Attention::kAuto;
  Recompute recompute = Recompute::kNone;
  double ema_decay = 0;  // 0: none
  bool require_loss_decrease = false;
  bool operator==(const Train&) const = default;
};

struct Optimizer {
  OptimizerType type = OptimizerType::kAdamW;
  double lr = 5e-5;
  double weight_decay = 0.01;
  bool decay_bias_and_norm = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double momentum = 0.0;
  bool nesterov = false;
  bool operator==(const Optimizer&) const = default;
};

struct Schedule {
  ScheduleType type = ScheduleType::kLinear;
  int64_t warmup_steps = 0;
  double warmup_ratio = 0.0;  // of all steps; used when warmup_steps is 0
  double min_lr_ratio = 0.0;  // floor as a fraction of lr
  double power = 1.0;         // polynomial
  bool operator==(const Schedule&) const = default;
};

struct Evaluation {
  std::string every = "epoch";  // "epoch", "never" or a number of steps
  int64_t batch_size = 0;       // 0: as in training
  int64_t samples = 0;          // 0: all
  std::vector<Metric> metrics = {Metric::kLoss, Metric::kAccuracy};
  std::optional<Metric> best;       // empty: the last model is the best
  int64_t early_stop_patience = 0;  // evaluations without a better one; 0: never
  bool operator==(const Evaluation&) const = default;
};

struct Parallel {
  Strategy strategy = Strategy::kDdp;
  double bucket_cap_mb = 25.0;
  bool find_unused_parameters = false;
  bool static_graph = false;
  GradientCompression gradient_compression = GradientCompression::kNone;
  Sharding embedding = Sharding::kAuto;  // of tables that say none
  GradientCompression embedding_compression = GradientCompression::kNone;
  double embedding_memory_gb = 0;  // a rank; 0: no limit
  double timeout_s = 600.0;        // of every collective and of joining
  bool operator==(const Parallel&) const = default;
};

struct Launch {
  std::string nproc_per_node = "auto";  // "auto", "gpu", "cpu" or a number

  // Nodes.
  std::optional<std::string> nnodes;  // "N" or "MIN:MAX"
  std::optional<int64_t> node_rank;
  std::string master_addr;  // empty: not said
  std::optional<int64_t> master_port;
  std::string rdzv_endpoint;  // host[:port], several with commas between
  std::string run_id = "none";
  std::string token;
  std::string local_addr;
  std::string interface;
  double join_timeout_s = 600;
  double last_call_s = 5;
  double heartbeat_s = 1;
  double heartbeat_timeout_s = 4;
  Network network = Network::kAuto;
  bool preflight = true;

  // Failures.
  int64_t max_restarts = 0;
  int64_t max_restarts_without_progress = 3;
  double hang_timeout_s = 0;  // 0: learned; -1: not watched
  double straggler_factor = 1.5;
  double straggler_interval_s = 60;

  // Ends.
  std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  double grace_s = 10;
  double preempt_grace_s = 60;
  std::string preempt_file;
  double stop_before_end_s = 0;

  // Output.
  std::string log_dir;
  std::string redirects = "0";
  std::string tee = "0";
  std::vector<int64_t> local_ranks_filter;
  std::vector<std::string> duplicate_stdout_filters;
  std::vector<std::string> duplicate_stderr_filters;
  int64_t log_max_mb = 0;

  // Workers.
  std::string role = "default";
  NumaBinding numa_binding = NumaBinding::kAuto;
  bool virtual_local_rank = false;
  std::map<std::string, std::string> env;
  bool operator==(const Launch&) const = default;
};

struct Checkpoint {
  int64_t every_steps = 0;          // 0: only when asked to
  int64_t keep_last = 2;            // 0: all
  std::string resume = "restarts";  // "restarts", "auto", "never", or a directory
  bool save_final = true;
  bool save_best = true;
  bool operator==(const Checkpoint&) const = default;
};

struct Logging {
  int64_t every_steps = 10;
  Progress progress = Progress::kAuto;
  bool operator==(const Logging&) const = default;
};

struct Hardware {
  DeviceChoice device = DeviceChoice::kAuto;
  BackendChoice backend = BackendChoice::kAuto;
  int64_t threads_per_worker = 0;  // 0: usable cores / local workers
  bool operator==(const Hardware&) const = default;
};

// Where a value of the spec was said: "job.yaml:12:3", "--set train.steps", "--nnodes" or "PET_NNODES". Ordered
// as people read: the file from top to bottom, then what is said over it.
struct Place {
  int source = 0;  // 0: the file; n: the n-th value said over it
  int line = 0;
  int column = 0;
  std::string where;
  bool names_key = false;  // where does, as a flag's name
};

// What the user said rather than left to its default; empty for a spec that was not read from text. It is no
// part of the spec's value: two specs that say the same in different places are equal.
struct Said {
  std::string file;
  std::map<std::string, Place> places;  // by key, e.g. "train.steps"
  bool contains(const std::string& key) const { return places.count(key) != 0; }
  bool operator==(const Said&) const { return true; }
};

struct JobSpec {
  Job job;
  Model model;
  Data data;
  Train train;
  Optimizer optimizer;
  Schedule schedule;
  Evaluation evaluation;
  Parallel parallel;
  Launch launch;
  Checkpoint checkpoint;
  Logging logging;
  Hardware hardware;
  Said said;
  bool operator==(const JobSpec&) const = default;
};

}  // namespace trainer::spec
