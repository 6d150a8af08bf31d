#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "core/error.h"
#include "embedding/fbgemm_library.h"
#include "embedding/storage.h"

// FBGEMM's table-batched operators, the forms that torch.compile uses (..._pt2_wrapper): the same for CPU and CUDA, without autograd, the
// backward one with the optimizer in it. Called by argument names, since their order differs from version to version.

namespace trainer::embedding {
namespace {

using at::Tensor;
using Arguments = std::map<std::string, c10::IValue>;

constexpr int64_t kSum = 0, kFp32 = 0;  // pooling mode, output dtype
constexpr int64_t kL2 = 1;              // weight decay mode
constexpr int64_t kWays = 32;           // of the set-associative cache of rows
enum Location : int32_t { kDevice = 0, kManaged = 1, kManagedCaching = 2, kHost = 3 };

// The results of an operator. An argument that is not given has its default, or none.
std::vector<c10::IValue> call(const std::string& name, const Arguments& given) {
  const auto op = c10::Dispatcher::singleton().findSchema({"fbgemm::" + name, ""});
  if (!op) fail<SpecError>("fbgemm: this version has no operator {}; expected version 1.6", name);
  std::vector<c10::IValue> stack;
  for (const c10::Argument& argument : op->schema().arguments()) {
    if (const auto it = given.find(argument.name()); it != given.end()) {
      stack.push_back(it->second);
    } else if (argument.default_value()) {
      stack.push_back(*argument.default_value());
    } else if (argument.type()->kind() == c10::TypeKind::OptionalType) {
      stack.emplace_back();
    } else if (argument.type()->kind() == c10::TypeKind::TensorType) {
      stack.emplace_back(Tensor());
    } else {
      fail<SpecError>("fbgemm: operator {} needs \"{}\"; expected version 1.6", name, argument.name());
    }
  }
  op->callBoxed(&stack);
  return stack;
}

const char* name_of(spec::TableOptimizerType type) {
  switch (type) {
    case spec::TableOptimizerType::kAdagrad:
      return "adagrad";
    case spec::TableOptimizerType::kSgd:
      return "sgd";
    case spec::TableOptimizerType::kAdam:
      return "adam";
    case spec::TableOptimizerType::kRowwiseAdagrad:
      break;
  }
  return "rowwise_adagrad";
}

Tensor tensor_of(const std::vector<int64_t>& values, at::ScalarType dtype, at::Device device) {
  return at::tensor(values, at::kLong).to(device, dtype);
}

// Tables of one dtype, all of their memory in one tensor, and the features that they serve, by table: an operator takes no less.
struct Group {
  std::vector<size_t> features;
  Tensor weights, sum, exp_avg, exp_avg_sq;  // [elements]
  int64_t max_dim = 0, total_dim = 0, total_rows = 0;
  bool mixed_dims = false;
  Arguments layout;                // the arguments that never change
  Tensor cache_state, lru_state;   // [sets, ways]; undefined without a cache
  Tensor cache_weights;            // [sets ways, max_dim]
  Tensor cache_begins, cache_map;  // [features + 1], [total_rows]
  int64_t time = 0;                // of the cache
};

class FbgemmTables : public StoredTables {
 public:
  FbgemmTables(TablesConfig config, at::Device device, const Placement& placement)
      : StoredTables(std::move(config), device, /*allocate=*/false), placement_(placement) {
    storage_.resize(config_.tables.size());
    for (const spec::TableDtype dtype : {spec::TableDtype::kFp32, spec::TableDtype::kFp16}) make_group(dtype);
  }

  Tensor forward(const Lookup& lookup) override {
    const auto options = at::TensorOptions().device(device_);
    if (lookup.batch == 0 || groups_.empty()) return at::zeros({lookup.batch, columns_.back()}, options);
    Tensor out;
    for (Group& group : groups_) {
      const Lookup own = select(lookup, group);
      Arguments arguments = group.layout;
      add_lookup(group, own, arguments);
      arguments["lxu_cache_locations"] = cache_locations(group, own, /*fetch=*/true);
      const Tensor pooled = call(operator_name("codegen_forward", own), arguments).front().toTensor();
      if (is_all(group)) return pooled;
      if (!out.defined()) out = at::zeros({lookup.batch, columns_.back()}, options);
      int64_t column = 0;
      for (const size_t f : group.features) {
        const int64_t dim = columns_[f + 1] - columns_[f];
        out.narrow(1, columns_[f], dim).copy_(pooled.narrow(1, column, dim));
        column += dim;
      }
    }
    return out;
  }

