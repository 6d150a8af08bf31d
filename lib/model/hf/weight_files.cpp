#include "model/hf/weight_files.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"

namespace trainer::model {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kIndexName = "model.safetensors.index.json";

}  // namespace

WeightFiles::WeightFiles(const fs::path& directory) {
  const auto add = [&](const std::string& file) {
    files_.emplace_back(directory / file);
    return files_.size() - 1;
  };
  const fs::path index_path = directory / kIndexName;
  if (fs::exists(directory / "model.safetensors")) {
    const size_t file = add("model.safetensors");
    for (const auto& [name, info] : files_[file].tensors()) file_of_[name] = file;
  } else if (fs::exists(index_path)) {
    const Json index = Json::parse(read_file(index_path), nullptr, false);
    if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
      fail<CheckpointError>("{}: expected JSON with an object \"weight_map\" {{tensor: file}}",
                            index_path.string());
    }
    std::map<std::string, size_t> opened;
    for (const auto& [name, value] : index["weight_map"].items()) {
      const std::string file = value.is_string() ? value.get<std::string>() : "";
      if (file.empty() || fs::path(file).filename() != file) {  // never leaves the directory
        fail<CheckpointError>("{}: tensor {}: got {}; expected the name of a file beside the index",
                              index_path.string(), name, value.dump());
      }
      if (!opened.contains(file)) opened[file] = add(file);
      if (!files_[opened[file]].tensors().contains(name)) {
        fail<CheckpointError>("{}: tensor {} is not in {}", index_path.string(), name, file);
      }
      file_of_[name] = opened[file];
    }
  } else if (fs::exists(directory / "pytorch_model.bin")) {
    fail<CheckpointError>(
        "{}: has pytorch_model.bin (pickle) only, expected model.safetensors; hint: convert it once in "
        "Python: "
        "AutoModel.from_pretrained(D).save_pretrained(D, safe_serialization=True)",
        directory.string());
  } else {
    fail<SpecError>("{}: no model.safetensors and no {} in it", directory.string(), kIndexName);
  }
}

std::vector<std::string> WeightFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

}  // namespace trainer::model
