#include "model/gpt.h"

#include <catch2/catch.hpp>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "gpt_fixture.h"
#include "temporary_directory.h"

// Against transformers: tests/parity/gpt_logits.py.

namespace trainer::model {
namespace {

using Catch::Matchers::Message;

std::vector<at::Tensor> gradients_of(Gpt& model, const data::Batch& batch) {
  model.zero_grad();
  model.forward(batch).loss_sum.backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : model.parameters()) gradients.push_back(parameter.grad().clone());
  return gradients;
}

}  // namespace

TEST_CASE("the loss is the sum of the cross-entropies of the logits at labels, padded vocabulary or not") {
  for (const bool llama : {false, true}) {
    Job job = gpt_job(llama);
    const data::Batch batch = gpt_batch({5, 1, 12});
    at::Tensor loss_of_padded;
    for (const int64_t multiple : {64, 1}) {
      job.spec.model.gpt.pad_vocab_to = multiple;
      const auto model = make_gpt(job);
      CHECK(model->parameters()[0].size(0) == (multiple == 64 ? 128 : 100));
      const at::Tensor loss = model->forward(batch).loss_sum, logits = model->logits(batch);
      CHECK(logits.sizes() == at::IntArrayRef({18, 100}));
      const at::Tensor expected =
          at::cross_entropy_loss(logits, batch.labels, {}, at::Reduction::Sum, kernels::kIgnoredLabel);
      CHECK(at::allclose(loss, expected, 1e-5));
      if (multiple == 64) {
        loss_of_padded = loss;
        loss.backward();
        for (const auto& [name, parameter] : model->named_parameters().pairs()) {
          if (parameter.size(0) != 128) continue;
          CHECK(parameter.slice(0, 100).abs().max().item<float>() == 0);
          CHECK(parameter.grad().slice(0, 100).abs().max().item<float>() == 0);
        }
      } else {
        CHECK(at::allclose(loss, loss_of_padded, 1e-6));
      }
    }
  }
}

TEST_CASE(
    "what backward computes again gives gradients equal to the bit, with dropout and grad accumulation") {
  for (const bool llama : {false, true}) {
    const data::Batch batch = gpt_batch({9, 1, 14});
    for (const auto precision : {spec::Precision::kFp32, spec::Precision::kBf16}) {
      Job job = gpt_job(llama, 0.2);
      job.spec.train.precision = precision;
      std::vector<at::Tensor> expected;
      for (const auto mode : {spec::Recompute::kNone, spec::Recompute::kMlp, spec::Recompute::kBlock}) {
        job.spec.train.recompute = mode;
        const auto model = make_gpt(job);
        const auto first = gradients_of(*model, batch);
        if (mode == spec::Recompute::kNone) expected = first;
        for (size_t i = 0; i < first.size(); ++i) {
          INFO(model->named_parameters().keys()[i]);
          CHECK(at::equal(first[i], expected[i]));
        }
        CHECK(first[2].abs().max().item<float>() > 0);
        model->forward(batch).loss_sum.backward();
        CHECK(at::allclose(model->parameters()[2].grad(), 2 * expected[2]));
      }
    }
  }
}

TEST_CASE("the hooks of a parameter run once a backward when blocks are computed again") {
  Job job = gpt_job(true);
  job.spec.train.recompute = spec::Recompute::kBlock;
  const auto model = make_gpt(job);
  struct Count : torch::autograd::FunctionPostHook {
    explicit Count(int& n) : n_(n) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      ++n_;
      return outputs;
    }
    int& n_;
  };
  std::vector<int> calls(model->parameters().size());
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators;
  for (size_t i = 0; i < calls.size(); ++i) {
    accumulators.push_back(torch::autograd::impl::grad_accumulator(model->parameters()[i]));
    accumulators.back()->add_post_hook(std::make_unique<Count>(calls[i]));  // as c10d's Reducer does
  }
  model->forward(gpt_batch({5, 3})).loss_sum.backward();
  CHECK(calls == std::vector<int>(calls.size(), 1));
}

TEST_CASE("a sequence's loss does not depend on the batch it is in, with dropout too") {
  for (const bool llama : {false, true}) {
    const auto model = make_gpt(gpt_job(llama, 0.1));
    const data::Batch both = gpt_batch({6, 11});
    data::Batch parts[2];
    for (int i = 0; i < 2; ++i) {
      const int64_t start = i == 0 ? 0 : 6, length = i == 0 ? 6 : 11;
      parts[i] = gpt_batch({static_cast<int32_t>(length)});
      for (const auto member : {&data::Batch::input_ids, &data::Batch::labels, &data::Batch::row_keys})
        parts[i].*member = (both.*member).narrow(0, start, length);
    }
    for (const bool training : {false, true}) {
      model->train(training);
      const at::Tensor sum = model->forward(parts[0]).loss_sum + model->forward(parts[1]).loss_sum;
      CHECK(at::allclose(model->forward(both).loss_sum, sum, 1e-6));
    }
    model->eval();
    const at::Tensor without = model->forward(both).loss_sum;
    model->train();
    CHECK_FALSE(at::allclose(model->forward(both).loss_sum, without, 1e-4));
  }
}

