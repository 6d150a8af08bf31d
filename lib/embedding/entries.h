#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "embedding/backends.h"
#include "embedding/cpu/kernels.h"

// The ids of a step, by table and row, as the update kernels take them. Item is Entry or WeightedEntry.

namespace trainer::embedding {

// Memory that is kept from step to step.
class EntryMemory {
 public:
  void* get(size_t bytes);

 private:
  std::unique_ptr<std::byte[]> data_;
  size_t size_ = 0;
};

// A table's entries lie in parts, by the lowest bits of their rows, for several threads. How many there are follows from the number of
// entries, never from the threads. In a part they are in order of lookup, feature and id until sort_part() orders them by row.
template <class Item>
struct TableEntries {
  std::vector<Slot> slots;
  int row_shift = 0, slot_shift = 0, part_bits = 0, row_bits = 0;
  std::vector<std::span<Item>> parts;
};

// Entries of every table, in `memory`.
template <class Item>
std::vector<TableEntries<Item>> collect_entries(const TablesConfig& config, std::span<const Lookup> lookups,
                                                std::span<const at::Tensor> gradients, EntryMemory& memory);

// Orders a part by row; rows' entries stay in their order.
template <class Item>
void sort_part(const TableEntries<Item>& table, std::span<Item> part);

}  // namespace trainer::embedding
