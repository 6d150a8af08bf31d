#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/batch.h"
#include "job/job.h"
#include "tokens/table.h"

namespace trainer::train {

// A job's predictions as rows. B samples, L outputs:
//
//   single label  row, label, prediction, probability_<label> of each
//   multi-label   row, label, prediction (both the labels' names with "|" between), probability_<label> of each
//   regression    row, label, prediction; of several outputs label_<i>, prediction_<i>
//   recommender   row, label, probability
//
// row: number of the sample, from 0. Labels are data.label_names, else numbers; there is no label column where the data have
// none.
class Predictions {
 public:
  explicit Predictions(const Job& job);
  int64_t width() const { return 1 + num_outputs_ + num_labels_; }
  // logits: [B, L] -> [B, width()] fp64 on the same device, to be gathered from all ranks. No device sync.
  at::Tensor rows(const at::Tensor& logits, const data::Batch& batch) const;
  // rows: [n, width()], at least one, in any order; comes out in order of the samples. Waits for the device.
  tokens::Table table(const at::Tensor& rows) const;

 private:
  std::string name(int64_t label) const;
  tokens::Column classes(std::string column, const at::Tensor& labels) const;
  tokens::Column sets(std::string column, const at::Tensor& members) const;

  bool is_recommender_;
  spec::ProblemType problem_;
  int64_t num_outputs_, num_labels_;
  std::vector<std::string> label_names_;
};

}  // namespace trainer::train
