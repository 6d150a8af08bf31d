#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainer::records {

struct SparseFeature {
  std::string name;
  int64_t table = 0;  // number in FeatureInfo::tables
};

struct TableInfo {
  std::string name;
  int64_t rows = 0;
};

// What a model must know of its data: features in the order of batches, patterns resolved and vocabularies fitted.
struct FeatureInfo {
  std::vector<std::string> dense;
  std::vector<SparseFeature> sparse;
  std::vector<TableInfo> tables;  // in the order of their first features
  bool multi_hot =
      false;  // bags may have any number of ids; else each has one, or none that out_of_range left out
  bool weighted = false;
  bool groups = false;
};

}  // namespace trainer::records
