#pragma once

#include "core/math.h"
#include "kernels/parallel.h"

// A matrix product as two lists of work items for threads: panels of B to pack, then tiles to multiply.

namespace trainer::kernels {

template <class T>
class Product {
 public:
  // B's panels lie in this thread's scratch memory of `slot`.
  Product(const GemmParams<T>& params, ScratchSlot slot) : params_(params) {
    const CpuKernels& kernels = cpu_kernels();
    num_panels_ = ceil_div(params.n, kernels.panel_columns);
    num_strips_ = ceil_div(params.m, kernels.strip_rows);
    panel_size_ = kernels.panel_columns * kernels.of<T>().steps(params.k);
    panels_ = scratch(slot, num_panels_ * panel_size_);
    params_.b_panels = panels_;
    tile_strips_ = num_strips_ * num_panels_ < 1024 ? 4 : 12;  // enough tiles for threads to end together
    tiles_down_ = ceil_div(num_strips_, tile_strips_);
  }

  int64_t num_panels() const { return num_panels_; }
  float* panel(int64_t i) const { return panels_ + i * panel_size_; }

  int64_t num_tiles() const { return tiles_down_ * ceil_div(num_panels_, kTilePanels); }
  void multiply_tile(int64_t tile) const {
    const int64_t strip = tile % tiles_down_ * tile_strips_, first = tile / tiles_down_ * kTilePanels;
    cpu_kernels().of<T>().gemm(params_, strip, std::min(num_strips_, strip + tile_strips_), first,
                               std::min(num_panels_, first + kTilePanels));
  }

 private:
  static constexpr int64_t kTilePanels = 6;
  GemmParams<T> params_;
  float* panels_;
  int64_t num_panels_, num_strips_, panel_size_, tile_strips_, tiles_down_;
};

}  // namespace trainer::kernels
