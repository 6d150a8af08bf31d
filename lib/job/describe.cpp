#include <fmt/format.h>

#include <algorithm>

#include "core/format.h"
#include "job/estimate.h"
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
  return size.mean_tokens > 0
             ? fmt::format("{} of {:.4g} tokens a sequence", step, e.tokens_per_sequence)
             : fmt::format("at most {}, if all sequences had {:.4g} tokens", step, e.tokens_per_sequence);
}

std::string memory(const Estimate& e) {
  return fmt::format(
      "{} a worker = weights {} + gradients {} + optimizer {} + activations up to {} (estimates)",
      mebibytes(e.total_bytes()), mebibytes(static_cast<double>(e.weight_bytes)),
      mebibytes(static_cast<double>(e.gradient_bytes)), mebibytes(static_cast<double>(e.optimizer_bytes)),
      mebibytes(e.activation_bytes));
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
  row("model", fmt::format("{}, {} {}; {}, {}", to_string(s.model.type),
                           s.model.init == spec::ModelInit::kRandom ? "random weights for" : "pretrained",
                           s.model.pretrained, to_string(s.model.problem_type),
                           counted(s.model.num_labels, "output")));
  row("parameters", fmt::format("{}, {} of them trainable", grouped(e.parameters), grouped(e.trainable)));
  row("data", data(s.data, size));
  row("train", train(job, e));
  row("batch", batch(job));
  row("optimizer", optimizer(s.optimizer, e));
  row("schedule", schedule(s.schedule));
  row("evaluation", evaluation(job));
  row("memory", memory(e));
  row("compute", compute(e, size));
  for (const auto& warning : job.warnings) row("warning", warning);
  return out;
}

}  // namespace trainer
