#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/file.h"
#include "core/parallel_for.h"

namespace trainer::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kFormat = 1;
constexpr std::string_view kPrefix = "step_";

std::string hex(uint32_t crc) {
  return fmt::format("{:08x}", crc);
}

uint32_t from_hex(const std::string& text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != 8) {
    fail<CheckpointError>("got the checksum \"{}\"; expected 8 hexadecimal digits", text);
  }
  return value;
}

// Of all but itself.
std::string checksum(Json json) {
  json.erase("crc32c");
  return hex(crc32c(json.dump()));
}

Manifest parse(const std::string& text) {
  const Json json = Json::parse(text);
  if (const auto format = json.at("format").get<int64_t>(); format != kFormat) {
    fail<CheckpointError>("got format {}; expected {}: written by a newer program?", format, kFormat);
  }
  if (const std::string got = checksum(json), expected = json.at("crc32c").get<std::string>();
      got != expected) {
    fail<CheckpointError>("got contents of checksum {}; expected {}", got, expected);
  }
  Manifest manifest;
  json.at("step").get_to(manifest.step);
  json.at("total_steps").get_to(manifest.total_steps);
  json.at("epoch").get_to(manifest.epoch);
  json.at("world_size").get_to(manifest.world_size);
  json.at("unix_s").get_to(manifest.unix_s);
  json.at("data_fingerprint").get_to(manifest.data_fingerprint);
  json.at("job").get_to(manifest.job);
  for (const auto& [name, value] : json.at("values").items()) {
    if (value.is_number()) manifest.values[name] = value.get<double>();
  }
  for (const auto& [name, file] : json.at("files").items()) {
    if (fs::path(name).filename() != name)
      fail<CheckpointError>("got the file {}; expected one beside it", name);
    manifest.files[name] = {file.at("size_bytes").get<uint64_t>(),
                            from_hex(file.at("crc32c").get<std::string>())};
  }
  return manifest;
}

void verify_file(const fs::path& path, const tensors::WrittenFile& expected) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) fail<CheckpointError>("{}: {}", path.string(), error.message());
  if (size != expected.size_bytes) {
    fail<CheckpointError>("{}: got {} bytes; expected {}", path.string(), size, expected.size_bytes);
  }
  const uint32_t crc = crc32c(MappedFile(path).bytes());
  if (crc != expected.crc32c) {
    fail<CheckpointError>("{}: got contents of checksum {}; expected {} (CRC-32C)", path.string(), hex(crc),
                          hex(expected.crc32c));
  }
}

}  // namespace

int64_t Manifest::size_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [name, file] : files) bytes += file.size_bytes;
  return static_cast<int64_t>(bytes);
}

std::string to_json(const Manifest& manifest) {
  Json json{{"format", kFormat},
            {"step", manifest.step},
            {"total_steps", manifest.total_steps},
            {"epoch", manifest.epoch},
            {"world_size", manifest.world_size},
            {"unix_s", manifest.unix_s},
            {"data_fingerprint", manifest.data_fingerprint},
            {"values", manifest.values},  // NaN is null
            {"files", Json::object()},
            {"job", manifest.job}};
  for (const auto& [name, file] : manifest.files) {
    json["files"][name] = {{"size_bytes", file.size_bytes}, {"crc32c", hex(file.crc32c)}};
  }
  json = Json::parse(json.dump());  // as it will be read
  json["crc32c"] = checksum(json);
  return json.dump(1) + "\n";
}

Manifest read_manifest(const fs::path& directory) {
  const fs::path path = directory / kManifestFile;
  if (!fs::exists(path)) {
    fail<CheckpointError>("{}: no {} in it: not a checkpoint, or not completed", directory.string(),
                          kManifestFile);
  }
  try {
    return parse(read_file(path));
  } catch (const Json::exception& error) {
    fail<CheckpointError>("{}: damaged: {}", path.string(), error.what());
  } catch (const Error& error) {
    fail<CheckpointError>("{}: damaged: {}", path.string(), error.what());
  }
}

Manifest verify(const fs::path& directory) {
  Manifest manifest = read_manifest(directory);
  const std::vector<std::pair<std::string, tensors::WrittenFile>> files(manifest.files.begin(),
                                                                        manifest.files.end());
  const int64_t threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  parallel_for(static_cast<int64_t>(files.size()), 1, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto& [name, written] = files[static_cast<size_t>(i)];
      verify_file(directory / name, written);
    }
  });
  return manifest;
}

std::string directory_name(int64_t step) {
  return fmt::format("{}{}", kPrefix, step);
}

int64_t step_of(const fs::path& directory) {
  const std::string name = directory.filename().string();
  int64_t step = -1;
  if (!name.starts_with(kPrefix)) return -1;
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() ? step : -1;
}

std::vector<fs::path> list(const fs::path& directory) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (entry.is_directory(error) && step_of(entry.path()) >= 0) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return step_of(a) > step_of(b); });
  return found;
}

}  // namespace trainer::checkpoint
