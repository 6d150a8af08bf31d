#include "tensors/slices.h"

#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.h"
#include "core/file.h"

namespace trainer::tensors {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

int64_t rows_of(const std::vector<int64_t>& shape) {
  return shape.empty() ? 1 : shape[0];
}
int64_t cols_of(const std::vector<int64_t>& shape) {
  return shape.size() < 2 ? 1 : shape[1];
}

// A view with two dimensions.
at::Tensor matrix(const at::Tensor& tensor) {
  return tensor.dim() == 2 ? tensor : tensor.dim() == 1 ? tensor.unsqueeze(1) : tensor.view({1, 1});
}

// What both of [a, a + n) and [b, b + m) have.
struct Range {
  int64_t begin, end;
  Range(int64_t a, int64_t n, int64_t b, int64_t m) : begin(std::max(a, b)), end(std::min(a + n, b + m)) {}
  bool is_empty() const { return begin >= end; }
  int64_t size() const { return end - begin; }
};

void check(const Slice& slice) {
  const auto dims = static_cast<int64_t>(slice.shape.size());
  const auto block = slice.tensor.sizes().vec();
  if (dims <= 2 && slice.tensor.dim() == dims && slice.row_begin >= 0 && slice.col_begin >= 0 &&
      slice.row_begin + rows_of(block) <= rows_of(slice.shape) &&
      slice.col_begin + cols_of(block) <= cols_of(slice.shape)) {
    return;
  }
  fail<CheckpointError>(
      "{}: a block [{}] at row {}, column {} is not in a tensor [{}] of at most two dimensions", slice.name,
      fmt::join(block, ", "), slice.row_begin, slice.col_begin, fmt::join(slice.shape, ", "));
}

}  // namespace

WrittenSlices write_slices(const fs::path& directory, const std::string& stem, int64_t rank, int64_t size,
                           const std::vector<Slice>& slices) {
  WrittenSlices result;
  NamedTensors tensors;
  Json index = Json::array();
  const std::string file = fmt::format("{}-{}-of-{}.safetensors", stem, rank, size);
  for (const Slice& slice : slices) {
    check(slice);
    if (slice.is_copy || slice.tensor.numel() == 0) continue;
    const auto block = slice.tensor.sizes().vec();
    const std::string key = block == slice.shape
                                ? slice.name
                                : fmt::format("{}@{},{}", slice.name, slice.row_begin, slice.col_begin);
    const char* const dtype = dtype_name(slice.tensor.scalar_type());
    index.push_back({{"name", slice.name},
                     {"dtype", dtype == nullptr ? "" : dtype},  // which write_safetensors() refuses
                     {"shape", slice.shape},
                     {"part",
                      {{"file", file},
                       {"key", key},
                       {"row_begin", slice.row_begin},
                       {"rows", rows_of(block)},
                       {"col_begin", slice.col_begin},
                       {"cols", cols_of(block)}}}});
    tensors.emplace_back(key, slice.tensor);
  }
  if (tensors.empty()) return result;
  result.file = file;
  result.written = write_safetensors(directory / file, std::move(tensors));
  result.index = index.dump();
  return result;
}

void write_slice_index(const fs::path& directory, const std::string& stem,
                       const std::vector<std::string>& indices) {
  Json tensors = Json::object();
  for (const std::string& text : indices) {
    if (text.empty()) continue;
    for (const Json& entry : Json::parse(text)) {
      Json& whole = tensors[entry["name"].get<std::string>()];
      whole["dtype"] = entry["dtype"];
      whole["shape"] = entry["shape"];
      whole["parts"].push_back(entry["part"]);
    }
  }
  write_file_atomic(directory / (stem + ".index.json"),
                    Json({{"tensors", std::move(tensors)}}).dump(1) + "\n");
}

