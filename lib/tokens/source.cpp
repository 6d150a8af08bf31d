#include "tokens/source.h"

#include <fmt/ranges.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "core/error.h"
#include "core/file.h"
#include "spec/enums.h"
#include "tokens/token_files.h"

namespace trainer::tokens {
namespace {

namespace fs = std::filesystem;
using spec::FileFormat;

// The kind of a file by its name: a format, of .bin files kAuto; nothing when the name does not tell.
struct Kind {
  const char* extension;
  FileFormat format;
};
constexpr Kind kKinds[] = {{".txt", FileFormat::kText},        {".text", FileFormat::kText},
                           {".jsonl", FileFormat::kJsonl},     {".ndjson", FileFormat::kJsonl},
                           {".parquet", FileFormat::kParquet}, {".bin", FileFormat::kAuto}};

const Kind* kind_of(const fs::path& file) {
  const std::string extension = file.extension().string();
  for (const Kind& kind : kKinds) {
    if (extension == kind.extension) return &kind;
  }
  return nullptr;
}

bool is_of_tokens(FileFormat format) {
  return format == FileFormat::kMegatron || format == FileFormat::kNanogpt || format == FileFormat::kLlmc;
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  const std::unique_ptr<glob_t, void (*)(glob_t*)> guard(&found, ::globfree);
  if (::glob(pattern.c_str(), GLOB_BRACE, nullptr, &found) != 0) return {};  // sorted by name
  return {found.gl_pathv, found.gl_pathv + found.gl_pathc};
}

// A name's bytes as a pattern that matches them alone.
std::string literal(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    if (std::string_view("*?[]{}\\~").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

// Files of a model or its tokenizer are no text to train on, though some are text.
bool is_of_model(const fs::path& file) {
  const std::string name = file.filename().string();
  constexpr std::string_view kNames[] = {"merges.txt",     "vocab.txt",  "tokenizer_config.json",
                                         "tokenizer.json", "vocab.json", "trainer_tokenizer.json",
                                         "config.json"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Files of one kind; of several kinds none is meant.
std::vector<std::string> files_in(const std::string& directory, FileFormat format) {
  std::map<std::string, std::vector<std::string>> by_kind;
  bool has_model = false;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (is_of_model(entry.path())) {
      has_model = true;
      continue;
    }
    const Kind* kind = kind_of(entry.path());
    if (!entry.is_regular_file() || kind == nullptr || entry.path().filename().string().starts_with("."))
      continue;
    const bool fits = format == FileFormat::kAuto || format == kind->format ||
                      (is_of_tokens(format) && kind->format == FileFormat::kAuto);
    if (fits) by_kind[kind->extension].push_back(entry.path().string());
  }
  if (by_kind.size() != 1) {
    std::vector<std::string> kinds;
    for (const auto& [kind, files] : by_kind) kinds.push_back(kind);
    if (kinds.empty()) {
      for (const Kind& kind : kKinds) kinds.emplace_back(kind.extension);
      fail<DataError>("{}: a directory {}; expected some of {}{}", directory,
                      has_model ? "of a model or tokenizer" : "without such files", fmt::join(kinds, " "),
                      format == FileFormat::kAuto ? "" : fmt::format(", {}", to_string(format)));
    }
    fail<DataError>(
        "{}: a directory with files of several kinds ({}); expected one\nhint: give a pattern, {}/*{}",
        directory, fmt::join(kinds, " "), directory, kinds[0]);
  }
  std::vector<std::string> files = std::move(by_kind.begin()->second);
  std::sort(files.begin(), files.end());
  // nanoGPT's and llm.c's directories hold both.
  const auto with = [&](const char* word) {
    return std::find_if(files.begin(), files.end(), [&](const std::string& file) {
      return fs::path(file).filename().string().find(word) != std::string::npos;
    });
  };
  if (const auto train = with("train"), other = with("val"); train != files.end() && other != files.end()) {
    fail<DataError>(
        "{}: a directory with {} and {}; expected training data alone\nhint: give a pattern, {}/*train*{}",
        directory, fs::path(*train).filename().string(), fs::path(*other).filename().string(), directory,
        fs::path(*train).extension().string());
  }
  return files;
}

std::vector<std::string> find_files(const std::string& path, FileFormat format) {
  if (fs::is_directory(path)) return files_in(path, format);
  if (fs::exists(path)) {
    if (is_of_model(path))
      fail<DataError>("{}: is a model's or tokenizer's file; expected text or tokens", path);
    return {path};
  }
  if (fs::exists(path + ".bin")) return {path + ".bin"};
  std::vector<std::string> files = matches(literal(path) + "_[0-9][0-9][0-9][0-9][0-9].bin");
  if (!files.empty()) return files;
  if (path.find_first_of("*?[{") == std::string::npos) fail<SpecError>("{}: no such file", path);
  files = matches(path);
  // Each index comes with its .bin.
  std::erase_if(files, [](const std::string& file) { return fs::path(file).extension() == ".idx"; });
  if (files.empty()) fail<SpecError>("{}: no file matches", path);
  return files;
}

void refuse_compressed(const std::string& file) {
  for (const char* end : {".gz", ".zst", ".xz", ".bz2", ".zip", ".tar"}) {
    if (file.ends_with(end))
      fail<DataError>("{}: is compressed; expected plain files\nhint: unpack it", file);
  }
}

FileFormat detect(const std::string& file) {
  if (const Kind* kind = kind_of(file)) {
    return kind->format == FileFormat::kAuto ? detect_token_format(file) : kind->format;
  }
  const MappedFile mapped(file);
  const std::string_view head = mapped.bytes().substr(0, 4096);
  if (head.starts_with("PAR1")) return FileFormat::kParquet;
  if (head.find('\0') != std::string_view::npos) {
    fail<DataError>(
        "{}: is of no kind that is known: it is no text (a zero byte in its first {})\nhint: say "
        "data.train.format, "
        "or --format",
        file, head.size());
  }
  return FileFormat::kText;
}

}  // namespace

bool Source::is_tokens() const {
  return is_of_tokens(format);
}

Source find_source(const std::string& path, FileFormat format) {
  Source source{format, find_files(path, format)};
  for (std::string& file : source.files) {
    if (fs::path(file).extension() == ".idx") file = fs::path(file).replace_extension(".bin").string();
    if (fs::is_directory(file)) fail<DataError>("{}: is a directory; expected files", file);
    refuse_compressed(file);
  }
  if (format != FileFormat::kAuto) return source;
  source.format = detect(source.files[0]);
  for (const std::string& file : source.files) {
    if (const FileFormat other = detect(file); other != source.format) {
      fail<DataError>("{}: is {}, and {} is {}; expected files of one kind", source.files[0],
                      to_string(source.format), file, to_string(other));
    }
  }
  return source;
}

}  // namespace trainer::tokens
