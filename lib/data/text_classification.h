#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/batch.h"
#include "data/delimited.h"
#include "data/labels.h"
#include "job/job.h"
#include "spec/job_spec.h"
#include "text/wordpiece.h"

namespace trainer::data {

// Labelled texts, or pairs of texts, from a TSV or CSV file. Texts are tokenized when a batch first needs
// them; the ids of small files are then kept. Thread-safe once built.
class TextClassification {
 public:
  // Must be thread-safe.
  using Encode = std::function<text::Encoding(const text::TextPair&)>;

  // Reads every label, so that a bad one is found before training. An empty source.label: no labels.
  // Throws DataError naming file, line and column.
  TextClassification(const spec::DataSource& source, LabelReader labels, Encode encode);
  ~TextClassification();

  int64_t size() const { return file_.num_rows(); }
  // Where a sample is, for messages: file:line.
  std::string where(int64_t sample) const { return fmt::format("{}:{}", file_.path(), file_.line(sample)); }
  // Hash of the file's bytes: a resumed run must see the same data.
  uint64_t fingerprint() const;
  // Bytes of a sample's texts: known without tokenizing, nearly proportional to its tokens.
  int64_t text_bytes(int64_t sample) const { return text_bytes_[static_cast<size_t>(sample)]; }
  // Tokens of every sample. Tokenizes all of them on `num_threads` threads.
  std::vector<int32_t> lengths(int64_t num_threads) const;
  // Values of one sample in the loss: 1, or num_labels for multi-label and regression.
  int64_t targets_per_sample() const { return labels_.width(); }

  // Packs samples, on the CPU. Row keys are mix64(sample_key(seed, epoch, sample) + position). `pinned`: in
  // page-locked memory, which needs CUDA.
  TextBatch batch(const std::vector<int64_t>& samples, uint64_t seed, int64_t epoch, bool pinned) const;

 private:
  struct Sequence {
    std::vector<int32_t> ids;
    int32_t first_length = 0;  // leading tokens of type 0; the others are of type 1
  };
  // The kept sequence, or `scratch` filled.
  const Sequence& sequence(int64_t sample, Sequence& scratch) const;
  void check_rows();

  DelimitedFile file_;
  LabelReader labels_;
  Encode encode_;
  int64_t text_ = 0;
  std::optional<int64_t> pair_, label_;
  std::vector<int32_t> text_bytes_;
  mutable std::vector<std::atomic<const Sequence*>> kept_;  // empty: not kept
};

// The job's dataset for data.train or data.validation.
std::shared_ptr<const TextClassification> open_text_classification(
    const Job& job, const spec::DataSource& source, std::shared_ptr<const text::WordPiece> tokenizer);

}  // namespace trainer::data
