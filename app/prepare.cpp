// trainer prepare: text to files of tokens; click records to the format `records`; synthetic ones.

#include <algorithm>
#include <memory>
#include <string>

#include "commands.h"
#include "core/error.h"
#include "hardware/machine.h"
#include "spec/enums.h"
#include "spec/load.h"
#include "tokens/prepare.h"
#include "torch_library.h"

namespace trainer::app {
namespace {

void add_common(CLI::App& command, std::string& output, int64_t& num_threads, bool& force) {
  command.add_option("--output", output, "Directory to make")->required();
  command.add_option("--threads", num_threads, "Default: all cores that this process may use")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  command.add_flag("--force", force, "Replace what an earlier run left");
  num_threads = 0;
}

void set_threads(int64_t& num_threads) {
  if (num_threads == 0) num_threads = std::max<int64_t>(hardware::detect().cores, 1);
}

// trainer prepare records JOB.yaml
void add_records(CLI::App& prepare, std::function<int()>& command) {
  auto* records = prepare.add_subcommand(
      "records",
      "Write a recommender's data (data.train and data.validation of a job) as files that are mapped");
  struct Flags {
    std::string job;
    std::vector<std::string> overrides;
    records::PrepareOptions options;
  };
  auto flags = std::make_shared<Flags>();
  records->add_option("job", flags->job, "Job spec (YAML)")->required();
  records->add_option("--set", flags->overrides, "Override a key of the job: key.path=value")
      ->allow_extra_args(false);
  add_common(*records, flags->options.output, flags->options.num_threads, flags->options.force);
  records->callback([&command, flags] {
    command = [flags] {
      const spec::JobSpec job = spec::load(flags->job, flags->overrides);
      if (job.model.type != spec::ModelType::kRecommender) {
        fail<SpecError>("{}: model.type: got {}; expected recommender", flags->job,
                        spec::to_string(job.model.type));
      }
      flags->options.data = job.data;
      flags->options.model = job.model.recommender;
      set_threads(flags->options.num_threads);
      return run_prepare(flags->options);
    };
  });
}

// trainer prepare synthetic-ctr
void add_synthetic(CLI::App& prepare, std::function<int()>& command) {
  auto* synthetic = prepare.add_subcommand(
      "synthetic-ctr",
      "Write clicks of a known truth, so that the best reachable AUC and log loss are known");
  auto options = std::make_shared<records::SyntheticOptions>();
  records::ClickModelOptions& model = options->model;
  add_common(*synthetic, options->output, options->num_threads, options->force);
  synthetic->add_option("--rows", options->rows, "Rows of training")->capture_default_str();
  synthetic->add_option("--validation-rows", options->validation_rows, "Rows of validation")
      ->capture_default_str();
  synthetic->add_option("--dense", model.num_dense, "Dense features")->capture_default_str();
  auto num_sparse = std::make_shared<int64_t>(26);
  synthetic->add_option("--sparse", *num_sparse, "Sparse features")
      ->check(CLI::Range(int64_t{0}, int64_t{100000}))
      ->capture_default_str();
  auto cardinalities = std::make_shared<std::vector<int64_t>>(1, 1000);
  synthetic
      ->add_option(
          "--cardinality", *cardinalities,
          "Different ids of each sparse feature: one number for all, or one for each with commas between")
      ->delimiter(',')
      ->capture_default_str();
  synthetic->add_option("--zipf", model.zipf, "Exponent of the ids' frequencies; 0: all alike")
      ->capture_default_str();
  synthetic->add_option("--head", model.head, "Most frequent ids of a feature that have an effect")
      ->capture_default_str();
  synthetic->add_option("--pairs", model.pairs, "Pairs of features with an effect together")
      ->capture_default_str();
  synthetic->add_option("--click-rate", model.click_rate, "Mean probability of a click")
      ->capture_default_str();
  synthetic->add_option("--signal", model.signal, "Standard deviation of the logits")->capture_default_str();
  synthetic->add_option("--seed", model.seed, "Same seed, same rows")->capture_default_str();
  auto format = std::make_shared<std::string>("records");
  synthetic->add_option("--format", *format, "records, criteo or csv")
      ->check(CLI::IsMember({"records", "criteo", "csv"}))
      ->capture_default_str();
  synthetic->callback([&command, options, num_sparse, cardinalities, format] {
    command = [options, num_sparse, cardinalities, format] {
      using spec::FileFormat;
      for (const FileFormat known : {FileFormat::kRecords, FileFormat::kCriteo, FileFormat::kCsv}) {
        if (*format == spec::to_string(known)) options->format = known;
      }
      const auto num_features = static_cast<size_t>(*num_sparse);
      if (cardinalities->size() != 1 && cardinalities->size() != num_features) {
        fail<SpecError>("--cardinality: got {} numbers; expected 1, or {} as --sparse says",
                        cardinalities->size(), num_features);
      }
      if (cardinalities->size() == 1) cardinalities->resize(num_features, cardinalities->front());
      options->model.cardinalities = *cardinalities;
      set_threads(options->num_threads);
      return run_prepare(*options);
    };
  });
}

}  // namespace

void add_prepare(CLI::App& cli, std::function<int()>& command) {
  auto* prepare = cli.add_subcommand(
      "prepare", "Tokenize text, JSON lines or Parquet into files for training; or prepare click records");
  auto options = std::make_shared<tokens::PrepareOptions>();
  add_records(*prepare, command);
  add_synthetic(*prepare, command);
  // Required, but not of the subcommands.
  const std::vector<CLI::Option*> required = {
      prepare->add_option("input", options->inputs,
                          "Files, directories, or quoted patterns; all of one format"),
      prepare->add_option("--output", options->output,
                          "What the names of the files begin with, such as data/wiki"),
      prepare->add_option("--tokenizer", options->tokenizer,
                          "Directory with tokenizer.json or vocab.json and merges.txt; char; or byte")};
  auto format = std::make_shared<std::string>("auto");
  prepare->add_option("--format", *format, "auto, text, jsonl or parquet")
      ->check(CLI::IsMember({"auto", "text", "jsonl", "parquet"}));
  prepare->add_option("--field", options->field, "Field or column of the text (default: text)");
  prepare
      ->add_option("--validation-fraction", options->validation_fraction,
                   "Last part, kept apart for validation")
      ->check([](const std::string& text) {
        double value = 0;
        return CLI::detail::lexical_cast(text, value) && value >= 0 && value < 1
                   ? std::string()
                   : "got " + text + "; expected a number >= 0 and < 1";
      });
  prepare->add_flag("!--no-eos", options->append_eos, "No end-of-text token behind each document");
  prepare->add_option("--threads", options->num_threads, "Default: all cores that this process may use")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  prepare
      ->add_option("--shard-tokens", options->shard_tokens,
                   "Cut into files of at most so many tokens; documents are not cut, so that one that has "
                   "more is a file of more")
      ->check(CLI::PositiveNumber);
  prepare->add_flag("--force", options->force, "Replace what an earlier run left");
  options->num_threads = 0;
  prepare->callback([&command, prepare, required, options, format] {
    if (!prepare->get_subcommands().empty()) return;
    for (const CLI::Option* option : required) {
      if (option->count() == 0) throw CLI::RequiredError(option->get_name());
    }
    command = [options, format] {
      using spec::FileFormat;
      for (const FileFormat known : {FileFormat::kText, FileFormat::kJsonl, FileFormat::kParquet}) {
        if (*format == spec::to_string(known)) options->format = known;
      }
      set_threads(options->num_threads);
      return run_prepare(*options);
    };
  });
}

}  // namespace trainer::app
