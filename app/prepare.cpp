// trainer prepare: text to files of tokens.

#include <algorithm>
#include <memory>
#include <string>

#include "commands.h"
#include "hardware/machine.h"
#include "spec/enums.h"
#include "tokens/prepare.h"
#include "torch_library.h"

namespace trainer::app {

void add_prepare(CLI::App& cli, std::function<int()>& command) {
  auto* prepare =
      cli.add_subcommand("prepare", "Tokenize text, JSON lines or Parquet into files for training");
  auto options = std::make_shared<tokens::PrepareOptions>();
  prepare->add_option("input", options->inputs, "Files, directories, or quoted patterns; all of one format")
      ->required();
  prepare
      ->add_option("--output", options->output, "What the names of the files begin with, such as data/wiki")
      ->required();
  prepare
      ->add_option("--tokenizer", options->tokenizer,
                   "Directory with tokenizer.json or vocab.json and merges.txt; char; or byte")
      ->required();
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
  prepare->callback([&command, options, format] {
    command = [options, format] {
      using spec::FileFormat;
      for (const FileFormat known : {FileFormat::kText, FileFormat::kJsonl, FileFormat::kParquet}) {
        if (*format == spec::to_string(known)) options->format = known;
      }
      if (options->num_threads == 0) options->num_threads = std::max<int64_t>(hardware::detect().cores, 1);
      return run_prepare(*options);
    };
  });
}

}  // namespace trainer::app
