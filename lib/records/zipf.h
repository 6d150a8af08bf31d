#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace trainer::records {

// Draws of 0 .. n-1 with probabilities proportional to 1 / (i + 1)^exponent, in constant time and without tables: rejection by
// inversion (Hörmann, Derflinger 1996, "Rejection-inversion to generate variates from monotone discrete distributions").
class Zipf {
 public:
  // n >= 1, exponent >= 0.
  Zipf(int64_t n, double exponent)
      : n_(n), exponent_(exponent), low_(integral(1.5) - 1), high_(integral(static_cast<double>(n) + 0.5)) {
    sure_ = 2 - inverse(integral(2.5) - density(2));
  }

  // `uniform()`: in [0, 1).
  template <class Uniform>
  int64_t operator()(const Uniform& uniform) const {
    for (;;) {
      const double u = high_ + uniform() * (low_ - high_);
      const double x = inverse(u);
      const double k = std::clamp(std::floor(x + 0.5), 1.0, static_cast<double>(n_));
      if (k - x <= sure_ || u >= integral(k + 0.5) - density(k)) return static_cast<int64_t>(k) - 1;
    }
  }

 private:
  double density(double x) const { return std::exp(-exponent_ * std::log(x)); }
  // Of the density, and its inverse; (e^y - 1) / y is 1 where y is 0.
  double integral(double x) const {
    const double y = (1 - exponent_) * std::log(x);
    return std::log(x) * (std::abs(y) > kSmall ? std::expm1(y) / y : 1 + y / 2);
  }
  double inverse(double u) const {
    const double y = std::max(u * (1 - exponent_), -1.0);
    return std::exp(u * (std::abs(y) > kSmall ? std::log1p(y) / y : 1 - y / 2));
  }

  static constexpr double kSmall = 1e-8;
  int64_t n_;
  double exponent_, low_, high_, sure_ = 0;
};

}  // namespace trainer::records
