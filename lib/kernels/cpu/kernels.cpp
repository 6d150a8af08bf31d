// Compiled once for every instruction set: TRAINER_CPU_ISA is its name, and the namespace of all of it.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/few_rows.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/interaction.h"
#include "kernels/cpu/layer_norm.h"
#include "kernels/cpu/pre_norm.h"

#define TRAINER_STRING(x) #x
#define TRAINER_NAME(x) TRAINER_STRING(x)

namespace trainer::kernels::TRAINER_CPU_ISA {

template <class T>
constexpr TypedKernels<T> typed() {
  return {.layer_norm_forward = layer_norm_forward<T>,
          .layer_norm_backward = layer_norm_backward<T>,
          .pre_norm_forward = pre_norm_forward<T>,
          .pre_norm_backward = pre_norm_backward<T>,
          .dropout = dropout<T>,
          .activation_backward = activation_backward<T>,
          .swiglu_forward = swiglu_forward<T>,
          .swiglu_backward = swiglu_backward<T>,
          .cross_entropy = cross_entropy<T>,
          .interaction_forward = interaction_forward<T>,
          .interaction_backward = interaction_backward<T>,
          .pack_weight = pack_weight<T>,
          .pack_weight_transposed = pack_weight_transposed<T>,
          .pack_activations = pack_activations<T>,
          .pack_strip = pack_strip<T>,
          .gemm = gemm<T>,
          .multiply_few_rows = multiply_few_rows<T>,
          .steps_of_two = kPairs<T>,
          .attention_forward = attention_forward<T>,
          .attention_backward = attention_backward<T>};
}

extern const CpuKernels kKernels;
const CpuKernels kKernels = {TRAINER_NAME(TRAINER_CPU_ISA), kPanelColumns,  kStripRows,   attention_scratch,
                             interaction_scratch,           typed<float>(), typed<Bf16>()};

}  // namespace trainer::kernels::TRAINER_CPU_ISA
