// trainer generate: text from a saved language model.

#include "generate.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/error.h"
#include "dist/cuda_plugin.h"
#include "generate/generator.h"
#include "hardware/cuda_devices.h"
#include "job/gpt_config.h"
#include "job/job.h"
#include "model/gpt.h"
#include "train/torch_error.h"

namespace trainer::app {
namespace {

// A job that only loads the model.
Job job_of(const GenerateRequest& request) {
  Job job;
  job.spec.model.type = spec::ModelType::kGpt;
  job.spec.model.pretrained = request.model;
  job.spec.data.max_length = 1;
  job.spec.train.precision = request.precision == "bf16" ? spec::Precision::kBf16 : spec::Precision::kFp32;
  const int64_t gpus = hardware::cuda_device_count();
  if (request.device == "cuda" && gpus == 0)
    fail<SpecError>("--device: got cuda, but there is no GPU; expected cpu or auto");
  job.cuda = request.device == "cuda" || (request.device == "auto" && gpus > 0);
  return job;
}

// What the directory is, before its parts are opened: an error of a tokenizer says little about a wrong path.
GptConfig model_config(const std::filesystem::path& model) {
  constexpr const char* kExpected = "a Hugging Face directory of a GPT-2 or a Llama";
  if (!std::filesystem::is_directory(model)) {
    fail<SpecError>("{}: no such directory; expected {}, such as <output_dir>/final of a job", model.string(),
                    kExpected);
  }
  if (!std::filesystem::exists(model / "config.json")) {
    const auto of_run = model / "final";
    fail<SpecError>("{}: has no config.json; expected {}{}", model.string(), kExpected,
                    std::filesystem::exists(of_run / "config.json") ? "\nhint: " + of_run.string() : "");
  }
  return GptConfig::load(model / "config.json", "that texts can be generated with");
}

const char* name(generate::Finish finish) {
  switch (finish) {
    case generate::Finish::kLength:
      return "length";
    case generate::Finish::kEndOfText:
      return "end_of_text";
    case generate::Finish::kStopString:
      return "stop_string";
  }
  return "?";
}

struct Loaded {
  std::shared_ptr<model::Gpt> model;
  std::shared_ptr<const text::Tokenizer> tokenizer;
};

Loaded load(const GenerateRequest& request) {
  const GptConfig config = model_config(request.model);
  const Job job = job_of(request);
  const std::string& directory = request.tokenizer.empty() ? request.model : request.tokenizer;
  auto tokenizer = text::load_tokenizer(spec::TokenizerType::kAuto, directory);
  if (tokenizer->vocab_size() > config.vocab_size) {
    fail<SpecError>(
        "{}: its tokenizer has {} tokens, the model {} has {}; expected the tokenizer of the model",
        directory, tokenizer->vocab_size(), request.model, config.vocab_size);
  }
  auto gpt = std::dynamic_pointer_cast<model::Gpt>(
      model::make_model(job, {.vocab_size = tokenizer->vocab_size()}).model);
  gpt->eval();
  if (job.cuda) {
    dist::load_cuda_plugin();
    gpt->to(c10::Device(c10::kCUDA, 0));
  }
  return {std::move(gpt), std::move(tokenizer)};
}

void print_json(const std::string& prompt, const generate::Text& text) {
  const nlohmann::ordered_json line = {{"prompt", prompt},
                                       {"text", text.text},
                                       {"prompt_tokens", text.prompt_tokens},
                                       {"new_tokens", text.new_tokens},
                                       {"finish", name(text.finish)}};
  fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

int run(const GenerateRequest& request) {
  if (request.threads > 0) at::set_num_threads(static_cast<int>(request.threads));
  const Loaded loaded = load(request);
  std::vector<std::string> prompts;
  for (const std::string& prompt : request.prompts) {
    prompts.insert(prompts.end(), static_cast<size_t>(request.num_samples), prompt);
  }
  const bool is_stream = prompts.size() == 1 && !request.json;
  const auto print_piece = [&](size_t, std::string_view piece) {
    if (!is_stream) return;
    fmt::print("{}", piece);
    std::fflush(stdout);
  };
  print_piece(0, prompts[0]);
  const double begin_s = monotonic_s();
  const auto texts =
      generate::Generator(loaded.model, loaded.tokenizer).run(prompts, request.options, print_piece);
  const double seconds = monotonic_s() - begin_s;
  if (is_stream) fmt::print("\n");

  int64_t tokens = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    tokens += texts[i].new_tokens;
    if (request.json) {
      print_json(prompts[i], texts[i]);
    } else if (!is_stream) {
      fmt::print("--- {} of {}\n{}{}\n", i + 1, texts.size(), prompts[i], texts[i].text);
    }
  }
  std::fflush(stdout);
  fmt::print(stderr, "{} tokens in {:.2f} s, {:.0f} tokens/s\n", tokens, seconds,
             static_cast<double>(tokens) / seconds);
  return 0;
}

}  // namespace

int generate(const GenerateRequest& request) {
  try {
    return run(request);
  } catch (const c10::Error& error) {
    train::fail_as_ours(error, "lower --num-samples or --max-new-tokens, or give --precision bf16");
  }
}

}  // namespace trainer::app
