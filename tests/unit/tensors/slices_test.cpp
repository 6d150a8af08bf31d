#include "tensors/slices.h"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "core/error.h"
#include "core/file.h"
#include "temporary_directory.h"

namespace trainer::tensors {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::EndsWith;
using Catch::Matchers::Message;

// Split over `world` ranks: weight [rows, dim] by rows or by columns, sum [rows] with it, a count that all have.
std::vector<Slice> split(const at::Tensor& weight, const at::Tensor& sum, int64_t rank, int64_t world,
                         bool by_rows) {
  const int64_t n = weight.size(by_rows ? 0 : 1), block = (n + world - 1) / world;
  const int64_t begin = std::min(n, rank * block), size = std::min(n, begin + block) - begin;
  std::vector<Slice> slices;
  slices.push_back({"C1.weight", weight.sizes().vec(), by_rows ? begin : 0, by_rows ? 0 : begin,
                    weight.narrow(by_rows ? 0 : 1, begin, size)});
  if (by_rows) {
    slices.push_back({"C1.sum", sum.sizes().vec(), begin, 0, sum.narrow(0, begin, size)});
  } else {
    slices.push_back({"C1.sum", sum.sizes().vec(), 0, 0, sum, rank != 0});
  }
  slices.push_back({"step", {}, 0, 0, at::scalar_tensor(7, at::kLong), rank != 0});
  return slices;
}

void write(const fs::path& directory, const at::Tensor& weight, const at::Tensor& sum, int64_t world,
           bool by_rows) {
  std::vector<std::string> indices;
  for (int64_t rank = 0; rank < world; ++rank) {
    const WrittenSlices written =
        write_slices(directory, "tables", rank, world, split(weight, sum, rank, world, by_rows));
    if (!written.file.empty()) {
      CHECK(written.file == fmt::format("tables-{}-of-{}.safetensors", rank, world));
      CHECK(fs::file_size(directory / written.file) == written.written.size_bytes);
    }
    indices.push_back(written.index);
  }
  write_slice_index(directory, "tables", indices);
}

}  // namespace

TEST_CASE("tensors split one way are read split any other, in any type") {
  const at::Tensor weight = at::arange(70, at::kFloat).view({10, 7}), sum = at::arange(10, at::kFloat) * 0.5;
  for (const bool by_rows : {true, false}) {
    for (const int64_t world : {1, 2, 3, 8, 12}) {
      const TemporaryDirectory dir;
      write(dir.path, weight, sum, world, by_rows);
      SliceFiles files(dir.path, "tables");
      CHECK(files.names() == std::vector<std::string>{"C1.sum", "C1.weight", "step"});
      CHECK(files.shape("C1.weight") == std::vector<int64_t>{10, 7});
      for (const bool read_by_rows : {true, false}) {
        for (const int64_t read_world : {1, 2, 5}) {
          INFO(by_rows << world << read_by_rows << read_world);
          const at::Tensor read_weight = at::full({10, 7}, -1, at::kDouble), read_sum = at::full({10}, -1.0);
          for (int64_t rank = 0; rank < read_world; ++rank) {
            auto slices = split(read_weight, read_sum, rank, read_world, read_by_rows);
            for (const Slice& slice : slices) files.fill(slice);
          }
          CHECK(at::equal(read_weight, weight.to(at::kDouble)));
          CHECK(at::equal(read_sum, sum));
        }
      }
      const at::Tensor step = at::zeros({}, at::kLong);
      files.fill({"step", {}, 0, 0, step});
      CHECK(step.item<int64_t>() == 7);
    }
  }
}

TEST_CASE("what replicates is in one file only, and a rank without a part writes none") {
  const TemporaryDirectory dir;
  write(dir.path, at::ones({2, 3}), at::ones(2), 3, true);
  CHECK(SafetensorsFile(dir.path / "tables-0-of-3.safetensors").tensors().contains("step"));
  CHECK_FALSE(SafetensorsFile(dir.path / "tables-1-of-3.safetensors").tensors().contains("step"));
  CHECK_FALSE(fs::exists(dir.path / "tables-2-of-3.safetensors"));
}

