#include "checkpoint/resume.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "checkpoint/all_ranks.h"
#include "checkpoint/changes.h"
#include "checkpoint/manifest.h"
#include "checkpoint/random.h"
#include "core/error.h"
#include "core/log.h"
#include "spec/load.h"

namespace trainer::checkpoint {
namespace {

namespace fs = std::filesystem;
using tensors::NamedTensors;
using tensors::SafetensorsFile;

struct Found {
  fs::path directory;
  Manifest manifest;
};

// The newest whole one in `directory`; nothing when there is none at all. Throws when all are damaged.
std::optional<Found> newest(const fs::path& directory) {
  std::vector<std::string> passed_over;
  for (const fs::path& candidate : list(directory)) {
    try {
      Found found{candidate, verify(candidate)};
      for (const std::string& reason : passed_over) log_warning("passed over {}", reason);
      return found;
    } catch (const Error& error) {
      passed_over.emplace_back(error.what());
    }
  }
  if (passed_over.empty()) return std::nullopt;
  fail<CheckpointError>(
      "{}: none of its {} checkpoints is whole:\n  {}\nhint: --resume never begins at the first step",
      directory.string(), passed_over.size(), fmt::join(passed_over, "\n  "));
}

// A checkpoint, a directory of checkpoints or of a run.
Found at(const fs::path& path) {
  if (!fs::is_directory(path)) {
    fail<CheckpointError>(
        "checkpoint.resume: got {}; there is no such directory; expected restarts, auto, never, or the "
        "directory of a "
        "checkpoint or of a run",
        path.string());
  }
  if (fs::exists(path / kManifestFile) || step_of(path) >= 0) return {path, verify(path)};
  for (const fs::path& directory : {path, directory_of(path)}) {
    if (auto found = newest(directory)) return std::move(*found);
  }
  fail<CheckpointError>("checkpoint.resume: {}: no checkpoint in it", path.string());
}

std::optional<Found> choose(const Job& job, bool restarted) {
  const std::string& resume = job.spec.checkpoint.resume;
  const fs::path own = directory_of(job.output_dir);
  if (resume == "never") return std::nullopt;
  if (resume == "restarts") return restarted ? newest(own) : std::nullopt;
  if (resume == "auto") return newest(own);
  if (restarted) {
    if (auto found = newest(own)) return found;  // it has come further
  }
  return at(resume);
}

// Throws where going on from there could not be exact; logs what else is other than it was.
void compare(const Job& job, const Found& found, const std::string& data_fingerprint) {
  const Manifest& manifest = found.manifest;
  std::vector<std::string> breaking, other;
  for (const Change& change : changes(manifest.job, spec::to_yaml(job.spec))) {
    const auto shown = [](const std::string& value) { return value.empty() ? "not said" : value; };
    (change.breaks_resume ? breaking : other)
        .push_back(fmt::format("{}: {} -> {}", change.key, shown(change.before), shown(change.after)));
  }
  if (!breaking.empty()) {
    fail<CheckpointError>(
        "{}: is of another job, so training cannot go on from it:\n  {}\nhint: put these back, or begin at "
        "the first step "
        "with --resume never",
        found.directory.string(), fmt::join(breaking, "\n  "));
  }
  if (manifest.data_fingerprint != data_fingerprint) {
    fail<CheckpointError>(
        "{}: was trained on other data: fingerprint of data.train: got {}; expected {}\nhint: put the data "
        "back, or begin "
        "at the first step with --resume never",
        found.directory.string(), data_fingerprint, manifest.data_fingerprint);
  }
  if (!other.empty()) {
    log_warning("the job is not quite that of {}: {}", found.directory.string(), fmt::join(other, ", "));
  }
  if (manifest.world_size != job.world.size) {
    log_warning("{} rank{} at {}, now {}: the data's order stays, sums are rounded otherwise",
                manifest.world_size, manifest.world_size == 1 ? "" : "s", found.directory.string(),
                job.world.size);
  }
}

// Throws where `file` has no such tensor of that type and shape; `rows`: of the shape's rows any number.
void check(const SafetensorsFile& file, const fs::path& path, const std::string& name, const at::Tensor& view,
           bool rows = false) {
  const auto found = file.tensors().find(name);
  if (found == file.tensors().end()) {
    fail<CheckpointError>("{}: has no tensor {}: of a job with other settings?", path.string(), name);
  }
  auto expected = view.sizes().vec();
  const auto& [dtype, shape, begin, end] = found->second;
  if (rows) expected.insert(expected.begin(), shape.empty() ? 0 : shape[0]);
  if (shape != expected || dtype != view.scalar_type()) {
    fail<CheckpointError>("{}: tensor {}: got {} [{}]; expected {} [{}]", path.string(), name,
                          at::toString(dtype), fmt::join(shape, ", "), at::toString(view.scalar_type()),
                          fmt::join(expected, ", "));
  }
}

void fill(const SafetensorsFile& file, const fs::path& path, const NamedTensors& views) {
  for (const auto& [name, view] : views) {
    check(file, path, name, view);
    view.copy_(file.tensor(name));
  }
}

// Each rank's own, by the names that save() gave them.
NamedTensors own(const State& state) {
  NamedTensors own;
  tensors::append(own, "rank", state.rank_sums);
  tensors::append(own, "random", random_state(state.device));
  return own;
}

// On the main rank.
void read_files(const fs::path& directory, const State& state, std::optional<SafetensorsFile>& progress) {
  state.model.load_pretrained(directory);
  const auto read = [&](const char* name, const NamedTensors& views) {
    const fs::path path = directory / name;
    if (!views.empty()) fill(SafetensorsFile(path), path, views);
  };
  read(kOptimizerFile, state.optimizer);
  read(kEmaFile, state.ema);
  read(kProgressFile, state.progress);
  const fs::path path = directory / kProgressFile;
  progress.emplace(path);
  for (const auto& [name, view] : state.evaluations) {
    if (progress->tensors().contains(name)) fill(*progress, path, {{name, view}});
  }
  for (const auto& [name, view] : own(state)) {
    if (progress->tensors().contains(name)) check(*progress, path, name, view, /*rows=*/true);
  }
}

void broadcast(const State& state, dist::Communicator& communicator) {
  std::vector<at::Tensor> on_host, on_device;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.numel() > 0) (tensor.is_cpu() ? on_host : on_device).push_back(tensor.detach());
  };
  for (const at::Tensor& parameter : state.model.parameters()) add(parameter);
  for (const NamedTensors* list : {&state.optimizer, &state.ema, &state.progress, &state.evaluations}) {
    for (const auto& [name, tensor] : *list) add(tensor);
  }
  if (!on_host.empty()) communicator.broadcast(on_host, 0);
  if (!on_device.empty()) communicator.broadcast(on_device, 0);
}