  void step(std::span<const Lookup> lookups, std::span<const Tensor> gradients, const Tensor& lr,
            const Tensor& grad_scale, const Tensor& found_inf, const RowSums* row_sums) override {
    const TableOptimizer& o = config_.optimizer;
    if (row_sums != nullptr && o.type == spec::TableOptimizerType::kRowwiseAdagrad) {
      fail<SpecError>(
          "embedding tables: fbgemm's row-wise Adagrad cannot take the mean over columns that are on other "
          "ranks; got "
          "tables sharded by columns\nhint: model.recommender.embedding_backend: native, or another "
          "sharding");
    }
    const Tensor numbers = at::stack({found_inf, lr, grad_scale}).to(at::kCPU, at::kFloat);
    const float* host = numbers.const_data_ptr<float>();
    if (host[0] == 1) return;
    count_step();
    if (lookups.empty()) return;
    const Lookup all = concat_lookups(lookups, std::ssize(config_.feature_tables));
    if (all.ids.numel() == 0) return;
    Tensor gradient =
        gradients.size() == 1 ? gradients[0] : at::cat(at::TensorList(gradients.data(), gradients.size()));
    if (host[2] != 1) gradient = gradient / grad_scale;
    for (Group& group : groups_) {
      const Lookup own = select(all, group);
      if (own.ids.numel() == 0) continue;
      Arguments arguments = group.layout;
      add_lookup(group, own, arguments);
      arguments["lxu_cache_locations"] = cache_locations(group, own, /*fetch=*/false);
      arguments["grad_output"] = columns_of(gradient, group).contiguous();
      arguments["learning_rate_tensor"] = numbers[1];
      arguments["iter"] = step_of(table_of(group.features.front()));
      call(operator_name(std::string("backward_codegen_") + name_of(o.type), own), arguments);
    }
  }

  // With a cache, the rows in it are written back first, and read anew after.
  Tensor weight(int64_t table) override {
    for (Group& group : groups_) flush(group);
    return StoredTables::weight(table);
  }

  std::string backend() const override { return "fbgemm"; }

 private:
  static std::string operator_name(const std::string& what, const Lookup& lookup) {
    return "split_embedding_" + what + (lookup.weights.defined() ? "_weighted" : "_unweighted") +
           "_pt2_wrapper";
  }
  bool is_all(const Group& group) const {
    return group.features.size() == config_.feature_tables.size() && std::ranges::is_sorted(group.features);
  }

  Tensor allocate_flat(int64_t count, at::ScalarType dtype) const {
    if (device_.is_cpu() || placement_.memory == spec::EmbeddingMemory::kDevice)
      return zeros({count}, dtype, device_);
    const Tensor like = at::empty({0}, at::TensorOptions().dtype(dtype).device(device_));
    return call("new_managed_tensor", {{"self", like}, {"sizes", std::vector<int64_t>{count}}})
        .front()
        .toTensor()
        .zero_();
  }

  void make_group(spec::TableDtype dtype);
  void make_cache(Group& group);

  // The lookup's features of a group.
  Lookup select(const Lookup& lookup, const Group& group) const {
    if (is_all(group)) return lookup;
    const std::vector<int64_t> bounds = feature_bounds(lookup, std::ssize(config_.feature_tables));
    std::vector<Tensor> ids, offsets, weights;
    int64_t begin = 0;
    for (const size_t f : group.features) {
      const int64_t first = bounds[f], count = bounds[f + 1] - first;
      ids.push_back(lookup.ids.narrow(0, first, count));
      if (lookup.weights.defined()) weights.push_back(lookup.weights.narrow(0, first, count));
      const auto bag = static_cast<int64_t>(f) * lookup.batch;
      offsets.push_back(lookup.offsets.narrow(0, bag, lookup.batch) + (begin - first));
      begin += count;
    }
    offsets.push_back(at::full({1}, begin, lookup.offsets.options()));
    return {at::cat(ids), at::cat(offsets), weights.empty() ? Tensor() : at::cat(weights), lookup.batch};
  }
  Tensor columns_of(const Tensor& gradient, const Group& group) const {
    if (is_all(group)) return gradient;
    std::vector<Tensor> columns;
    for (const size_t f : group.features)
      columns.push_back(gradient.narrow(1, columns_[f], columns_[f + 1] - columns_[f]));
    return at::cat(columns, 1);
  }

