#include "tokens/prepare_files.h"

#include "core/error.h"
#include "tokens/metadata.h"

namespace trainer::tokens {
namespace {

namespace fs = std::filesystem;

bool take_end(std::string_view& name, std::string_view end) {
  const bool ends = name.ends_with(end);
  if (ends) name.remove_suffix(end.size());
  return ends;
}

// Whether a name is one of prepare's, without the prefix.
bool is_prepared(std::string_view name) {
  take_end(name, kPartial);
  if (name == "_tokenizer") return true;
  if (!take_end(name, ".bin") && !take_end(name, ".idx") && !take_end(name, ".json")) return false;
  name = without_shard(name);
  return name.empty() || name == "_train" || name == "_validation";
}

}  // namespace

std::vector<fs::path> prepared_files(const std::string& prefix) {
  const fs::path path = prefix;
  const fs::path directory = path.has_parent_path() ? path.parent_path() : ".";
  const std::string stem = path.filename().string();
  std::vector<fs::path> files;
  std::error_code ignored;  // a directory that cannot be read cannot be written either
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(stem) && is_prepared(std::string_view(name).substr(stem.size()))) {
      files.push_back(entry.path());
    }
  }
  return files;
}

std::vector<fs::path> files_to_replace(const std::string& prefix, const std::vector<std::string>& inputs,
                                       bool force) {
  std::vector<fs::path> files = prepared_files(prefix);
  std::erase_if(files, [](const fs::path& file) { return file.string().ends_with(kPartial); });
  for (const fs::path& file : files) {
    for (const std::string& input : inputs) {
      if (fs::equivalent(file, input)) fail<SpecError>("{}: is an input; expected another --output", input);
    }
    if (!force) {
      fail<SpecError>("{}: exists; expected a new --output\nhint: --force replaces what an earlier run left",
                      file.string());
    }
  }
  return files;
}

PartialFiles::~PartialFiles() {
  for (const fs::path& file : prepared_files(prefix)) {
    std::error_code ignored;
    if (file.string().ends_with(kPartial)) fs::remove_all(file, ignored);
  }
}

}  // namespace trainer::tokens
