#include "embedding/entries.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/math.h"
#include "embedding/storage.h"
#include "kernels/parallel.h"

namespace trainer::embedding {
namespace {

constexpr int64_t kIdsPerChunk = 8192;  // of one slot, read by one thread; about as many entries are a part
constexpr int64_t kMaxParts = 256;
constexpr int kDigitBits = 11;       // of radix sort, at most: its counters stay in the first-level cache
constexpr size_t kFewEntries = 192;  // are sorted by comparison

// Consecutive ids of a feature in a lookup.
struct Chunk {
  size_t table;
  uint64_t slot;
  const Lookup* lookup;
  int64_t first_bag, begin, end;
  size_t positions;  // of its first part's: where its next entry of each part goes
};

template <class Item>
Item make_entry(uint64_t key, const float* weights, int64_t id) {
  if constexpr (std::is_same_v<Item, WeightedEntry>) {
    return {key, weights == nullptr ? 1.0F : weights[id]};
  } else {
    return {key};
  }
}

int bits_of(int64_t count) {  // for numbers below count
  return count <= 1 ? 0 : std::bit_width(static_cast<uint64_t>(count - 1));
}

// The chunks of all features, by table.
template <class Item>
std::vector<Chunk> plan(const TablesConfig& config, std::span<const Lookup> lookups,
                        std::span<const at::Tensor> gradients, std::vector<TableEntries<Item>>& tables,
                        std::vector<int64_t>& totals) {
  const std::vector<int64_t> columns = feature_columns(config);
  int64_t most = 0;
  for (const Lookup& lookup : lookups) most = std::max(most, lookup.batch);
  std::vector<std::vector<size_t>> features(tables.size());
  for (size_t f = 0; f < config.feature_tables.size(); ++f) {
    features[static_cast<size_t>(config.feature_tables[f])].push_back(f);
  }
  std::vector<Chunk> chunks;
  for (size_t t = 0; t < tables.size(); ++t) {
    TableEntries<Item>& table = tables[t];
    table.slot_shift = bits_of(most);
    table.row_shift = table.slot_shift + bits_of(static_cast<int64_t>(features[t].size() * lookups.size()));
    table.row_bits = bits_of(config.tables[t].rows);
    for (size_t l = 0; l < lookups.size(); ++l) {
      const auto* offsets = lookups[l].offsets.const_data_ptr<int64_t>();
      for (const size_t f : features[t]) {
        const int64_t bag = static_cast<int64_t>(f) * lookups[l].batch;
        const int64_t end = offsets[bag + lookups[l].batch];
        for (int64_t i = offsets[bag]; i < end; i += kIdsPerChunk) {
          chunks.push_back({t, table.slots.size(), &lookups[l], bag, i, std::min(end, i + kIdsPerChunk), 0});
        }
        totals[t] += end - offsets[bag];
        table.slots.push_back({gradients[l].const_data_ptr<float>() + columns[f], columns.back()});
      }
    }
    const int64_t parts = std::clamp<int64_t>(totals[t] / kIdsPerChunk, 1, kMaxParts);
    table.part_bits = std::min(bits_of(parts), table.row_bits);
  }
  return chunks;
}

}  // namespace

void* EntryMemory::get(size_t bytes) {
  if (size_ < bytes) {
    size_ = bytes + bytes / 4;
    data_ = std::make_unique_for_overwrite<std::byte[]>(size_);
  }
  return data_.get();
}

template <class Item>
std::vector<TableEntries<Item>> collect_entries(const TablesConfig& config, std::span<const Lookup> lookups,
                                                std::span<const at::Tensor> gradients, EntryMemory& memory) {
  std::vector<TableEntries<Item>> tables(config.tables.size());
  std::vector<int64_t> totals(tables.size(), 0);
  std::vector<Chunk> chunks = plan(config, lookups, gradients, tables, totals);

  // How many entries of each part a chunk has, then where they go.
  size_t num_positions = 0;
  for (Chunk& chunk : chunks) {
    chunk.positions = num_positions;
    num_positions += size_t{1} << tables[chunk.table].part_bits;
  }
  std::vector<int64_t> positions(num_positions, 0);
  kernels::parallel_items(static_cast<int64_t>(chunks.size()), [&](int64_t c) {
    const Chunk& chunk = chunks[static_cast<size_t>(c)];
    int64_t* counts = positions.data() + chunk.positions;
    const int part_bits = tables[chunk.table].part_bits;
    if (part_bits == 0) {
      *counts = chunk.end - chunk.begin;
      return;
    }
    const auto* ids = chunk.lookup->ids.const_data_ptr<int64_t>();
    const int64_t mask = (int64_t{1} << part_bits) - 1;
    for (int64_t i = chunk.begin; i < chunk.end; ++i) ++counts[ids[i] & mask];
  });
  int64_t total = 0;
  for (const int64_t count : totals) total += count;
  auto* items = static_cast<Item*>(memory.get(static_cast<size_t>(total) * sizeof(Item)));
  int64_t next = 0;
  for (size_t t = 0, c = 0; t < tables.size(); ++t) {
    size_t last = c;
    while (last < chunks.size() && chunks[last].table == t) ++last;
    for (size_t part = 0; part < size_t{1} << tables[t].part_bits; ++part) {
      const int64_t begin = next;
      for (size_t i = c; i < last; ++i) {
        int64_t& position = positions[chunks[i].positions + part];
        next += std::exchange(position, next);
      }
      tables[t].parts.emplace_back(items + begin, static_cast<size_t>(next - begin));
    }
    c = last;
  }

  kernels::parallel_items(static_cast<int64_t>(chunks.size()), [&](int64_t c) {
    const Chunk& chunk = chunks[static_cast<size_t>(c)];
    const TableEntries<Item>& table = tables[chunk.table];
    const Lookup& lookup = *chunk.lookup;
    const auto* ids = lookup.ids.const_data_ptr<int64_t>();
    const float* weights = lookup.weights.defined() ? lookup.weights.const_data_ptr<float>() : nullptr;
    const int64_t* offsets = lookup.offsets.const_data_ptr<int64_t>() + chunk.first_bag;
    int64_t* places = positions.data() + chunk.positions;
    const int64_t mask = (int64_t{1} << table.part_bits) - 1;
    int64_t bag = std::upper_bound(offsets, offsets + lookup.batch + 1, chunk.begin) - offsets - 1;
    for (int64_t i = chunk.begin; i < chunk.end; ++i) {
      while (i >= offsets[bag + 1]) ++bag;
      const auto row = static_cast<uint64_t>(ids[i]);
      const uint64_t key =
          row << table.row_shift | chunk.slot << table.slot_shift | static_cast<uint64_t>(bag);
      items[places[ids[i] & mask]++] = make_entry<Item>(key, weights, i);
    }
  });
  return tables;
}

template <class Item>
void sort_part(const TableEntries<Item>& table, std::span<Item> part) {
  const size_t n = part.size();
  if (n <= kFewEntries) {
    std::stable_sort(part.begin(), part.end(), [&](const Item& a, const Item& b) {
      return a.key >> table.row_shift < b.key >> table.row_shift;
    });
    return;
  }
  // Radix sort from the lowest digit; a part's rows have the same lowest part_bits.
  const int bits = table.row_bits - table.part_bits, passes = static_cast<int>(ceil_div(bits, kDigitBits));
  if (passes == 0) return;
  const auto digit_bits = static_cast<int>(ceil_div(bits, passes));
  const size_t digits = size_t{1} << digit_bits;
  thread_local EntryMemory memory;
  Item *from = part.data(), *to = static_cast<Item*>(memory.get(n * sizeof(Item)));
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = table.row_shift + table.part_bits + pass * digit_bits;
    const auto digit = [&](const Item& item) { return item.key >> shift & (digits - 1); };
    uint32_t starts[(size_t{1} << kDigitBits) + 1] = {};
    for (size_t i = 0; i < n; ++i) ++starts[digit(from[i]) + 1];
    for (size_t d = 1; d < digits; ++d) starts[d] += starts[d - 1];
    for (size_t i = 0; i < n; ++i) to[starts[digit(from[i])]++] = from[i];
    std::swap(from, to);
  }
  if (from != part.data()) std::memcpy(part.data(), from, n * sizeof(Item));
}

template std::vector<TableEntries<Entry>> collect_entries(const TablesConfig&, std::span<const Lookup>,
                                                          std::span<const at::Tensor>, EntryMemory&);
template std::vector<TableEntries<WeightedEntry>> collect_entries(const TablesConfig&,
                                                                  std::span<const Lookup>,
                                                                  std::span<const at::Tensor>, EntryMemory&);
template void sort_part(const TableEntries<Entry>&, std::span<Entry>);
template void sort_part(const TableEntries<WeightedEntry>&, std::span<WeightedEntry>);

}  // namespace trainer::embedding
