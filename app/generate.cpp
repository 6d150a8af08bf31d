// The command line of trainer generate.

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <thread>

#include "commands.h"
#include "core/error.h"
#include "core/file.h"
#include "torch_library.h"

namespace trainer::app {
namespace {

// "\n" and "\t" as people write them on a command line.
std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    if (next == 'n' || next == 't' || next == '\\') {
      out += next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

// CLI::Range lets NaN pass, and writes 1e-9 as 0.
CLI::Validator number(double least, double most, const std::string& expected) {
  const auto check = [=](const std::string& text) {
    double value = 0;
    const bool fits = CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
    return fits ? "" : fmt::format("got {}; expected {}", text, expected);
  };
  return CLI::Validator(check, "(" + expected + ")");
}

}  // namespace

void add_generate(CLI::App& cli, std::function<int()>& command) {
  auto* generate = cli.add_subcommand("generate", "Continue texts by a saved language model");
  auto request = std::make_shared<GenerateRequest>();
  auto prompt_file = std::make_shared<std::string>();
  auto is_raw = std::make_shared<bool>(false);
  GenerateRequest& r = *request;
  generate::GenerateOptions& options = r.options;
  generate
      ->add_option("model", r.model, "Hugging Face directory of a GPT-2 or Llama, such as <output_dir>/final")
      ->required();
  generate
      ->add_option("--prompt", r.prompts,
                   "Text to continue; may be given several times (\\n is a new line, "
                   "and so is none)")
      ->allow_extra_args(false);
  generate->add_option("--prompt-file", *prompt_file, "File with a text to continue, read as it is")
      ->check(CLI::ExistingFile);
  generate->add_flag("--raw", *is_raw, "Take backslashes in --prompt and --stop as they are");
  generate->add_option("--tokenizer", r.tokenizer, "Directory of the tokenizer; default: the model's");
  generate->add_option("-n,--max-new-tokens", options.max_new_tokens, "Most tokens of a text")
      ->check(CLI::Range(int64_t{1}, int64_t{100'000'000}))
      ->capture_default_str();
  generate->add_option("--num-samples", r.num_samples, "Texts for each prompt")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->capture_default_str();
  generate
      ->add_option("--temperature", options.sampling.temperature,
                   "Spread of the choice; 0: always the most likely token")
      ->check(number(0, 100, "a number from 0 to 100"))
      ->capture_default_str();
  generate->add_option("--top-k", options.sampling.top_k, "Choose among the k most likely tokens; 0: all")
      ->check(CLI::Range(int64_t{0}, int64_t{100'000'000}))
      ->capture_default_str();
  generate
      ->add_option("--top-p", options.sampling.top_p,
                   "Choose among the fewest tokens that have this probability together")
      ->check(number(1e-9, 1, "a number above 0, at most 1"))
      ->capture_default_str();
  generate
      ->add_option("--repetition-penalty", options.sampling.repetition_penalty,
                   "> 1: makes tokens that were there less likely")
      ->check(number(1e-3, 1e3, "a number from 0.001 to 1000"))
      ->capture_default_str();
  generate->add_option("--stop", options.stop, "String that ends a text; may be given several times")
      ->allow_extra_args(false);
  generate->add_flag_callback(
      "--ignore-eos", [request] { request->options.stop_at_eos = false; },
      "Go on after the token that ends a text");
  generate->add_flag_callback(
      "--no-bos", [request] { request->options.add_bos = false; },
      "Don't begin a prompt with the token that its tokenizer's template puts there");
  generate->add_option("--seed", options.seed, "Of the choices: the same seed gives the same texts")
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
  generate->add_option("--precision", r.precision, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  generate->add_option("--device", r.device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  generate->add_option("--threads", r.threads, "CPU threads; 0: all cores")
      ->check(CLI::Range(int64_t{0}, int64_t{std::max(1U, std::thread::hardware_concurrency())}))
      ->capture_default_str();
  generate->add_flag("--json", r.json, "Print a line of JSON for each text");
  generate->callback([&command, request, prompt_file, is_raw] {
    command = [request, prompt_file, is_raw] {
      if (!*is_raw) {
        for (std::string& text : request->prompts) text = unescaped(text);
        for (std::string& text : request->options.stop) text = unescaped(text);
      }
      if (std::count(request->options.stop.begin(), request->options.stop.end(), "") > 0) {
        fail<SpecError>("--stop: got an empty string; expected one that ends a text");
      }
      if (!prompt_file->empty()) request->prompts.push_back(read_file(*prompt_file));
      if (request->prompts.empty()) request->prompts = {"\n"};
      // A token is many short parallel regions. Threads that spin between them stand in each other's way where others
      // use the cores too: on a busy machine a text took 4 to 100 times as long. libgomp reads this when it is loaded.
      if (std::getenv("OMP_WAIT_POLICY") == nullptr) ::setenv("GOMP_SPINCOUNT", "300", 0);
      return run_generate(*request);
    };
  });
}

}  // namespace trainer::app
