// trainer checkpoint, in libtrainer_torch.so.

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <vector>

#include "checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/resume.h"
#include "core/error.h"
#include "core/format.h"

namespace trainer::app {
namespace {

namespace fs = std::filesystem;
using checkpoint::Manifest;

// Those at `path`, the last steps last.
std::vector<fs::path> find_all(const fs::path& path) {
  if (!fs::is_directory(path)) fail<SpecError>("{}: there is no such directory", path.string());
  if (fs::exists(path / checkpoint::kManifestFile) || checkpoint::step_of(path) >= 0) return {path};
  for (const fs::path& directory : {path, checkpoint::directory_of(path)}) {
    if (auto found = checkpoint::list(directory); !found.empty()) return {found.rbegin(), found.rend()};
  }
  fail<SpecError>("{}: no checkpoint in it", path.string());
}

std::string time_text(double unix_s) {
  const auto seconds = static_cast<std::time_t>(unix_s);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
}

std::string line(const fs::path& path, const Manifest& manifest) {
  return fmt::format("{}  step {} of {}  epoch {:.2f}  {}  {}  {} rank{}", path.string(), manifest.step,
                     manifest.total_steps, manifest.epoch, time_text(manifest.unix_s),
                     binary_bytes(manifest.size_bytes()), manifest.world_size,
                     manifest.world_size == 1 ? "" : "s");
}

void show(const fs::path& path, const Manifest& manifest) {
  fmt::print("{}\n", line(path, manifest));
  for (const auto& [name, file] : manifest.files)
    fmt::print("  {:<40} {:>14} bytes  crc32c {:08x}\n", name, file.size_bytes, file.crc32c);
  for (const auto& [name, value] : manifest.values) fmt::print("  {:<40} {}\n", name, value);
  fmt::print("  job:\n");
  for (size_t at = 0; at < manifest.job.size();) {
    const size_t end = std::min(manifest.job.find('\n', at), manifest.job.size());
    fmt::print("    {}\n", manifest.job.substr(at, end - at));
    at = end + 1;
  }
}

}  // namespace

int run_checkpoint(const CheckpointRequest& request) {
  int code = 0;
  for (const fs::path& path : find_all(request.path)) {
    try {
      const Manifest manifest =
          request.action == "verify" ? checkpoint::verify(path) : checkpoint::read_manifest(path);
      if (request.action == "show") {
        show(path, manifest);
      } else {
        fmt::print("{}{}\n", line(path, manifest), request.action == "verify" ? "  whole" : "");
      }
    } catch (const CheckpointError& error) {  // the others are told of all the same
      fmt::print("{}\n", error.what());
      code = static_cast<int>(ExitCode::kCheckpoint);
    }
  }
  return code;
}

}  // namespace trainer::app