TEST_CASE("decoding with a cache gives the full forward's logits, for prompts of several lengths") {
  for (const bool llama : {false, true}) {
    const auto model = make_gpt(gpt_job(llama));
    const std::vector<int32_t> lengths = {7, 3, 12, 1};
    const data::Batch batch = gpt_batch(lengths);
    const at::Tensor expected = model->logits(batch);
    const auto token = [&](size_t sequence, int64_t position) {
      return batch.input_ids[batch.cu_seqlens[static_cast<int64_t>(sequence)].item<int64_t>() + position]
          .item<int64_t>();
    };
    const auto row = [&](size_t sequence, int64_t position) {
      return expected[batch.cu_seqlens[static_cast<int64_t>(sequence)].item<int64_t>() + position];
    };
    KvCache cache = model->make_cache(4, 12);
    // Prompts of 3, 1, 5 and 1 tokens, one token each where there is one, then the rest at once.
    std::vector<std::vector<int64_t>> ids = {
        {token(0, 0), token(0, 1), token(0, 2)},
        {token(1, 0)},
        {token(2, 0), token(2, 1), token(2, 2), token(2, 3), token(2, 4)},
        {token(3, 0)}};
    at::Tensor got = model->decode(ids, cache);
    CHECK(at::allclose(got, at::stack({row(0, 2), row(1, 0), row(2, 4), row(3, 0)}), 1e-5, 1e-5));
    cache.keep({0, 1, 2});
    got = model->decode({{token(0, 3)}, {token(1, 1)}, {token(2, 5)}}, cache);
    CHECK(at::allclose(got, at::stack({row(0, 3), row(1, 1), row(2, 5)}), 1e-5, 1e-5));
    cache.keep({2, 0});
    CHECK(cache.lengths() == std::vector<int64_t>{6, 4});
    got = model->decode({{token(2, 6), token(2, 7)}, {token(0, 4)}}, cache);
    CHECK(at::allclose(got, at::stack({row(2, 7), row(0, 4)}), 1e-5, 1e-5));
    cache.clear(1);
    got = model->decode({{token(2, 8)}, {token(1, 0), token(1, 1)}}, cache);  // another in its place
    CHECK(at::allclose(got, at::stack({row(2, 8), row(1, 1)}), 1e-5, 1e-5));
    cache.keep({0});
    for (int64_t position = 9; position < 12; ++position) {
      CHECK(at::allclose(model->decode({{token(2, position)}}, cache)[0], row(2, position), 1e-5, 1e-5));
    }
    CHECK_THROWS_MATCHES(
        model->decode({{1}}, cache), DataError,
        Message("sequence 0: got 1 tokens after 12; expected at least one, and at most 12 in all"));
  }
}

TEST_CASE("in half precision the loss stays near that of fp32") {
  for (const bool llama : {false, true}) {
    Job job = gpt_job(llama);
    const data::Batch batch = gpt_batch({30, 20});
    const auto expected = make_gpt(job)->forward(batch).loss_sum.item<double>();
    for (const auto precision : {spec::Precision::kBf16, spec::Precision::kFp16}) {
      job.spec.train.precision = precision;
      const auto model = make_gpt(job);
      const at::Tensor loss = model->forward(batch).loss_sum;
      CHECK(loss.scalar_type() == at::kFloat);
      CHECK(loss.item<double>() == Approx(expected).epsilon(0.01));
      loss.backward();
      for (const at::Tensor& parameter : model->parameters())
        CHECK(parameter.grad().scalar_type() == at::kFloat);
    }
  }
}

TEST_CASE("an empty batch of tokens gives zero loss and zero gradients, even beside infinite parameters") {
  const auto model = make_gpt(gpt_job(false));
  {
    const at::NoGradGuard no_grad;
    model->parameters()[0].fill_(std::numeric_limits<float>::infinity());
  }
  const at::Tensor loss = model->forward(gpt_batch({})).loss_sum;
  CHECK(loss.item<float>() == 0);
  loss.backward();
  for (const at::Tensor& parameter : model->parameters()) {
    REQUIRE(parameter.grad().defined());
    CHECK(parameter.grad().abs().max().item<float>() == 0);
  }
}

