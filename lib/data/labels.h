#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spec/job_spec.h"

namespace trainer::data {

// Reads the label cell of a row.
//   single label  one of label_names, or an integer 0 .. num_labels-1
//   multi-label   any number of these, separated by ',' or '|' (numbers also by spaces); none: an empty cell
//   regression    num_labels finite numbers, separated by ',', '|' or spaces
// Spaces around a label don't count. With label_names, integers are taken too unless a name is itself an
// integer.
class LabelReader {
 public:
  // Throws DataError when there are names and not num_labels of them.
  LabelReader(spec::ProblemType problem, int64_t num_labels, std::vector<std::string> names);

  // Values of one sample in a batch's labels: 1 (class), L (multi-label: 0 or 1; regression).
  int64_t width() const;
  bool integral() const { return problem_ == spec::ProblemType::kSingleLabel; }
  bool multi_label() const { return problem_ == spec::ProblemType::kMultiLabel; }
  // Fills `values` (width() of them). Throws DataError that says what was got and expected; the caller adds
  // where.
  void read(std::string_view cell, std::vector<double>& values) const;

 private:
  int64_t class_of(std::string_view word) const;

  spec::ProblemType problem_;
  int64_t num_labels_;
  std::vector<std::string> names_;
  bool integers_ = true;  // besides names
};

}  // namespace trainer::data
