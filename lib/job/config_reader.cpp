#include "job/config_reader.h"

#include "core/error.h"
#include "core/file.h"

namespace trainer {

ConfigReader::ConfigReader(std::filesystem::path path) : path_(std::move(path)) {
  try {
    text_ = read_file(path_);
    json_ = Json::parse(text_);
  } catch (const DataError& error) {
    throw SpecError(error.what());
  } catch (const Json::exception& error) {
    fail<SpecError>("{}: not valid JSON: {}", path_.string(), error.what());
  }
  if (!json_.is_object()) fail<SpecError>("{}: is not a JSON object", path_.string());
}

void ConfigReader::integer(const char* key, int64_t& value, int64_t min, int64_t max) {
  if (!present(key)) return;
  const Json& got = json_[key];
  if (got.is_number_integer() && got >= min && got <= max) {
    value = got.get<int64_t>();
  } else {
    fault(key, fmt::format("an integer from {} to {}", min, max));
  }
}

void ConfigReader::number(const char* key, double& value, double below) {
  if (!present(key)) return;
  const Json& got = json_[key];
  if (got.is_number() && got >= 0.0 && got < below) {
    value = got.get<double>();
  } else {
    fault(key, fmt::format("a number in [0, {})", below));
  }
}

void ConfigReader::positive(const char* key, double& value) {
  if (!present(key)) return;
  if (json_[key].is_number() && json_[key] > 0.0) {
    value = json_[key].get<double>();
  } else {
    fault(key, "a number > 0");
  }
}

void ConfigReader::boolean(const char* key, bool& value) {
  if (!present(key)) return;
  if (json_[key].is_boolean()) {
    value = json_[key].get<bool>();
  } else {
    fault(key, "true or false");
  }
}

void ConfigReader::activation(const char* key, spec::Activation& value) {
  if (!present(key)) return;
  const Json& got = json_[key];
  if (got == "gelu") {
    value = spec::Activation::kGelu;
  } else if (got == "gelu_new" || got == "gelu_pytorch_tanh" || got == "gelu_fast") {
    value = spec::Activation::kGeluTanh;
  } else if (got == "relu") {
    value = spec::Activation::kRelu;
  } else {
    fault(key, "gelu, gelu_new, gelu_fast, gelu_pytorch_tanh or relu");
  }
}

void ConfigReader::only(const char* key, const Json& supported) {
  if (present(key) && json_[key] != supported) fault(key, supported.dump() + " (others are not supported)");
}

void ConfigReader::fault(const char* key, const std::string& expected) {
  const std::string got = json_.contains(key) ? json_[key].dump() : "nothing";
  faults_.push_back(fmt::format("{}: got {}; expected {}", key, got, expected));
}

void ConfigReader::throw_if_any(const char* expected) const {
  if (faults_.empty()) return;
  std::string message;
  for (const std::string& fault : faults_) message += fmt::format("\n  {}: {}", path_.string(), fault);
  fail<SpecError>("the model's config is not one {}{}", expected, message);
}

}  // namespace trainer
