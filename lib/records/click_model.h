#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/mix64.h"
#include "records/zipf.h"

namespace trainer::records {

struct ClickModelOptions {
  int64_t num_dense = 13;
  std::vector<int64_t> cardinalities = std::vector<int64_t>(26, 1000);  // of each sparse feature
  double zipf = 1.05;                                                   // exponent of the ids' frequencies
  int64_t head = 200;  // most frequent ids of a feature that have an effect; others have none
  int64_t pairs = 4;   // of features with an effect together: (0, 1), (2, 3), ...; at most what there are
  double click_rate = 0.25;
  double signal = 1.5;  // standard deviation of the logits
  uint64_t seed = 42;
};

struct ClickRow {
  std::vector<int64_t> counts;  // dense features, before the logarithm
  std::vector<int64_t> ids;
  double probability = 0;  // of a click
  bool click = false;
};

// Rows of which the true probability of a click is known: sigmoid of
//   bias + sum of a_d z_d + sum of u_f[id_f] + sum over pairs (f, g) of <v_f[id_f], v_g[id_g]>
// where z is ln(1 + count), standardized, counts are log-normal, ids have Zipf frequencies, a, u and v are normal. Of the logits'
// variance, 0.25 is dense features', 0.6 the ids', 0.15 the pairs'. A row is a function of seed, stream and its number.
class ClickModel {
 public:
  explicit ClickModel(const ClickModelOptions& options);

  void row(uint64_t stream, int64_t number, ClickRow& row) const;
  const ClickModelOptions& options() const { return options_; }

 private:
  // Logits of the three parts, not yet scaled.
  struct Parts {
    double dense = 0, ids = 0, pairs = 0;
  };
  struct Feature {
    Zipf zipf;
    uint64_t step, offset;  // what spreads frequent ids over all of them
  };
  Parts draw(uint64_t stream, int64_t number, ClickRow& row, double& uniform) const;
  double weight(size_t feature, int64_t rank, uint64_t dimension) const;

  ClickModelOptions options_;
  std::vector<Feature> features_;
  std::vector<double> dense_weights_;
  double bias_ = 0, dense_scale_ = 0, id_scale_ = 0, pair_scale_ = 0;
};

// The best that any model can expect of rows: what their true probabilities reach.
struct BestScores {
  double auc = 0.5;  // ties count half
  double log_loss = 0;
  double normalized_entropy = 1;  // log loss over that of the click rate
};
BestScores best_scores(std::span<const double> probabilities, std::span<const uint8_t> clicks);

}  // namespace trainer::records
