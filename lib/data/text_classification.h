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

#include "data/dataset.h"
#include "data/labels.h"
#include "job/job.h"
#include "records/delimited.h"
#include "spec/job_spec.h"
#include "text/wordpiece/wordpiece.h"

namespace trainer::data {

// Labelled texts, or pairs of texts, from a TSV or CSV file. Texts are tokenized when a batch first needs
// them; the ids of small files are then kept. Thread-safe once built.
class TextClassification final : public Dataset {
 public:
  // Must be thread-safe.
  using Encode = std::function<text::Encoding(const text::TextPair&)>;

  // Reads every label, so that a bad one is found before training. An empty source.label: no labels; !needs_labels:
  // none either where the file has no such column. Throws DataError naming file, line and column.
  TextClassification(const spec::DataSource& source, LabelReader labels, Encode encode,
                     bool needs_labels = true);
  ~TextClassification() override;

  int64_t size() const override { return file_.num_rows(); }
  // file:line
  std::string where(int64_t sample) const override {
    return fmt::format("{}:{}", file_.path(), file_.line(sample));
  }
  // Hash of the file's bytes.
  uint64_t fingerprint() const override;
  // Bytes of its texts: known without tokenizing, nearly proportional to its tokens.
  int64_t cost(int64_t sample) const override { return text_bytes_[static_cast<size_t>(sample)]; }
  // Tokenizes all of them.
  std::vector<int32_t> lengths(int64_t num_threads) const override;
  // 1, or num_labels for multi-label and regression.
  int64_t targets(int64_t, uint64_t, int64_t) const override { return labels_.width(); }

  Batch batch(const std::vector<int64_t>& samples, uint64_t seed, int64_t epoch, bool pinned) const override;

 private:
  struct Sequence {
    std::vector<int32_t> ids;
    int32_t first_length = 0;  // leading tokens of type 0; the others are of type 1
  };
  // The kept sequence, or `scratch` filled.
  const Sequence& sequence(int64_t sample, Sequence& scratch) const;
  void check_rows();

  records::DelimitedFile file_;
  LabelReader labels_;
  Encode encode_;
  int64_t text_ = 0;
  std::optional<int64_t> pair_, label_;
  std::vector<int32_t> text_bytes_;
  mutable std::vector<std::atomic<const Sequence*>> kept_;  // empty: not kept
};

// The job's dataset for data.train or data.validation.
std::shared_ptr<const TextClassification> open_text_classification(
    const Job& job, const spec::DataSource& source, std::shared_ptr<const text::WordPiece> tokenizer,
    bool needs_labels = true);

}  // namespace trainer::data