  void add_lookup(const Group& group, const Lookup& lookup, Arguments& arguments) const {
    arguments["indices"] = lookup.ids;
    arguments["offsets"] = lookup.offsets;
    if (lookup.weights.defined()) arguments["indice_weights"] = lookup.weights;
    // A sample and its feature share a word of 32 bits.
    const int bits = 32 - std::bit_width(group.features.size());
    if (lookup.batch >= int64_t{1} << bits) {
      fail<SpecError>("embedding tables: fbgemm takes {} samples at a time of {} features; got {}",
                      (int64_t{1} << bits) - 1, group.features.size(), lookup.batch);
    }
    arguments["info_B_num_bits"] = int64_t{bits};
    arguments["info_B_mask_int64"] = (int64_t{1} << bits) - 1;
  }

  // Where ids' rows are in the cache, after fetching them; empty without a cache.
  Tensor cache_locations(Group& group, const Lookup& lookup, bool fetch) const {
    if (!group.cache_state.defined())
      return at::empty({0}, at::TensorOptions().dtype(at::kInt).device(device_));
    const Tensor places = call("linearize_cache_indices", {{"cache_hash_size_cumsum", group.cache_begins},
                                                           {"indices", lookup.ids},
                                                           {"offsets", lookup.offsets}})
                              .front()
                              .toTensor();
    if (fetch) {
      call("lru_cache_populate", {{"weights", group.weights},
                                  {"hash_size_cumsum", group.cache_begins},
                                  {"total_cache_hash_size", group.total_rows},
                                  {"cache_index_table_map", group.cache_map},
                                  {"weights_offsets", group.layout.at("weights_offsets")},
                                  {"D_offsets", group.layout.at("D_offsets")},
                                  {"linear_cache_indices", places},
                                  {"lxu_cache_state", group.cache_state},
                                  {"lxu_cache_weights", group.cache_weights},
                                  {"time_stamp", ++group.time},
                                  {"lru_state", group.lru_state},
                                  {"stochastic_rounding", false}});
    }
    return call("lxu_cache_lookup", {{"linear_cache_indices", places},
                                     {"lxu_cache_state", group.cache_state},
                                     {"invalid_index", group.total_rows}})
        .front()
        .toTensor();
  }

  void flush(Group& group) const {
    if (!group.cache_state.defined() || group.time == 0) return;
    call("lxu_cache_flush", {{"uvm_weights", group.weights},
                             {"cache_hash_size_cumsum", group.cache_begins},
                             {"cache_index_table_map", group.cache_map},
                             {"weights_offsets", group.layout.at("weights_offsets")},
                             {"D_offsets", group.layout.at("D_offsets")},
                             {"total_D", group.total_dim},
                             {"lxu_cache_state", group.cache_state},
                             {"lxu_cache_weights", group.cache_weights},
                             {"stochastic_rounding", false}});
    group.cache_state.fill_(-1);
    group.lru_state.zero_();
  }

