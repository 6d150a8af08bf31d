#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "spec/job_spec.h"

namespace trainer {

// Far beyond use; they keep products of sizes, in bytes, within 64 bits.
inline constexpr int64_t kMostLayers = 10'000, kMostChannels = 1'000'000, kMostRows = 100'000'000;

// A Hugging Face config.json: reads keys of it and collects every fault. A key that is not there, or null,
// leaves the value as it is.
class ConfigReader {
 public:
  using Json = nlohmann::ordered_json;

  // Throws SpecError when it is not a file with a JSON object.
  explicit ConfigReader(std::filesystem::path path);

  const std::string& text() const { return text_; }
  const Json& operator[](const char* key) const { return json_.at(key); }
  bool is_null(const char* key) const { return json_.contains(key) && json_[key].is_null(); }
  bool present(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

  void integer(const char* key, int64_t& value, int64_t min, int64_t max);
  void number(const char* key, double& value, double below);  // in [0, below)
  void positive(const char* key, double& value);
  void boolean(const char* key, bool& value);
  void activation(const char* key, spec::Activation& value);
  // A key that must have the one value that is supported, when it is there.
  void only(const char* key, const Json& supported);
  void fault(const char* key, const std::string& expected);
  // Throws SpecError with all faults. `expected`: "that can be trained".
  void throw_if_any(const char* expected) const;

 private:
  const std::filesystem::path path_;
  std::string text_;
  Json json_;
  std::vector<std::string> faults_;
};

}  // namespace trainer
