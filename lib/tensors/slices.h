#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tensors/safetensors.h"

// Tensors that lie on several ranks, each a part, in files that are read at any number of ranks and any split:
//
//   <stem>-<rank>-of-<ranks>.safetensors     what a rank held; on a file system that all share
//   <stem>.index.json                        {"tensors": {name: {"dtype", "shape", "parts": [{"file", "key", "row_begin",
//                                            "rows", "col_begin", "cols"}]}}}

namespace trainer::tensors {

// A block of a whole tensor of at most two dimensions: rows from row_begin, columns from col_begin.
struct Slice {
  std::string name;            // of the whole: the same however it is split
  std::vector<int64_t> shape;  // of the whole
  int64_t row_begin = 0, col_begin = 0;
  at::Tensor tensor;     // the block's storage itself, of as many dimensions; written from, read into
  bool is_copy = false;  // another rank writes the same block; here it is only read into
};

struct WrittenSlices {
  std::string file;  // its name; empty: this rank has nothing to write
  WrittenFile written;
  std::string index;  // this rank's part of the index, for write_slice_index()
};

// Writes this rank's file into `directory`, straight from the storage. Not flushed to the disk. Throws CheckpointError.
WrittenSlices write_slices(const std::filesystem::path& directory, const std::string& stem, int64_t rank,
                           int64_t size, const std::vector<Slice>& slices);
// On one rank, of what write_slices() gave on all.
void write_slice_index(const std::filesystem::path& directory, const std::string& stem,
                       const std::vector<std::string>& indices);

// Reads what overlaps a slice, by memory map.
class SliceFiles {
 public:
  // Throws SpecError when there is no index, CheckpointError when it is damaged.
  SliceFiles(const std::filesystem::path& directory, const std::string& stem);
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  std::vector<std::string> names() const;  // sorted
  const std::vector<int64_t>& shape(const std::string& name) const { return tensors_.at(name).shape; }
  // Fills slice.tensor, converting types. Throws CheckpointError where the whole tensor is not there, has another shape,
  // or a part of the slice is in no file.
  void fill(const Slice& slice);

 private:
  struct Part {
    std::string file, key;
    int64_t row_begin = 0, rows = 0, col_begin = 0, cols = 0;
  };
  struct Whole {
    std::vector<int64_t> shape;
    std::vector<Part> parts;
  };
  at::Tensor read(const std::string& name, const Part& part);

  std::filesystem::path directory_, index_path_;
  std::map<std::string, Whole> tensors_;
  std::map<std::string, SafetensorsFile> files_;  // those used so far
};

}  // namespace trainer::tensors