  const Placement placement_;
  std::vector<Group> groups_;
};

void FbgemmTables::make_group(spec::TableDtype dtype) {
  const TableOptimizer& o = config_.optimizer;
  // Memory: tables one after the other, the state in the same order.
  std::vector<int64_t> row_begins(config_.tables.size(), 0), element_begins = row_begins;
  int64_t rows = 0, elements = 0;
  for (size_t t = 0; t < config_.tables.size(); ++t) {
    const Table& table = config_.tables[t];
    if (table.dtype != dtype) continue;
    row_begins[t] = std::exchange(rows, rows + table.rows);
    element_begins[t] = std::exchange(elements, elements + table.rows * table.dim);
  }
  Group group;
  group.weights = allocate_flat(elements, scalar_type(dtype));
  const bool rowwise = o.type == spec::TableOptimizerType::kRowwiseAdagrad;
  if (rowwise) group.sum = allocate_flat(rows, at::kFloat);
  if (o.type == spec::TableOptimizerType::kAdagrad) group.sum = allocate_flat(elements, at::kFloat);
  if (o.type == spec::TableOptimizerType::kAdam) {
    group.exp_avg = allocate_flat(elements, at::kFloat);
    group.exp_avg_sq = allocate_flat(elements, at::kFloat);
  }
  for (size_t t = 0; t < config_.tables.size(); ++t) {
    const Table& table = config_.tables[t];
    if (table.dtype != dtype) continue;
    const auto part = [&](const Tensor& flat) {
      return flat.defined()
                 ? flat.narrow(0, element_begins[t], table.rows * table.dim).view({table.rows, table.dim})
                 : flat;
    };
    storage_[t] = {part(group.weights),
                   rowwise ? group.sum.narrow(0, row_begins[t], table.rows) : part(group.sum),
                   part(group.exp_avg), part(group.exp_avg_sq),
                   o.type == spec::TableOptimizerType::kAdam ? at::zeros({}, at::kLong) : Tensor()};
  }

  // Features by table, as the operators want them; those of tables without rows have empty bags, which they cannot take.
  for (size_t f = 0; f < config_.feature_tables.size(); ++f) {
    const Table& table = config_.tables[table_of(f)];
    if (table.dtype == dtype && table.rows > 0) group.features.push_back(f);
  }
  std::ranges::stable_sort(group.features, {}, [&](size_t f) { return table_of(f); });
  if (group.features.empty()) return;
  std::vector<int64_t> weight_places, state_places, columns{0}, row_sums, dims;
  for (size_t i = 0; i < group.features.size(); ++i) {
    const size_t t = table_of(group.features[i]);
    if (i > 0 && t != table_of(group.features[i - 1])) {
      group.total_rows += config_.tables[table_of(group.features[i - 1])].rows;
    }
    row_sums.push_back(group.total_rows);
    weight_places.push_back(element_begins[t]);
    state_places.push_back(rowwise ? row_begins[t] : element_begins[t]);
    dims.push_back(config_.tables[t].dim);
    columns.push_back(columns.back() + dims.back());
  }
  group.total_rows += config_.tables[table_of(group.features.back())].rows;
  row_sums.push_back(group.total_rows);
  group.max_dim = std::ranges::max(dims);
  group.total_dim = columns.back();
  group.mixed_dims = std::ranges::min(dims) != group.max_dim;

  using Memory = spec::EmbeddingMemory;
  const bool managed = !device_.is_cpu() && placement_.memory != Memory::kDevice;
  const bool cached = managed && placement_.memory == Memory::kUvmCached;
  const int64_t place = device_.is_cpu() ? kHost : cached ? kManagedCaching : managed ? kManaged : kDevice;
  const auto places = [&](int64_t location) {
    return tensor_of(std::vector<int64_t>(group.features.size(), location), at::kInt, device_);
  };
  // Of three tensors for host, device and managed memory, one is not empty.
  const auto placed = [&](const std::string& prefix, const std::string& suffix, const Tensor& tensor) {
    for (const char* memory : {"host", "dev", "uvm"}) {
      const bool here = std::string(memory) == (device_.is_cpu() ? "host" : managed ? "uvm" : "dev");
      const auto device = std::string(memory) == "host" ? at::Device(at::kCPU) : device_;
      const std::string name = suffix.empty() ? prefix + memory : memory + suffix;
      group.layout[name] = here ? tensor : at::empty({0}, tensor.options().device(device));
    }
  };
  placed("", "_weights", group.weights);
  const auto momentum = [&](const std::string& name, const Tensor& tensor) {
    if (!tensor.defined()) return;
    placed(name + "_", "", tensor);
    group.layout[name + "_placements"] = places(cached ? int64_t{kManaged} : place);
    group.layout[name + "_offsets"] = tensor_of(state_places, at::kLong, device_);
  };
  momentum("momentum1", group.sum.defined() ? group.sum : group.exp_avg);
  momentum("momentum2", group.exp_avg_sq);
  const auto options = at::TensorOptions().device(device_);
  group.layout.insert({{"lxu_cache_weights", at::empty({0, 0}, options.dtype(scalar_type(dtype)))},
                       {"weights_placements", places(place)},
                       {"weights_offsets", tensor_of(weight_places, at::kLong, device_)},
                       {"D_offsets", tensor_of(columns, at::kInt, device_)},
                       {"total_D", group.total_dim},
                       {"max_D", group.max_dim},
                       {"mixed_D", group.mixed_dims},
                       {"hash_size_cumsum", tensor_of(row_sums, at::kLong, device_)},
                       {"total_hash_size_bits",
                        static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(group.total_rows)))},
                       {"pooling_mode", kSum},
                       {"uvm_cache_stats", at::empty({0}, options.dtype(at::kInt))},
                       {"is_experimental", false},
                       {"output_dtype", kFp32},
                       {"BT_block_size", int64_t{32}},
                       {"max_segment_length_per_warp", int64_t{32}},
                       {"use_uniq_cache_locations", false},
                       {"use_homogeneous_placements", true},
                       {"stochastic_rounding", o.stochastic_rounding && dtype != spec::TableDtype::kFp32},
                       {"eps", o.eps},
                       {"beta1", o.beta1},
                       {"beta2", o.beta2},
                       {"weight_decay", o.weight_decay},
                       {"weight_decay_mode", o.weight_decay != 0 ? kL2 : 0},
                       {"max_norm", 0.0},
                       {"use_rowwise_bias_correction", false}});
  if (cached) make_cache(group);
  groups_.push_back(std::move(group));
}

