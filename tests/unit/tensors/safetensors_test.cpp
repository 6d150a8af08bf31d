#include "tensors/safetensors.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>

#include "core/error.h"
#include "temporary_directory.h"

namespace trainer::tensors {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Message;

// Writes a file of that header and that many zero bytes of data.
fs::path write_raw(const fs::path& path, const std::string& header, size_t data_bytes,
                   int64_t header_bytes = -1) {
  const uint64_t size = header_bytes < 0 ? header.size() : static_cast<uint64_t>(header_bytes);
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file << header << std::string(data_bytes, '\0');
  return path;
}

void check_refused(const std::string& header, size_t data_bytes, const std::string& message,
                   int64_t header_bytes = -1) {
  const TemporaryDirectory dir;
  const fs::path path = write_raw(dir.path / "m.safetensors", header, data_bytes, header_bytes);
  CHECK_THROWS_MATCHES(SafetensorsFile(path), CheckpointError, Message(path.string() + ": " + message));
}

}  // namespace

TEST_CASE("a file of the reference implementation is read: names, shapes, types, values") {
  const SafetensorsFile file(fs::path(TEST_DATA) /
                             "reference_bert/reference.safetensors");  // written by Python's safetensors
  CHECK(at::equal(file.tensor("lengths"), at::tensor({7, 12, 3, 25, 1}, at::kLong)));
  CHECK(file.tensor("regression.classifier.weight").sizes() == at::IntArrayRef({1, 32}));
  CHECK(file.tensor("regression.loss_sum").dim() == 0);
}

TEST_CASE("what is written is read back, aligned, whatever the types and strides") {
  const TemporaryDirectory dir;
  const fs::path path = dir.path / "m.safetensors";
  const at::Tensor matrix = at::arange(12, at::kFloat).view({3, 4});
  const NamedTensors tensors = {{"bytes", at::tensor({1, 2, 3}, at::kByte)},
                                {"transposed", matrix.t()},
                                {"half", matrix.to(at::kHalf)},
                                {"bf16", matrix.to(at::kBFloat16)},
                                {"empty", at::empty({0, 5})},
                                {"long", at::tensor({-1, 5}, at::kLong)},
                                {"bool", at::arange(2, at::kInt).to(at::kBool)}};
  write_safetensors(path, tensors);
  at::Tensor kept;
  {
    const SafetensorsFile file(path);
    CHECK(file.tensors().size() == tensors.size());
    for (const auto& [name, tensor] : tensors) {
      INFO(name);
      const at::Tensor got = file.tensor(name);
      CHECK(got.scalar_type() == tensor.scalar_type());
      CHECK(at::equal(got, tensor));
      CHECK(reinterpret_cast<uintptr_t>(got.data_ptr()) % got.element_size() == 0);
    }
    kept = file.tensor("transposed");
  }
  CHECK(at::equal(kept, matrix.t()));  // outlives the file object
}

TEST_CASE("data at an odd address are read") {
  const TemporaryDirectory dir;
  const fs::path path =
      write_raw(dir.path / "m", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]} })", 8);
  CHECK(at::equal(SafetensorsFile(path).tensor("a"), at::zeros(2)));
}

TEST_CASE("every fault of a safetensors file names the file and the tensor") {
  const std::string a = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  check_refused(a, 7,
                "tensor a: data_offsets [0, 8] are out of range; the file has 7 bytes of data (truncated?)");
  check_refused(a, 9, "9 bytes of data, but the header accounts for 8");
  check_refused(a, 0, "truncated: the header claims 1000 bytes, the file has 62", 1000);
  check_refused(a, 0,
                "the header claims 4000000000 bytes, the limit is 100000000; is this a safetensors file?",
                4000000000);
  check_refused("[1]", 0, "the header is not a JSON object");
  check_refused(R"({"a":1})", 0,
                "tensor a: got 1; expected {\"dtype\", \"shape\", \"data_offsets\": [begin, end]}");
  check_refused(
      R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8,
      "tensor a: got {\"data_offsets\":[0,8],\"dtype\":\"F32\",\"shape\":[-2]}; expected {\"dtype\", "
      "\"shape\", \"data_offsets\": [begin, end]}");
  check_refused(R"({"a":{"dtype":"F7","shape":[2],"data_offsets":[0,8]}})", 8,
                "tensor a: unknown dtype F7; expected F64, F32, F16, BF16, I64, I32, I16, I8, U8 or BOOL");
  check_refused(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8,
                "tensor a: F32 of shape [3] takes 12 bytes, but data_offsets [0, 8] hold 8");
  check_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8,
                "tensor a: data_offsets [8, 0] are out of range; the file has 8 bytes of data (truncated?)");
  check_refused(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", 8,
                "tensor a: shape [4611686018427387904,4] overflows");
  const std::string b = R"("b":{"dtype":"U8","shape":[4],"data_offsets":)";
  check_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)" + b + "[4,8]}}", 8,
                "tensor b: its data begin at 4, expected 8, the end of the tensor before (they overlap)");
  check_refused(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)" + b + "[9,13]}}", 13,
                "tensor b: its data begin at 9, expected 8, the end of the tensor before (there is a hole)");
  check_refused("{" + b + "[0,4]}," + b + "[0,4]}}", 4, "tensor b is in the header twice");

  const TemporaryDirectory dir;
  std::ofstream(dir.path / "short") << "abc";
  CHECK_THROWS_MATCHES(
      SafetensorsFile(dir.path / "short"), CheckpointError,
      Message((dir.path / "short").string() + ": 3 bytes are too few for a safetensors file"));
  const fs::path bad = write_raw(dir.path / "bad", "{\"a\":", 0);
  CHECK_THROWS_WITH(SafetensorsFile(bad),
                    Catch::Matchers::StartsWith(bad.string() + ": the header is not JSON: "));
}

TEST_CASE("tensors that cannot be written are refused") {
  CHECK_THROWS_MATCHES(write_safetensors("/nowhere/m", {{"a", at::zeros(1)}}), CheckpointError,
                       Message("/nowhere/m: cannot write: No such file or directory"));
  CHECK_THROWS_MATCHES(write_safetensors("/nowhere/m", {{"a", at::zeros(1, at::kComplexFloat)}}),
                       CheckpointError,
                       Message("/nowhere/m: tensor a: safetensors has no dtype ComplexFloat"));
}

}  // namespace trainer::tensors