SliceFiles::SliceFiles(const fs::path& directory, const std::string& stem)
    : directory_(directory), index_path_(directory / (stem + ".index.json")) {
  std::string name;
  try {
    const Json index = Json::parse(read_file(index_path_));
    for (const auto& [key, entry] : index.at("tensors").items()) {
      name = key;
      Whole& whole = tensors_[key];
      whole.shape = entry.at("shape").get<std::vector<int64_t>>();
      for (const Json& part : entry.at("parts")) {
        whole.parts.push_back({part.at("file").get<std::string>(), part.at("key").get<std::string>(),
                               part.at("row_begin").get<int64_t>(), part.at("rows").get<int64_t>(),
                               part.at("col_begin").get<int64_t>(), part.at("cols").get<int64_t>()});
        const Part& p = whole.parts.back();
        // Compared so that no sum of numbers from a damaged file can overflow.
        const int64_t rows = rows_of(whole.shape), cols = cols_of(whole.shape);
        if (whole.shape.size() > 2 || p.row_begin < 0 || p.rows < 1 || p.rows > rows ||
            p.row_begin > rows - p.rows || p.col_begin < 0 || p.cols < 1 || p.cols > cols ||
            p.col_begin > cols - p.cols || fs::path(p.file).filename() != p.file) {
          fail<CheckpointError>(
              "{}: {}: got the part {}; expected a block of [{}] in a file beside the index",
              index_path_.string(), key, part.dump(), fmt::join(whole.shape, ", "));
        }
        for (const Part& other : whole.parts) {
          if (&other != &p && !Range(other.row_begin, other.rows, p.row_begin, p.rows).is_empty() &&
              !Range(other.col_begin, other.cols, p.col_begin, p.cols).is_empty()) {
            fail<CheckpointError>("{}: {}: the parts in {} and {} overlap", index_path_.string(), key,
                                  other.file, p.file);
          }
        }
      }
    }
  } catch (const Json::exception& error) {
    fail<CheckpointError>("{}: {}: not an index of slices: {}", index_path_.string(), name, error.what());
  }
}

std::vector<std::string> SliceFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, whole] : tensors_) names.push_back(name);
  return names;
}

at::Tensor SliceFiles::read(const std::string& name, const Part& part) {
  auto file = files_.find(part.file);
  if (file == files_.end()) file = files_.emplace(part.file, SafetensorsFile(directory_ / part.file)).first;
  const auto found = file->second.tensors().find(part.key);
  if (found == file->second.tensors().end()) {
    fail<CheckpointError>("{}: has no tensor {}, in which {} has a part of {}",
                          (directory_ / part.file).string(), part.key, index_path_.filename().string(), name);
  }
  const std::vector<int64_t>& shape = found->second.shape;
  if (shape.size() > 2 || rows_of(shape) != part.rows || cols_of(shape) != part.cols) {
    fail<CheckpointError>("{}: tensor {}: got [{}]; expected [{}, {}], as {} says",
                          (directory_ / part.file).string(), part.key, fmt::join(shape, ", "), part.rows,
                          part.cols, index_path_.filename().string());
  }
  return matrix(file->second.tensor(part.key));
}

void SliceFiles::fill(const Slice& slice) {
  check(slice);
  const auto found = tensors_.find(slice.name);
  if (found == tensors_.end()) {
    fail<CheckpointError>("{}: has no tensor {}", index_path_.string(), slice.name);
  }
  if (found->second.shape != slice.shape) {
    fail<CheckpointError>("{}: {}: got [{}]; expected [{}]", index_path_.string(), slice.name,
                          fmt::join(found->second.shape, ", "), fmt::join(slice.shape, ", "));
  }
  const at::NoGradGuard no_grad;
  const at::Tensor to = matrix(slice.tensor);
  int64_t filled = 0;
  for (const Part& part : found->second.parts) {
    const Range rows(part.row_begin, part.rows, slice.row_begin, to.size(0));
    const Range cols(part.col_begin, part.cols, slice.col_begin, to.size(1));
    if (rows.is_empty() || cols.is_empty()) continue;
    const auto block = [&](const at::Tensor& tensor, int64_t row_begin, int64_t col_begin) {
      return tensor.narrow(0, rows.begin - row_begin, rows.size())
          .narrow(1, cols.begin - col_begin, cols.size());
    };
    block(to, slice.row_begin, slice.col_begin)
        .copy_(block(read(slice.name, part), part.row_begin, part.col_begin));
    filled += rows.size() * cols.size();
  }
  if (filled != to.numel()) {
    fail<CheckpointError>("{}: {}: of rows {} to {}, columns {} to {}, {} of {} values are in no file",
                          index_path_.string(), slice.name, slice.row_begin, slice.row_begin + to.size(0) - 1,
                          slice.col_begin, slice.col_begin + to.size(1) - 1, to.numel() - filled, to.numel());
  }
}

}  // namespace trainer::tensors
