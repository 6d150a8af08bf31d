#include "model/hf/weight_files.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "core/error.h"
#include "temporary_directory.h"

namespace trainer::model {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Message;

}  // namespace

TEST_CASE("shards are read through their index") {
  const TemporaryDirectory dir;
  write_safetensors(dir.path / "model-1.safetensors", {{"a", at::ones(2)}});
  write_safetensors(dir.path / "model-2.safetensors", {{"b", at::zeros(3)}});
  const fs::path index = dir.path / "model.safetensors.index.json";
  std::ofstream(index)
      << R"({"metadata": {}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})";
  const WeightFiles files(dir.path);
  CHECK(files.names() == std::vector<std::string>{"a", "b"});
  CHECK(at::equal(files.tensor("a"), at::ones(2)));
  CHECK(at::equal(files.tensor("b"), at::zeros(3)));

  const auto refused = [&](const std::string& json, const std::string& message) {
    std::ofstream(index) << json;
    CHECK_THROWS_MATCHES(WeightFiles(dir.path), CheckpointError, Message(index.string() + ": " + message));
  };
  refused("[", "expected JSON with an object \"weight_map\" {tensor: file}");
  refused(R"({"weight_map": {"a": "../m"}})",
          "tensor a: got \"../m\"; expected the name of a file beside the index");
  refused(R"({"weight_map": {"b": "model-1.safetensors"}})", "tensor b is not in model-1.safetensors");
  std::ofstream(index) << R"({"weight_map": {"b": "model-3.safetensors"}})";
  CHECK_THROWS_MATCHES(
      WeightFiles(dir.path), SpecError,
      Message((dir.path / "model-3.safetensors").string() + ": cannot open: No such file or directory"));
}

TEST_CASE("a directory without safetensors is refused, a pickle with how to convert it") {
  const TemporaryDirectory dir;
  const std::string name = dir.path.string();
  CHECK_THROWS_MATCHES(WeightFiles(dir.path), SpecError,
                       Message(name + ": no model.safetensors and no model.safetensors.index.json in it"));
  std::ofstream(dir.path / "pytorch_model.bin") << "x";
  CHECK_THROWS_MATCHES(
      WeightFiles(dir.path), CheckpointError,
      Message(name +
              ": has pytorch_model.bin (pickle) only, expected model.safetensors; hint: convert it once in "
              "Python: AutoModel.from_pretrained(D).save_pretrained(D, safe_serialization=True)"));
}

}  // namespace trainer::model