TEST_CASE("a GPT's parameters are those that its config counts, biases and norms apart") {
  for (const bool llama : {false, true}) {
    const auto model = make_gpt(gpt_job(llama));
    ParameterCount weights, rest;
    for (const auto& item : model->named_parameters())
      (model->is_bias_or_norm(item.key()) ? rest : weights) += {item.value().numel(), 1};
    CHECK(weights == model->config().weights());
    CHECK(rest == model->config().biases_and_norms());
  }
}

TEST_CASE("a GPT's floating-point operations are those of its matrix products, attention's causal half") {
  // C = 32, I = 48, 2 layers, V = 100; lengths 2 and 3: N = 5, pairs = 3 + 6. By hand. GPT-2's
  // form: queries, keys, values 3 C; Llama's: 4 heads of 8 and 2 x 2; output C; MLP 2 I or 3 I.
  const double attention = 2 * 2 * 9 * 32, head = 5 * 32 * 100;
  data::Batch batch;
  batch.seqlens = {2, 3};
  CHECK(make_gpt(gpt_job(false))->forward_flops(batch) ==
        2 * (2 * 5 * 32 * (3 * 32 + 32 + 2 * 48) + attention + head));
  CHECK(make_gpt(gpt_job(true))->forward_flops(batch) ==
        2 * (2 * 5 * 32 * (2 * 32 + 32 + 3 * 48) + attention + head));
}

TEST_CASE("a new GPT's weights are a function of the seed, distributed as in transformers") {
  for (const bool llama : {false, true}) {
    Job job = gpt_job(llama);
    job.spec.model.gpt.layers = 8;
    const auto make = [&] { return std::dynamic_pointer_cast<Gpt>(make_model(job).model); };
    const auto model = make(), same = make();
    for (const auto& [name, tensor] : model->hf_views(model->parameters())) {
      INFO(name);
      if (name.ends_with(".bias")) {
        CHECK(tensor.abs().max().item<float>() == 0);
      } else if (tensor.dim() == 1) {
        CHECK(at::equal(tensor, at::ones_like(tensor)));
      } else {  // five standard errors of mean and deviation
        const double deviation = name.ends_with("c_proj.weight") ? 0.02 / 4 : 0.02;
        const auto n = static_cast<double>(tensor.numel());
        CHECK(std::abs(tensor.mean().item<double>()) < 5 * deviation / std::sqrt(n));
        CHECK(std::abs(tensor.std().item<double>() - deviation) < 5 * deviation / std::sqrt(2 * n));
      }
    }
    for (size_t i = 0; i < model->parameters().size(); ++i)
      CHECK(at::equal(model->parameters()[i], same->parameters()[i]));
    job.spec.job.seed = 43;
    CHECK_FALSE(at::equal(make()->parameters()[0], model->parameters()[0]));
  }
}

