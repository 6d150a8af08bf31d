#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/format.h"
#include "job/embedding_plan.h"
#include "spec/enums.h"

namespace trainer {
namespace {

constexpr size_t kMaxRanks = 8;  // with a line each; of more only the range

std::string bytes(double value) {
  return binary_bytes(static_cast<int64_t>(value));
}

std::string counted(int64_t count, const char* noun) {
  return fmt::format("{} {}{}", grouped(count), noun, count == 1 ? "" : "s");
}

std::string ranks(const TablePlacement& placement, int64_t world) {
  const auto held = static_cast<int64_t>(placement.shards.size());
  return held == world && world > 1 ? "all ranks" : counted(held, "rank");
}

using Column = std::pair<const char*, std::string (*)(const RankLoad&)>;
constexpr Column kColumns[] = {
    {"tables", [](const RankLoad& r) { return grouped(r.tables); }},
    {"weights", [](const RankLoad& r) { return bytes(static_cast<double>(r.weight_bytes)); }},
    {"optimizer", [](const RankLoad& r) { return bytes(static_cast<double>(r.state_bytes)); }},
    {"lookups", [](const RankLoad& r) { return grouped(static_cast<int64_t>(r.lookups)); }},
    {"ids", [](const RankLoad& r) { return bytes(r.id_bytes); }},
    {"pooled", [](const RankLoad& r) { return bytes(r.pooled_bytes); }},
    {"backward", [](const RankLoad& r) { return bytes(r.backward_bytes); }},
    {"reduced", [](const RankLoad& r) { return bytes(r.reduce_bytes); }},
};

std::string rank_line(const std::string& name, const RankLoad& load) {
  std::string line = fmt::format("  {:<12}", name);
  for (const auto& [title, value] : kColumns) line += fmt::format(" {:>10}", value(load));
  return line + '\n';
}

RankLoad extreme(const std::vector<RankLoad>& loads, bool most) {
  RankLoad result = loads.front();
  for (const RankLoad& load : loads) {
    const auto take = [&](auto member) {
      result.*member = most ? std::max(result.*member, load.*member) : std::min(result.*member, load.*member);
    };
    for (const auto member : {&RankLoad::tables, &RankLoad::weight_bytes, &RankLoad::state_bytes})
      take(member);
    for (const auto member : {&RankLoad::lookups, &RankLoad::id_bytes, &RankLoad::pooled_bytes,
                              &RankLoad::backward_bytes, &RankLoad::reduce_bytes}) {
      take(member);
    }
  }
  return result;
}

}  // namespace

std::string describe_plan(const std::vector<TableConfig>& tables, const EmbeddingPlan& plan,
                          const EmbeddingPlanOptions& options) {
  const auto world = static_cast<int64_t>(plan.ranks.size());
  struct Group {
    std::string line;
    int64_t count = 0;
    std::string names;
  };
  std::vector<Group> groups;
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < tables.size(); ++i) {
    const TableConfig& t = tables[i];
    const std::string line =
        fmt::format("{:<6} on {:<9} {:>13} rows x {:>3} {}, {}", spec::to_string(plan.tables[i].sharding),
                    ranks(plan.tables[i], world), grouped(t.rows), t.dim, spec::to_string(t.dtype),
                    binary_bytes(t.rows * t.dim * element_bytes(t.dtype)));
    const auto [found, is_new] = known.emplace(line, groups.size());
    if (is_new) groups.push_back({line, 0, ""});
    Group& group = groups[found->second];
    if (group.count < 4) group.names += (group.count == 0 ? "" : ", ") + t.name;
    if (group.count == 4) group.names += ", ...";
    ++group.count;
  }
  std::string text;
  for (const Group& g : groups) {
    text += fmt::format("  {:>4} {} {} ({})\n", g.count, g.count == 1 ? "table " : "tables", g.line, g.names);
  }
  text += fmt::format("  {:<12}", world > 1 ? "each step" : "");
  for (const auto& [title, value] : kColumns) text += fmt::format(" {:>10}", title);
  text += '\n';
  if (plan.ranks.size() > kMaxRanks) {
    text += rank_line("least full", extreme(plan.ranks, false));
    text += rank_line("fullest", extreme(plan.ranks, true));
  } else {
    for (size_t r = 0; r < plan.ranks.size(); ++r)
      text += rank_line(fmt::format("rank {}", r), plan.ranks[r]);
  }
  return text + fmt::format("  lookups and bytes sent and received are those of a step of {}\n",
                            counted(options.global_batch, "sample"));
}

}  // namespace trainer
