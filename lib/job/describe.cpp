#include <fmt/format.h>

#include <algorithm>

#include "core/format.h"
#include "job/estimate.h"
#include "job/gpt_config.h"
#include "spec/enums.h"

namespace trainer {
namespace {

using spec::to_string;

std::string counted(int64_t count, const char* noun) {
  return fmt::format("{} {}{}", grouped(count), noun, count == 1 ? "" : "s");
}

std::string mebibytes(double bytes) {
  const double mib = bytes / (1 << 20);
  return mib < 10240 ? fmt::format("{:.{}f} MiB", mib, mib < 10 ? 1 : 0)
                     : fmt::format("{:.1f} GiB", mib / 1024);
}

std::string flops(double value) {
  const char* prefix = "";
  for (const char* next : {"k", "M", "G", "T", "P", "E"}) {
    if (value < 1000) break;
    value /= 1000;
    prefix = next;
  }
  return fmt::format("{:.3g} {}FLOP", value, prefix);
}

std::string world(const Job& job) {
  const auto& w = job.world;
  std::string text = fmt::format("{} on {}, {}", counted(w.size, "worker"), counted(w.num_nodes, "node"),
                                 job.cuda ? "cuda" : "cpu");
  if (job.backend != "none") text += ", " + job.backend;
  return text;
}

std::string recommender(const spec::Model& m, const Estimate& e) {
  std::string text = "recommender";
  if (!m.pretrained.empty()) {
    text += (m.init == spec::ModelInit::kRandom ? ", random weights for " : ", pretrained ") + m.pretrained;
  }
  if (!e.model.empty()) return text + ", " + e.model;
  return text + fmt::format(", {}; its features are known when the data is read",
                            to_string(m.recommender.architecture));
}

std::string parameters(const Estimate& e) {
  if (!e.tables) return fmt::format("{}, {} of them trainable", grouped(e.parameters), grouped(e.trainable));
  const std::string tables = counted(e.tables->tables, "table");
  if (e.tables->knows_rows) {
    return fmt::format("{} in {}; {} dense", grouped(e.tables->parameters), tables, grouped(e.parameters));
  }
  return fmt::format("{} with as many rows as their vocabularies will have; {} dense", tables,
                     grouped(e.parameters));
}

std::string model(const Job& job, const DataSize& size, const Estimate& e) {
  const spec::Model& m = job.spec.model;
  const bool is_random = m.init == spec::ModelInit::kRandom;
  if (m.type == spec::ModelType::kRecommender) return recommender(m, e);
  if (m.type != spec::ModelType::kGpt) {
    return fmt::format("{}, {} {}; {}, {}", to_string(m.type),
                       is_random ? "random weights for" : "pretrained", m.pretrained,
                       to_string(m.problem_type), counted(m.num_labels, "output"));
  }
  const GptConfig c = load_gpt_config(job, size.tokenizer_vocab_size);
  std::string text = c.is_llama() ? "gpt of Llama's form" : "gpt of GPT-2's form";
  text += is_random ? ", random weights" : "";
  if (!m.pretrained.empty()) text += (is_random ? " for " : ", pretrained ") + m.pretrained;
  if (m.gpt.preset != spec::GptPreset::kNone) text += fmt::format(", preset {}", to_string(m.gpt.preset));
  text += fmt::format("; {} of {} channels, {}", counted(c.layers, "layer"), c.hidden_size,
                      counted(c.heads, "head"));
  if (c.kv_heads != c.heads) text += fmt::format(" ({} of keys and values)", c.kv_heads);
  return text + fmt::format("; vocabulary of {}", grouped(c.vocab_size));
}

std::string language_data(const spec::Data& d, const DataSize& size) {
  std::string text = d.train.path;
  if (size.samples > 0) {
    text += fmt::format(" ({} of {} tokens{})", counted(size.samples, "sequence"), d.max_length,
                        d.windows == spec::Windows::kRandom ? ", from random places" : "");
  }
  if (d.documents == spec::Documents::kSeparate) text += ", cut at the ends of documents";
  if (!d.validation.path.empty()) return text + "; validation " + d.validation.path;
  if (d.validation_fraction > 0)
    return text + fmt::format("; validation the last {:g} of it", d.validation_fraction);
  return text + "; no validation";
}

std::string records_data(const spec::Data& d, const DataSize& size) {
  std::string text = d.train.path;
  if (size.samples > 0) text += fmt::format(" ({})", counted(size.samples, "record"));
  text += d.validation.path.empty() ? "; no validation" : "; validation " + d.validation.path;
  return text + fmt::format("; ids by {}", to_string(d.features.ids));
}

std::string data(const spec::Data& d, const DataSize& size) {
  std::string text = d.train.path;
  if (size.samples > 0) text += fmt::format(" ({})", counted(size.samples, "sample"));
  text += d.validation.path.empty() ? "; no validation" : "; validation " + d.validation.path;
  text += fmt::format("; at most {} tokens", d.max_length);
  if (size.mean_tokens > 0) text += fmt::format(", mean {:.1f}", size.mean_tokens);
  return text;
}

std::string train(const Job& job, const Estimate& e) {
  const auto& t = job.spec.train;
  std::string text = t.epochs ? counted(*t.epochs, "epoch") + (e.steps > 0 ? ", " : "") : "";
  if (e.steps > 0) text += counted(e.steps, "step");
  text += fmt::format("; {}", to_string(t.precision));
  if (t.tf32) text += " (TF32)";
  if (t.recompute != spec::Recompute::kNone)
    text += fmt::format("; {} computed again in backward",
                        t.recompute == spec::Recompute::kBlock ? "blocks" : "MLPs");
  if (t.ema_decay > 0) text += fmt::format("; mean weights, decay {:g}", t.ema_decay);
  text +=
      t.clip_grad_norm > 0 ? fmt::format("; gradient norm clipped at {}", t.clip_grad_norm) : "; no clipping";
  return text;
}

std::string batch(const Job& job) {
  const auto& t = job.spec.train;
  if (t.batch_tokens > 0) {
    return fmt::format("at most {} tokens a worker x {} accumulated x {}", t.batch_tokens,
                       t.gradient_accumulation, counted(job.world.size, "worker"));
  }
  return fmt::format("{} = {} a worker x {} accumulated x {}", counted(job.global_batch, "sample"),
                     t.batch_size, t.gradient_accumulation, counted(job.world.size, "worker"));
}

std::string optimizer(const spec::Optimizer& o, const Estimate& e) {
  std::string text = fmt::format("{}, learning rate {:g}; ", to_string(o.type), o.lr);
  if (o.weight_decay == 0) return text + "no weight decay";
  text += fmt::format("weight decay {:g} on {} in {}", o.weight_decay, counted(e.decayed.count, "parameter"),
                      counted(e.decayed.tensors, "tensor"));
  if (e.spared.tensors == 0) return text;
  return text + fmt::format(", none on {} in {} (biases and norms)", grouped(e.spared.count),
                            grouped(e.spared.tensors));
}

std::string tables(const Job& job) {
  const auto& o = job.spec.model.recommender.embedding_optimizer;
  std::string text =
      fmt::format("{}, learning rate {:g}", to_string(o.type), o.lr.value_or(job.spec.optimizer.lr));
  return o.weight_decay > 0 ? text + fmt::format(", weight decay {:g}", o.weight_decay) : text;
}

std::string schedule(const spec::Schedule& s) {
  std::string text(to_string(s.type));
  if (s.warmup_steps > 0) text += fmt::format(", {} of warm-up", counted(s.warmup_steps, "step"));
  if (s.warmup_steps == 0 && s.warmup_ratio > 0)
    text += fmt::format(", warm-up {:g} of all steps", s.warmup_ratio);
  if (s.min_lr_ratio > 0) text += fmt::format(", down to {:g} of the peak", s.min_lr_ratio);
  return text;
}

std::string evaluation(const Job& job) {
  const auto& e = job.spec.evaluation;
  if (job.evaluation_every < 0) return "never";
  std::string text = job.evaluation_every == 0
                         ? "every epoch: "
                         : fmt::format("every {}: ", counted(job.evaluation_every, "step"));
  for (size_t i = 0; i < e.metrics.size(); ++i)
    text += fmt::format("{}{}", i > 0 ? ", " : "", to_string(e.metrics[i]));
  if (e.best) text += fmt::format("; best by {}", to_string(*e.best));
  if (e.early_stop_patience > 0)
    text += fmt::format("; stops after {} without a better one", e.early_stop_patience);
  return text;
}

std::string compute(const Estimate& e, const DataSize& size) {
  const std::string step = flops(e.step_flops) + " a step";
  if (e.tables) return step;
  return size.mean_tokens > 0
             ? fmt::format("{} of {:.4g} tokens a sequence", step, e.tokens_per_sequence)
             : fmt::format("at most {}, if all sequences had {:.4g} tokens", step, e.tokens_per_sequence);
}

std::string memory(const Estimate& e) {
  const auto bytes = [](int64_t n) { return mebibytes(static_cast<double>(n)); };
  std::string text =
      fmt::format("{} a worker = weights {} + gradients {} + optimizer {}", mebibytes(e.total_bytes()),
                  bytes(e.weight_bytes), bytes(e.gradient_bytes), bytes(e.optimizer_bytes));
  if (e.tables) {
    text += fmt::format(" + tables {} + their optimizer {}", bytes(e.tables->weight_bytes),
                        bytes(e.tables->optimizer_bytes));
    if (e.tables->gradient_bytes > 0)
      text += fmt::format(" + their gradients {}", bytes(e.tables->gradient_bytes));
  }
  if (e.mean_bytes > 0) text += fmt::format(" + mean of weights {}", bytes(e.mean_bytes));
  text += fmt::format(" + activations up to {}", mebibytes(e.activation_bytes));
  if (e.program_bytes > 0) text += fmt::format(" + program {}", bytes(e.program_bytes));
  return text + " (estimates)";
}

}  // namespace

std::string describe(const Job& job, const Estimate& e, const DataSize& size, const std::string& machine) {
  const auto& s = job.spec;
  std::string out;
  const auto row = [&](std::string_view name, const std::string& text) {
    out += fmt::format("  {:<11}{}\n", name, text);
  };
  row("job", fmt::format("{}; seed {}; output in {}", s.job.name, s.job.seed, job.output_dir.string()));
  row("world", world(job));
  if (!machine.empty()) row("machine", machine);
  row("model", model(job, size, e));
  row("parameters", parameters(e));
  row("data", s.model.type == spec::ModelType::kGpt           ? language_data(s.data, size)
              : s.model.type == spec::ModelType::kRecommender ? records_data(s.data, size)
                                                              : data(s.data, size));
  row("train", train(job, e));
  row("batch", batch(job));
  row("optimizer", optimizer(s.optimizer, e));
  if (e.tables) {
    row("tables", tables(job));
    out += e.tables->plan;
  }
  row("schedule", schedule(s.schedule));
  row("evaluation", evaluation(job));
  row("memory", memory(e));
  row("compute", compute(e, size));
  for (const auto& warning : job.warnings) row("warning", warning);
  return out;
}

}  // namespace trainer