TEST_CASE("a saved GPT is loaded exactly, in shards too, with its config and tokenizer files") {
  for (const bool llama : {false, true}) {
    const TemporaryDirectory dir;
    Job job = gpt_job(llama, 0.25);
    const Loaded made = make_model(
        job,
        {.vocab_size = 90, .eos_id = 89, .files = {{"vocab.json", "{}"}, {"merges.txt", "#version: 0.2"}}});
    const auto& model = dynamic_cast<const Gpt&>(*made.model);
    CHECK(made.report.newly_initialized.empty());
    model.save_pretrained(dir.path);
    const auto config = nlohmann::json::parse(read_file(dir.path / "config.json"));
    CHECK(config["vocab_size"] == 100);
    CHECK(config["eos_token_id"] == 89);
    CHECK(read_file(dir.path / "merges.txt") == "#version: 0.2");

    job.spec.model.pretrained = dir.path.string();
    job.spec.model.init = spec::ModelInit::kPretrained;
    const auto check = [&](const char* what) {
      INFO(what);
      const Loaded again = make_model(job);
      CHECK(again.report.newly_initialized.empty());
      CHECK(again.report.unused.empty());
      const auto left = model.parameters(), right = again.model->parameters();
      REQUIRE(left.size() == right.size());
      for (size_t i = 0; i < left.size(); ++i) CHECK(at::equal(left[i], right[i]));
    };
    check("one file");
    std::ofstream(dir.path / "generation_config.json") << "{}";
    std::filesystem::remove(dir.path / "model.safetensors");
    save_hf_directory(dir.path, model.config().to_hf_json(), {}, model.hf_views(model.parameters()), 20'000);
    CHECK(std::filesystem::exists(dir.path / "model.safetensors.index.json"));
    check("shards");
    make_model(job).model->save_pretrained(dir.path / "again");
    CHECK(read_file(dir.path / "again" / "vocab.json") == "{}");
    CHECK(read_file(dir.path / "again" / "generation_config.json") == "{}");
    CHECK(nlohmann::json::parse(read_file(dir.path / "again" / "config.json")) == config);
  }
}

TEST_CASE(
    "names without prefix, old buffers and a tied output layer are understood; foreign weights are named") {
  for (const bool llama : {false, true}) {
    const TemporaryDirectory dir;
    Job job = gpt_job(llama);
    job.spec.model.gpt.tie_embeddings = true;
    const auto model = make_gpt(job);
    model->save_pretrained(dir.path);
    NamedTensors old;
    for (const auto& [name, tensor] : model->hf_views(model->parameters())) {
      old.emplace_back(name.substr(name.find('.') + 1), tensor.to(at::kBFloat16));
    }
    old.emplace_back(llama ? "layers.0.self_attn.rotary_emb.inv_freq" : "h.0.attn.bias", at::zeros(4));
    if (!llama) old.emplace_back("h.0.attn.masked_bias", at::zeros(1));
    old.emplace_back("lm_head.weight", at::zeros(4));
    old.emplace_back("score.weight", at::zeros(4));
    write_safetensors(dir.path / "model.safetensors", old);
    job.spec.model.pretrained = dir.path.string();
    job.spec.model.init = spec::ModelInit::kPretrained;
    const Loaded loaded = make_model(job);
    CHECK(loaded.report.newly_initialized.empty());
    CHECK(loaded.report.unused == std::vector<std::string>{"score.weight"});
    CHECK(at::equal(loaded.model->parameters()[1], model->parameters()[1].to(at::kBFloat16).to(at::kFloat)));

    write_safetensors(dir.path / "model.safetensors",
                      {{llama ? "norm.weight" : "ln_f.weight", at::zeros(31)}});
    CHECK_THROWS_MATCHES(
        make_model(job), CheckpointError,
        Message(dir.path.string() + ": the shapes of 1 weights differ from config.json and the job:\n  " +
                (llama ? "norm.weight" : "ln_f.weight") +
                ": got [31], expected [32]\n  hint: config.json and the weights belong together"));
    write_safetensors(dir.path / "model.safetensors", {{"a", at::zeros(1)}});
    CHECK_THROWS_MATCHES(make_model(job), CheckpointError,
                         Message(dir.path.string() + ": none of its weights is one of " +
                                 (llama ? "Llama" : "GPT-2") + "; the first is a"));
  }
}

TEST_CASE("the headers of weights tell whether they will load, and layers of one side only are a warning") {
  const TemporaryDirectory dir;
  Job job = gpt_job(false);
  const auto model = make_gpt(job);
  model->save_pretrained(dir.path);
  job.spec.model.pretrained = dir.path.string();
  CHECK(check_weights(job).newly_initialized.empty());  // init: random
  job.spec.model.init = spec::ModelInit::kPretrained;
  CHECK(check_weights(job).warning(spec::ModelType::kGpt).empty());
  NamedTensors weights = model->hf_views(model->parameters());
  for (auto& [name, tensor] : weights) {
    const size_t at = name.find("h.1.");
    if (at != std::string::npos) name.replace(at, 4, "h.7.");
  }
  write_safetensors(dir.path / "model.safetensors", weights);
  CHECK(check_weights(job).warning(spec::ModelType::kGpt) ==
        "model.pretrained: config.json and the weights are not of one model: 12 weights are in no file and "
        "begin as "
        "random numbers; 12 in the files are not used");
  CHECK(LoadReport{{"classifier.weight"}, {"cls.bias"}}.warning(spec::ModelType::kBertClassifier).empty());
  write_safetensors(dir.path / "model.safetensors", {{"transformer.ln_f.weight", at::zeros(31)}});
  CHECK_THROWS_AS(check_weights(job), CheckpointError);
  std::filesystem::resize_file(dir.path / "model.safetensors", 20);
  CHECK_THROWS_AS(check_weights(job), CheckpointError);
}

TEST_CASE("a new GPT must know every token of the tokenizer") {
  CHECK_THROWS_MATCHES(
      make_model(gpt_job(false), {.vocab_size = 101}), SpecError,
      Message("model.gpt.vocab_size: got 100; the tokenizer has 101 tokens\n1 fault in the job spec"));
  Job job = gpt_job(false);
  job.spec.model.gpt.vocab_size.reset();
  CHECK(make_gpt(job)->config().vocab_size == 50257);
  const auto model = make_model(job, {.vocab_size = 65}).model;
  CHECK(dynamic_cast<const Gpt&>(*model).config().vocab_size == 65);
  job.spec.model.pretrained = "/nowhere";
  CHECK_THROWS_MATCHES(
      make_model(job), SpecError,
      Message("model.pretrained: /nowhere is not a directory; hint: any Hugging Face directory of a "
              "GPT-2 or a Llama with config.json and model.safetensors serves"));
}

}  // namespace trainer::model