TEST_CASE("what is missing or does not fit is named") {
  const TemporaryDirectory dir;
  write(dir.path, at::ones({4, 3}), at::ones(4), 2, true);
  const std::string index = (dir.path / "tables.index.json").string();
  const auto refused = [&](const Slice& slice, const std::string& message) {
    CHECK_THROWS_MATCHES(SliceFiles(dir.path, "tables").fill(slice), CheckpointError, Message(message));
  };
  const at::Tensor whole = at::empty({4, 3});
  refused({"C2.weight", {4, 3}, 0, 0, whole}, index + ": has no tensor C2.weight");
  refused({"C1.weight", {5, 3}, 0, 0, whole}, index + ": C1.weight: got [4, 3]; expected [5, 3]");
  refused({"C1.weight", {4, 3}, 1, 0, whole},
          "C1.weight: a block [4, 3] at row 1, column 0 is not in a tensor [4, 3] of at most two dimensions");

  fs::remove(dir.path / "tables-1-of-2.safetensors");
  CHECK_NOTHROW(SliceFiles(dir.path, "tables").fill({"C1.weight", {4, 3}, 0, 0, whole.narrow(0, 0, 2)}));
  CHECK_THROWS_MATCHES(SliceFiles(dir.path, "tables").fill({"C1.weight", {4, 3}, 0, 0, whole}), SpecError,
                       Message((dir.path / "tables-1-of-2.safetensors").string() +
                               ": cannot open: No such file or directory"));
  const fs::path other = dir.path / "tables-1-of-2.safetensors";
  write_safetensors(other, {{"C1.weight@2,0", at::ones({2, 2})}});
  refused({"C1.weight", {4, 3}, 0, 0, whole},
          other.string() + ": tensor C1.weight@2,0: got [2, 2]; expected [2, 3], as tables.index.json says");
  write_safetensors(other, {{"a", at::ones({2, 2})}});
  refused(
      {"C1.weight", {4, 3}, 0, 0, whole},
      other.string() + ": has no tensor C1.weight@2,0, in which tables.index.json has a part of C1.weight");
}

TEST_CASE("a damaged index is refused") {
  const TemporaryDirectory dir;
  const std::string path = (dir.path / "tables.index.json").string();
  const auto refused = [&](const std::string& json, const std::string& message) {
    std::ofstream(path) << json;
    CHECK_THROWS_MATCHES(SliceFiles(dir.path, "tables"), CheckpointError, Message(path + ": " + message));
  };
  const auto one = [](const std::string& parts) {
    return R"({"tensors": {"a": {"dtype": "F32", "shape": [4, 3], "parts": [)" + parts + "]}}}";
  };
  const auto part = [](const std::string& file, const char* rows) {
    return R"({"file":")" + file + R"(","key":"a",)" + rows + R"(,"col_begin":0,"cols":3})";
  };
  const std::string first = part("f", R"("row_begin":0,"rows":2)");
  const std::string far = part("f", R"("row_begin":9223372036854775807,"rows":2)");
  refused(one(far), "a: got the part " + far + "; expected a block of [4, 3] in a file beside the index");
  const std::string outside = part("../f", R"("row_begin":0,"rows":2)");
  refused(one(outside),
          "a: got the part " + outside + "; expected a block of [4, 3] in a file beside the index");
  refused(one(first + "," + part("g", R"("row_begin":1,"rows":2)")), "a: the parts in f and g overlap");
  for (const std::string text :
       {"", "[", "{}", R"({"tensors": {"a": 1}})", R"({"tensors": {"a": {"shape": "x"}}})"}) {
    std::ofstream(path) << text;
    CHECK_THROWS_AS(SliceFiles(dir.path, "tables"), CheckpointError);
  }

  std::ofstream(path) << one(first);
  CHECK_THROWS_MATCHES(SliceFiles(dir.path, "tables").fill({"a", {4, 3}, 2, 0, at::empty({2, 3})}),
                       CheckpointError,
                       Message(path + ": a: of rows 2 to 3, columns 0 to 2, 6 of 6 values are in no file"));
}

TEST_CASE("a large tensor of any strides is written as it is") {
  const TemporaryDirectory dir;
  const at::Tensor wide = at::arange(4'000'000, at::kInt).view({2000, 2000});
  const at::Tensor columns = at::cat({wide, wide, wide}).narrow(1, 4, 1990);  // more than is copied at a time
  const WrittenFile written = write_safetensors(dir.path / "m", {{"a", columns}});
  CHECK(written.size_bytes == fs::file_size(dir.path / "m"));
  CHECK(at::equal(SafetensorsFile(dir.path / "m").tensor("a"), columns));
}

}  // namespace trainer::tensors
