#include <string_view>

#include "embedding/cpu/kernels.h"
#include "kernels/cpu/kernels.h"

namespace trainer::embedding {

namespace baseline {
extern const EmbeddingKernels kKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const EmbeddingKernels kKernels;
}
namespace avx512 {
extern const EmbeddingKernels kKernels;
}
#endif

const EmbeddingKernels& embedding_kernels() {
#if defined(__x86_64__)
  const std::string_view isa = kernels::cpu_kernels().isa;
  if (isa.starts_with("avx512")) return avx512::kKernels;  // avx512_bf16 too: it has nothing for rows
  // Every CPU with AVX2 and FMA has F16C.
  if (isa == "avx2") return avx2::kKernels;
#endif
  return baseline::kKernels;
}

}  // namespace trainer::embedding
