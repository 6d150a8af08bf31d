#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace trainer::generate {

// How the next token is drawn, in transformers' order: repetition penalty, temperature, top-k, top-p.
struct Sampling {
  double temperature = 1;  // 0: the most likely token (the first of equals)
  int64_t top_k = 0;       // of the most likely tokens only; 0: all. Ties with the k-th stay.
  double top_p = 1;        // of the fewest most likely tokens whose probabilities sum to at least this
  // > 1: tokens that were there already get a lower logit: divided by it when positive, else multiplied (Keskar et al.
  // 2019, arXiv:1909.05858).
  double repetition_penalty = 1;
};

// The tokens that may come and their probabilities, most likely first. logits: [V]; `history`: the tokens so far, prompt
// included, those >= V too. Throws NumericError when no logit is finite.
std::vector<std::pair<int64_t, double>> candidates(std::span<const float> logits,
                                                   std::span<const int64_t> history,
                                                   const Sampling& sampling);

// One of them, by a draw from `random`; greedy sampling draws nothing.
int64_t draw(std::span<const float> logits, std::span<const int64_t> history, const Sampling& sampling,
             std::mt19937_64& random);

}  // namespace trainer::generate
