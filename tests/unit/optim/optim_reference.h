#pragma once

#include <ATen/ATen.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace trainer::test {

// tests/data/optim_reference.json, made by tests/parity/make/optim_reference.py with PyTorch and transformers.
struct Reference {
  nlohmann::json json = nlohmann::json::parse(std::ifstream(TEST_DATA "/optim_reference.json"));

  // A flat list as tensors of the reference's shapes.
  std::vector<at::Tensor> tensors(const nlohmann::json& flat) const {
    const at::Tensor all = at::tensor(flat.get<std::vector<float>>());
    std::vector<at::Tensor> result;
    int64_t offset = 0;
    for (const auto& shape : json["shapes"]) {
      const auto sizes = shape.get<std::vector<int64_t>>();
      const int64_t n = c10::multiply_integers(sizes);
      result.push_back(all.narrow(0, offset, n).reshape(sizes).clone());
      offset += n;
    }
    return result;
  }

  float max_difference(const std::vector<at::Tensor>& actual, const nlohmann::json& flat) const {
    const auto expected = tensors(flat);
    float worst = 0;
    for (size_t i = 0; i < actual.size(); ++i) {
      worst = std::max(worst, (actual[i] - expected[i]).abs().max().item<float>());
    }
    return worst;
  }
};

}  // namespace trainer::test
