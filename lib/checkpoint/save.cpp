#include "checkpoint/save.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "checkpoint/all_ranks.h"
#include "checkpoint/random.h"
#include "core/crc32c.h"
#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/sync.h"

namespace trainer::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using tensors::NamedTensors;
using tensors::WrittenFile;

// Each rank's own, as rows: [ranks, ...]. A collective; the tensors have one shape on all ranks.
NamedTensors gather(const State& state, dist::Communicator& communicator) {
  NamedTensors own, all;
  tensors::append(own, "rank", state.rank_sums);
  tensors::append(own, "random", random_state(state.device));
  for (const auto& [name, tensor] : own) {
    all.emplace_back(name, communicator.all_gather_rows(tensor.cpu().unsqueeze(0)));
  }
  return all;
}

std::map<std::string, double> numbers(const NamedTensors& progress) {
  std::map<std::string, double> values;
  for (const auto& [name, tensor] : progress) {
    if (tensor.numel() == 1) values[name] = tensor.item<double>();
  }
  return values;
}

// Writes what is the main rank's. Sizes and checksums of what it can tell of.
Files write_main(const fs::path& directory, const State& state, const NamedTensors& progress) {
  Files files;
  state.model.save_pretrained(directory);
  const auto write = [&](const char* name, const NamedTensors& named) {
    if (!named.empty()) files[name] = tensors::write_safetensors(directory / name, named);
  };
  write(kOptimizerFile, state.optimizer);
  write(kEmaFile, state.ema);
  write(kProgressFile, progress);
  return files;
}

WrittenFile checksum(const fs::path& path) {
  const MappedFile file(path);
  return {file.bytes().size(), crc32c(file.bytes())};
}

// What one rank has to say of what it wrote.
std::string report(const Files& files, const std::string& index) {
  Json json{{"files", Json::object()}, {"index", index}};
  for (const auto& [name, file] : files) json["files"][name] = {file.size_bytes, file.crc32c};
  return json.dump();
}

// On the main rank, of what all reported: what they wrote, and the index of tables where there are any.
Files collect(const fs::path& directory, const std::vector<std::string>& reports) {
  Files files;
  std::vector<std::string> indices;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const Json json = Json::parse(reports[rank]);
    if (auto index = json["index"].get<std::string>(); !index.empty()) indices.push_back(std::move(index));
    for (const auto& [name, file] : json["files"].items()) {
      if (!fs::exists(directory / name)) {
        fail<CheckpointError>(
            "{}: rank {} wrote it, but rank 0 does not see it; hint: put job.output_dir on a file system "
            "that "
            "all nodes share",
            (directory / name).string(), rank);
      }
      files[name] = {file[0].get<uint64_t>(), file[1].get<uint32_t>()};
    }
  }
  if (!indices.empty()) tensors::write_slice_index(directory, kTables, indices);
  return files;
}

// What killed processes left half written or half removed.
void remove_hidden(const fs::path& directory, const fs::path& but) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path() != but && entry.path().filename().string().starts_with(".step_"))
      fs::remove_all(entry.path());
  }
}

void prune(const fs::path& directory, int64_t step, int64_t keep_last) {
  int64_t kept = 0;
  for (const fs::path& old : list(directory)) {
    if (step_of(old) > step || ++kept <= keep_last) continue;
    // Out of the way first: one that is half removed must not look like a damaged one.
    const fs::path gone = directory / fmt::format(".{}.old", old.filename().string());
    std::error_code error;
    fs::rename(old, gone, error);
    if (!error) fs::remove_all(gone, error);
    if (error) log_warning("{}: cannot remove an old checkpoint: {}", old.string(), error.message());
  }
}

}  // namespace

void save_directory(const fs::path& target, const std::vector<tensors::Slice>& tables,
                    dist::Communicator& communicator, const std::function<Files(const fs::path&)>& write,
                    const std::function<void(const fs::path&, Files)>& finish) {
  const at::NoGradGuard no_grad;
  const bool is_main = communicator.rank() == 0;
  const fs::path temporary = target.parent_path() / fmt::format(".{}.tmp", target.filename().string());
  try {
    on_main_rank(communicator, [&] {
      fs::remove_all(temporary);
      fs::create_directories(temporary);
      return std::string();
    });
    const std::vector<std::string> reports = on_all_ranks(communicator, [&] {
      Files files;
      if (is_main) files = write(temporary);
      const tensors::WrittenSlices slices =
          tensors::write_slices(temporary, kTables, communicator.rank(), communicator.size(), tables);
      if (!slices.file.empty()) {
        files[slices.file] = slices.written;
        sync_file(temporary / slices.file);
      }
      return report(files, slices.index);
    });
    on_main_rank(communicator, [&] {
      Files files = collect(temporary, reports);
      if (finish) finish(temporary, std::move(files));
      replace_directory(temporary, target);
      return std::string();
    });
  } catch (...) {
    std::error_code error;
    if (is_main) fs::remove_all(temporary, error);
    throw;
  }
}

void save(const fs::path& directory, const State& state, Manifest manifest, int64_t keep_last,
          dist::Communicator& communicator) {
  const bool is_main = communicator.rank() == 0;
  manifest.world_size = communicator.size();
  NamedTensors progress = state.progress;
  progress.insert(progress.end(), state.evaluations.begin(), state.evaluations.end());
  if (is_main) manifest.values = numbers(progress);
  const NamedTensors ranks = gather(state, communicator);
  progress.insert(progress.end(), ranks.begin(), ranks.end());

  save_directory(
      directory / directory_name(manifest.step), state.tables, communicator,
      [&](const fs::path& temporary) {
        remove_hidden(directory, temporary);
        return write_main(temporary, state, progress);
      },
      [&](const fs::path& temporary, Files files) {
        for (const auto& entry : fs::directory_iterator(temporary)) {
          const std::string name = entry.path().filename().string();
          if (!files.contains(name)) files[name] = checksum(entry.path());
          sync_file(entry.path());
        }
        manifest.files = std::move(files);
        write_file_atomic(temporary / kManifestFile, to_json(manifest));
      });
  if (is_main && keep_last > 0) prune(directory, manifest.step, keep_last);
}

}  // namespace trainer::checkpoint
