#include "train/output.h"

#include <fmt/ranges.h>

#include <cstdlib>
#include <string_view>
#include <system_error>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/resume.h"
#include "checkpoint/save.h"
#include "core/error.h"
#include "core/log.h"
#include "embedding/sharded.h"

namespace trainer::train {
namespace {

namespace fs = std::filesystem;

// What a run leaves in a directory beside its records: its models and checkpoints.
std::vector<std::string> results_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory(error) && (name == "final" || name == "best" || name == "checkpoints"))
      names.push_back(name);
  }
  return names;
}

// Those of steps that are now done anew.
void put_away_later_than(const fs::path& resumed) {
  for (const fs::path& later : checkpoint::list(resumed.parent_path())) {
    if (checkpoint::step_of(later) <= checkpoint::step_of(resumed)) continue;
    const fs::path away = later.string() + ".abandoned";
    std::error_code error;
    fs::remove_all(away, error);
    fs::rename(later, away, error);
    if (error) fail<CheckpointError>("{}: cannot rename: {}", later.string(), error.message());
    log_info("{}: training goes on from an earlier step; it is now {}", later.string(), away.string());
  }
}

bool is_within(const fs::path& path, const fs::path& directory) {
  const std::string inner = fs::weakly_canonical(path).string(),
                    outer = fs::weakly_canonical(directory).string();
  return inner.starts_with(outer + "/");
}

void set_aside_earlier_run(const fs::path& output_dir) {
  const fs::path previous = output_dir / "previous";
  std::error_code error;
  std::vector<std::string> names = results_in(output_dir);
  if (!fs::exists(output_dir / "metrics.jsonl", error) && names.empty()) return;
  if (names.empty() && !results_in(previous).empty()) return;
  if (const std::vector<std::string> older = results_in(previous); !older.empty()) {
    log_info("removing {} of the run before the last one from {}", fmt::join(older, ", "), previous.string());
  }
  fs::remove_all(previous, error);
  fs::create_directories(previous, error);
  names.insert(names.end(), {"job.yaml", "metrics.jsonl"});
  for (const std::string& name : names) {
    if (!error && fs::exists(output_dir / name)) fs::rename(output_dir / name, previous / name, error);
  }
  if (error) {
    fail<CheckpointError>("{}: cannot set an earlier run aside: {}", previous.string(), error.message());
  }
  log_info("the results of an earlier run here are now in {}", previous.string());
}

}  // namespace

void save_model(const fs::path& directory, model::Model& model, dist::Communicator& communicator) {
  std::vector<tensors::Slice> weights;
  if (embedding::ShardedEmbedding* embeddings = model.embeddings()) {
    weights = embeddings->slices();
    std::erase_if(weights, [](const tensors::Slice& slice) { return !slice.name.ends_with(".weight"); });
  }
  checkpoint::save_directory(directory, weights, communicator, [&](const fs::path& temporary) {
    model.save_pretrained(temporary);
    return checkpoint::Files();
  });
}

bool is_restarted() {
  // The agent's or torchrun's count of attempts, or Slurm's of requeues.
  for (const char* name : {"TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"}) {
    const char* count = std::getenv(name);
    if (count != nullptr && std::string_view(count) != "0" && std::string_view(count) != "") return true;
  }
  return false;
}

void prepare_output(const fs::path& output_dir, const std::optional<fs::path>& resume_from, bool restarted) {
  const fs::path own = checkpoint::directory_of(output_dir);
  std::error_code error;
  if (resume_from && fs::equivalent(resume_from->parent_path(), own, error)) {
    return put_away_later_than(*resume_from);
  }
  if (resume_from && !restarted && is_within(*resume_from, output_dir / "previous")) {
    fail<CheckpointError>(
        "{}: is in the directory that this run's predecessor goes to; hint: move the checkpoint elsewhere, "
        "or give this run "
        "another job.output_dir",
        resume_from->string());
  }
  if (!restarted) set_aside_earlier_run(output_dir);
  // The records so far go on here.
  if (resume_from) {
    fs::copy_file(resume_from->parent_path().parent_path() / "metrics.jsonl", output_dir / "metrics.jsonl",
                  fs::copy_options::overwrite_existing, error);
  }
}

}  // namespace trainer::train
