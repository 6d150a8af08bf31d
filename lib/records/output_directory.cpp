#include "records/output_directory.h"

#include "core/error.h"
#include "core/file.h"
#include "records/feature_map.h"
#include "records/prepare.h"

namespace trainer::records {
namespace {

namespace fs = std::filesystem;

// Whether an earlier run wrote the directory.
bool is_prepared(const fs::path& directory) {
  return fs::exists(directory / kFeaturesFile) || fs::exists(directory / kTruthFile);
}

fs::path without_slash(const std::string& output) {
  const fs::path path = fs::path(output).lexically_normal();
  return path.filename().empty() ? path.parent_path() : path;
}

}  // namespace

OutputDirectory::OutputDirectory(const std::string& output, bool force,
                                 const std::vector<std::string>& inputs)
    : path_(without_slash(output)), partial_(path_.string() + ".partial") {
  if (path_.filename().empty() || path_.filename() == "." || path_.filename() == "..") {
    fail<SpecError>("--output: got \"{}\"; expected a directory to make", output);
  }
  std::error_code error;
  if (path_.has_parent_path()) fs::create_directories(path_.parent_path(), error);
  if (error) fail<DataError>("{}: cannot make: {}", path_.parent_path().string(), error.message());
  lock_.emplace(path_.string());
  if (fs::exists(path_)) {
    if (!fs::is_directory(path_))
      fail<SpecError>("--output: {} is a file; expected a directory to make", output);
    if (!fs::is_empty(path_) && !is_prepared(path_)) {
      fail<SpecError>("--output: {} has files of others; expected a new directory", output);
    }
    if (is_prepared(path_) && !force) {
      fail<SpecError>(
          "--output: {} exists; expected a new directory\nhint: --force replaces what an earlier run left",
          output);
    }
    for (const std::string& input : inputs) {
      if (!fs::exists(input) || !fs::equivalent(fs::absolute(input).parent_path(), path_)) continue;
      fail<SpecError>("--output: {} is in it; expected another directory", input);
    }
  }
  fs::remove_all(partial_, error);
  fs::create_directory(partial_, error);
  if (error) fail<DataError>("{}: cannot make: {}", partial_.string(), error.message());
}

OutputDirectory::~OutputDirectory() {
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

void OutputDirectory::commit() {
  replace_directory(partial_, path_);
}

}  // namespace trainer::records