void FbgemmTables::make_cache(Group& group) {
  const auto options = at::TensorOptions().device(device_);
  const auto wanted =
      static_cast<int64_t>(static_cast<double>(group.total_rows) * placement_.cache_load_factor);
  const int64_t sets = std::max<int64_t>(1, (wanted + kWays - 1) / kWays);
  group.cache_state = at::full({sets, kWays}, -1, options.dtype(at::kLong));
  group.lru_state = at::zeros({sets, kWays}, options.dtype(at::kLong));
  group.cache_weights = at::zeros({sets * kWays, group.max_dim}, options.dtype(group.weights.scalar_type()));
  group.cache_begins = group.layout.at("hash_size_cumsum").toTensor();
  // Which feature has the rows: of several of a table, the last.
  std::vector<Tensor> map;
  for (size_t i = 0; i < group.features.size(); ++i) {
    const size_t t = table_of(group.features[i]);
    if (i + 1 < group.features.size() && table_of(group.features[i + 1]) == t) continue;
    map.push_back(at::full({config_.tables[t].rows}, static_cast<int64_t>(i), options.dtype(at::kInt)));
  }
  group.cache_map = at::cat(map);
  group.layout["lxu_cache_weights"] = group.cache_weights;
}

}  // namespace

std::string fbgemm_fault(const TablesConfig& config, at::Device device) {
  const TableOptimizer& o = config.optimizer;
  using enum spec::TableOptimizerType;
  if (device.is_cpu() && o.type == kAdam) return "fbgemm has no Adam on a CPU";
  if (o.weight_decay != 0 && (device.is_cpu() || o.type == kAdagrad || o.type == kSgd)) {
    return fmt::format("fbgemm has no weight decay for {} {}", name_of(o.type),
                       device.is_cpu() ? "on a CPU" : "on a GPU");
  }
  for (const Table& table : config.tables) {
    if (table.dtype == spec::TableDtype::kBf16)
      return fmt::format("fbgemm has no bf16 tables; table {} is one", table.name);
    if (device.is_cpu() && rounds_stochastically(table, o)) {
      return fmt::format(
          "fbgemm has no stochastic rounding on a CPU, for table {} of fp16; set "
          "model.recommender.embedding_optimizer.stochastic_rounding: false",
          table.name);
    }
    if (device.is_cuda() && table.dim % 4 != 0)
      return fmt::format("fbgemm needs columns in fours on a GPU; table {} has {}", table.name, table.dim);
  }
  return load_fbgemm(device);
}

std::unique_ptr<Tables> make_fbgemm_tables(TablesConfig config, at::Device device,
                                           const Placement& placement) {
  if (const std::string fault = fbgemm_fault(config, device); !fault.empty()) {
    fail<SpecError>("model.recommender.embedding_backend: {}", fault);
  }
  return std::make_unique<FbgemmTables>(std::move(config), device, placement);
}

}  // namespace trainer::embedding