// Of what save() gathered as rows: this rank's generator states; of sums also those of ranks that are no more.
void take_own(const std::optional<SafetensorsFile>& progress, const State& state,
              dist::Communicator& communicator) {
  const int64_t rank = communicator.rank();
  const auto rows = [&](const std::string& name, const at::Tensor& like) {
    auto none = like.sizes().vec();
    none.insert(none.begin(), 0);
    const bool is_here = progress && progress->tensors().contains(name);
    return communicator.all_gather_rows(is_here ? progress->tensor(name)
                                                : at::empty(none, like.scalar_type()));
  };
  for (const auto& [name, sum] : state.rank_sums) {
    const at::Tensor all = rows("rank." + name, sum);
    sum.zero_();
    for (int64_t row = rank; row < all.size(0); row += communicator.size())
      sum.add_(all[row].to(sum.device()));
  }
  for (const auto& [name, now] : random_state(state.device)) {
    const at::Tensor all = rows("random." + name, now);
    if (rank < all.size(0)) set_random_state(state.device, name, all[rank].clone());
  }
}

}  // namespace

fs::path directory_of(const fs::path& output_dir) {
  return output_dir / "checkpoints";
}

std::optional<fs::path> find(const Job& job, bool restarted,
                             const std::function<std::string()>& data_fingerprint,
                             dist::Communicator& communicator) {
  const std::string directory = on_main_rank(communicator, [&] {
    const std::optional<Found> found = choose(job, restarted);
    if (!found) return std::string();
    compare(job, *found, data_fingerprint());
    log_info("going on from {}: step {} of {}, epoch {:.2f}", found->directory.string(), found->manifest.step,
             found->manifest.total_steps, found->manifest.epoch);
    return found->directory.string();
  });
  return directory.empty() ? std::nullopt : std::optional<fs::path>(directory);
}

void load(const fs::path& directory, const State& state, dist::Communicator& communicator) {
  const at::NoGradGuard no_grad;
  std::optional<SafetensorsFile> progress;
  on_main_rank(communicator, [&] {
    read_files(directory, state, progress);
    return std::string();
  });
  broadcast(state, communicator);
  take_own(progress, state, communicator);
  on_all_ranks(communicator, [&] {
    if (state.tables.empty()) return std::string();
    tensors::SliceFiles files(directory, kTables);
    for (const tensors::Slice& slice : state.tables) files.fill(slice);
    return std::string();
  });
}

}  // namespace trainer::checkpoint
