#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"
#include "kernels/cpu/kernels.h"

namespace trainer::kernels {

namespace baseline {
extern const CpuKernels kKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const CpuKernels kKernels;
}
namespace avx512 {
extern const CpuKernels kKernels;
}
namespace avx512_bf16 {
extern const CpuKernels kKernels;
}
#endif

// What this CPU can run, the best last.
static std::vector<const CpuKernels*> available() {
  std::vector<const CpuKernels*> tables{&baseline::kKernels};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) tables.push_back(&avx2::kKernels);
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx512) tables.push_back(&avx512::kKernels);
  if (has_avx512 && __builtin_cpu_supports("avx512bf16")) tables.push_back(&avx512_bf16::kKernels);
#endif
  return tables;
}

const CpuKernels& select_kernels(const char* wanted) {
  const auto tables = available();
  if (wanted == nullptr || *wanted == '\0') return *tables.back();
  std::string names;
  for (const CpuKernels* table : tables) {
    if (std::string(table->isa) == wanted) return *table;
    names += (names.empty() ? "" : ", ") + std::string(table->isa);
  }
  fail<SpecError>("TRAINER_CPU_ISA: got \"{}\"; this CPU has {}", wanted, names);
}

const CpuKernels& cpu_kernels() {
  static const CpuKernels& kernels = select_kernels(std::getenv("TRAINER_CPU_ISA"));
  return kernels;
}

}  // namespace trainer::kernels
