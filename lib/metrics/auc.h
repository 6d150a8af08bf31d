#pragma once

#include <cstdint>
#include <span>

// The area under the ROC curve: the probability that a random row with label 1 (a positive) has a higher score than a
// random one with label 0, where a tie counts half (Hanley and McNeil 1982). Equal to scikit-learn's roc_auc_score.

namespace trainer::metrics {

// Counts pairs of a positive and a negative, in whole numbers.
class PairCounter {
 public:
  // Rows whose scores are equal, or taken to be; above all that were added before.
  void add(uint64_t positives, uint64_t negatives);
  uint64_t positives() const { return positives_; }
  uint64_t negatives() const { return negatives_; }
  // NaN when the rows are of one class.
  double auc() const;
  // Half the part of the pairs that tie: where rows were only taken to be equal (bins), the true AUC is not farther
  // from auc() than this.
  double error_bound() const;

 private:
  using Wide = unsigned __int128;  // 64 bits end at 6e9 rows
  uint64_t positives_ = 0, negatives_ = 0;
  Wide twice_ordered_ = 0, ties_ = 0;
};

// A row's score and label in one number, by which rows sort: keys of equal scores stand together, label 0 first. Scores
// that compare equal (0 and -0) have one key; NaN must not occur.
int64_t row_key(float score, bool label);

// Exact, from row_key() of every row, in any order.
PairCounter count_pairs(std::span<const int64_t> keys);
// The same of rows that were counted in bins of the score, lowest first.
PairCounter count_pairs(std::span<const double> negatives, std::span<const double> positives);

struct GroupedAuc {
  double auc;         // mean over the groups, weighted by their rows; NaN when there is none
  int64_t groups;     // in the mean
  int64_t one_class;  // groups without an AUC, left out
};
// The AUC within each group (a user, a session): what the order of its own rows is worth (Zhu et al. 2017, "Optimized cost
// per click in Taobao display advertising"). groups: of each row.
GroupedAuc grouped_auc(std::span<const int64_t> keys, std::span<const int64_t> groups);

}  // namespace trainer::metrics
