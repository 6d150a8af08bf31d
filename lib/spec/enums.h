#pragma once

#include <array>
#include <string_view>
#include <type_traits>
#include <utility>

#include "spec/job_spec.h"

// How the choices of a job spec are written in YAML: one list per enum, in the order that messages show them.

namespace trainer::spec {

template <class E>
using Name = std::pair<E, std::string_view>;

constexpr auto names(Precision) {
  using E = Precision;
  return std::array<Name<E>, 3>{{{E::kFp32, "fp32"}, {E::kBf16, "bf16"}, {E::kFp16, "fp16"}}};
}
constexpr auto names(ModelType) {
  using E = ModelType;
  return std::array<Name<E>, 3>{
      {{E::kBertClassifier, "bert_classifier"}, {E::kGpt, "gpt"}, {E::kRecommender, "recommender"}}};
}
constexpr auto names(ModelInit) {
  using E = ModelInit;
  return std::array<Name<E>, 2>{{{E::kPretrained, "pretrained"}, {E::kRandom, "random"}}};
}
constexpr auto names(ProblemType) {  // as in Hugging Face's config.json
  using E = ProblemType;
  return std::array<Name<E>, 3>{{{E::kSingleLabel, "single_label_classification"},
                                 {E::kMultiLabel, "multi_label_classification"},
                                 {E::kRegression, "regression"}}};
}
constexpr auto names(GptPreset) {
  using E = GptPreset;
  return std::array<Name<E>, 7>{{{E::kNone, "none"},
                                 {E::kGpt2, "gpt2"},
                                 {E::kGpt2Medium, "gpt2-medium"},
                                 {E::kGpt2Large, "gpt2-large"},
                                 {E::kGpt2Xl, "gpt2-xl"},
                                 {E::kLlama1b, "llama-1b"},
                                 {E::kLlama7b, "llama-7b"}}};
}
constexpr auto names(Norm) {
  using E = Norm;
  return std::array<Name<E>, 2>{{{E::kLayer, "layer"}, {E::kRms, "rms"}}};
}
constexpr auto names(Activation) {
  using E = Activation;
  return std::array<Name<E>, 4>{
      {{E::kGelu, "gelu"}, {E::kGeluTanh, "gelu_tanh"}, {E::kRelu, "relu"}, {E::kSwiglu, "swiglu"}}};
}
constexpr auto names(Positions) {
  using E = Positions;
  return std::array<Name<E>, 2>{{{E::kLearned, "learned"}, {E::kRope, "rope"}}};
}
constexpr auto names(TokenizerType) {
  using E = TokenizerType;
  return std::array<Name<E>, 4>{
      {{E::kAuto, "auto"}, {E::kBpe, "bpe"}, {E::kChar, "char"}, {E::kByte, "byte"}}};
}
constexpr auto names(Documents) {
  using E = Documents;
  return std::array<Name<E>, 2>{{{E::kJoined, "joined"}, {E::kSeparate, "separate"}}};
}
constexpr auto names(Windows) {
  using E = Windows;
  return std::array<Name<E>, 2>{{{E::kEpoch, "epoch"}, {E::kRandom, "random"}}};
}
constexpr auto names(Attention) {
  using E = Attention;
  return std::array<Name<E>, 5>{{{E::kAuto, "auto"},
                                 {E::kFlash, "flash"},
                                 {E::kCudnn, "cudnn"},
                                 {E::kMemoryEfficient, "memory_efficient"},
                                 {E::kMath, "math"}}};
}
constexpr auto names(Recompute) {
  using E = Recompute;
  return std::array<Name<E>, 3>{{{E::kNone, "none"}, {E::kMlp, "mlp"}, {E::kBlock, "block"}}};
}
constexpr auto names(FileFormat) {
  using E = FileFormat;
  return std::array<Name<E>, 11>{{{E::kAuto, "auto"},
                                  {E::kTsv, "tsv"},
                                  {E::kCsv, "csv"},
                                  {E::kText, "text"},
                                  {E::kJsonl, "jsonl"},
                                  {E::kParquet, "parquet"},
                                  {E::kMegatron, "megatron"},
                                  {E::kNanogpt, "nanogpt"},
                                  {E::kLlmc, "llm.c"},
                                  {E::kCriteo, "criteo"},
                                  {E::kRecords, "records"}}};
}
constexpr auto names(Quoting) {
  using E = Quoting;
  return std::array<Name<E>, 3>{{{E::kAuto, "auto"}, {E::kNone, "none"}, {E::kRfc4180, "rfc4180"}}};
}
constexpr auto names(Truncation) {
  using E = Truncation;
  return std::array<Name<E>, 3>{
      {{E::kLongestFirst, "longest_first"}, {E::kOnlyFirst, "only_first"}, {E::kOnlySecond, "only_second"}}};
}
constexpr auto names(OptimizerType) {
  using E = OptimizerType;
  return std::array<Name<E>, 3>{{{E::kAdamW, "adamw"}, {E::kSgd, "sgd"}, {E::kAdagrad, "adagrad"}}};
}
constexpr auto names(ScheduleType) {
  using E = ScheduleType;
  return std::array<Name<E>, 5>{{{E::kConstant, "constant"},
                                 {E::kLinear, "linear"},
                                 {E::kCosine, "cosine"},
                                 {E::kPolynomial, "polynomial"},
                                 {E::kInverseSqrt, "inverse_sqrt"}}};
}
constexpr auto names(Architecture) {
  using E = Architecture;
  return std::array<Name<E>, 4>{
      {{E::kDlrm, "dlrm"}, {E::kDcnv2, "dcnv2"}, {E::kDeepfm, "deepfm"}, {E::kWideDeep, "wide_deep"}}};
}
constexpr auto names(Pooling) {
  using E = Pooling;
  return std::array<Name<E>, 2>{{{E::kSum, "sum"}, {E::kMean, "mean"}}};
}
constexpr auto names(TableDtype) {
  using E = TableDtype;
  return std::array<Name<E>, 3>{{{E::kFp32, "fp32"}, {E::kFp16, "fp16"}, {E::kBf16, "bf16"}}};
}
constexpr auto names(Sharding) {
  using E = Sharding;
  return std::array<Name<E>, 5>{{{E::kAuto, "auto"},
                                 {E::kTable, "table"},
                                 {E::kRow, "row"},
                                 {E::kColumn, "column"},
                                 {E::kData, "data"}}};
}
constexpr auto names(EmbeddingBackend) {
  using E = EmbeddingBackend;
  return std::array<Name<E>, 3>{{{E::kAuto, "auto"}, {E::kNative, "native"}, {E::kFbgemm, "fbgemm"}}};
}
constexpr auto names(EmbeddingMemory) {
  using E = EmbeddingMemory;
  return std::array<Name<E>, 3>{{{E::kDevice, "device"}, {E::kUvm, "uvm"}, {E::kUvmCached, "uvm_cached"}}};
}
constexpr auto names(TableOptimizerType) {
  using E = TableOptimizerType;
  return std::array<Name<E>, 4>{{{E::kRowwiseAdagrad, "rowwise_adagrad"},
                                 {E::kAdagrad, "adagrad"},
                                 {E::kSgd, "sgd"},
                                 {E::kAdam, "adam"}}};
}
constexpr auto names(IdMapping) {
  using E = IdMapping;
  return std::array<Name<E>, 4>{{{E::kVocabulary, "vocabulary"},
                                 {E::kModulo, "modulo"},
                                 {E::kMurmur, "murmur"},
                                 {E::kIdentity, "identity"}}};
}
constexpr auto names(DenseTransform) {
  using E = DenseTransform;
  return std::array<Name<E>, 2>{{{E::kNone, "none"}, {E::kLog, "log"}}};
}
constexpr auto names(OutOfRange) {
  using E = OutOfRange;
  return std::array<Name<E>, 3>{{{E::kError, "error"}, {E::kWrap, "wrap"}, {E::kIgnore, "ignore"}}};
}
constexpr auto names(Metric) {
  using E = Metric;
  return std::array<Name<E>, 14>{{{E::kLoss, "loss"},
                                  {E::kAccuracy, "accuracy"},
                                  {E::kF1, "f1"},
                                  {E::kMcc, "mcc"},
                                  {E::kPearson, "pearson"},
                                  {E::kSpearman, "spearman"},
                                  {E::kMse, "mse"},
                                  {E::kPerplexity, "perplexity"},
                                  {E::kBitsPerByte, "bits_per_byte"},
                                  {E::kAuc, "auc"},
                                  {E::kLogLoss, "log_loss"},
                                  {E::kNormalizedEntropy, "normalized_entropy"},
                                  {E::kCalibration, "calibration"},
                                  {E::kGroupedAuc, "grouped_auc"}}};
}
constexpr auto names(Strategy) {
  using E = Strategy;
  return std::array<Name<E>, 1>{{{E::kDdp, "ddp"}}};
}
constexpr auto names(GradientCompression) {
  using E = GradientCompression;
  return std::array<Name<E>, 3>{{{E::kNone, "none"}, {E::kFp16, "fp16"}, {E::kBf16, "bf16"}}};
}
constexpr auto names(DeviceChoice) {
  using E = DeviceChoice;
  return std::array<Name<E>, 3>{{{E::kAuto, "auto"}, {E::kCuda, "cuda"}, {E::kCpu, "cpu"}}};
}
constexpr auto names(BackendChoice) {
  using E = BackendChoice;
  return std::array<Name<E>, 3>{{{E::kAuto, "auto"}, {E::kNccl, "nccl"}, {E::kGloo, "gloo"}}};
}
constexpr auto names(NonFinite) {
  using E = NonFinite;
  return std::array<Name<E>, 2>{{{E::kSkip, "skip"}, {E::kAbort, "abort"}}};
}
constexpr auto names(Progress) {
  using E = Progress;
  return std::array<Name<E>, 4>{
      {{E::kAuto, "auto"}, {E::kBar, "bar"}, {E::kLines, "lines"}, {E::kNone, "none"}}};
}

constexpr auto names(Network) {
  using E = Network;
  return std::array<Name<E>, 4>{
      {{E::kAuto, "auto"}, {E::kSocket, "socket"}, {E::kInfiniband, "infiniband"}, {E::kNone, "none"}}};
}
constexpr auto names(NumaBinding) {  // torchrun's words, but for auto and none
  using E = NumaBinding;
  return std::array<Name<E>, 6>{{{E::kAuto, "auto"},
                                 {E::kNone, "none"},
                                 {E::kNode, "node"},
                                 {E::kSocket, "socket"},
                                 {E::kExclusive, "exclusive"},
                                 {E::kCoreComplex, "core-complex"}}};
}

// The name of a choice as YAML has it, e.g. "bf16".
template <class E>
requires std::is_enum_v<E>
constexpr std::string_view to_string(E value) {
  for (const auto& [choice, name] : names(E{})) {
    if (choice == value) return name;
  }
  return "?";
}

}  // namespace trainer::spec
