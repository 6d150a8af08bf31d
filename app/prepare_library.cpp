// libtrainer_prepare.so: tokenizers are linked to ICU, which the executable is to start without.

#include "report_error.h"
#include "tokens/prepare.h"
#include "torch_library.h"

extern "C" int trainer_prepare_main(const trainer::tokens::PrepareOptions* options) noexcept {
  try {
    trainer::tokens::prepare(*options);
    return 0;
  } catch (...) {
    return trainer::app::report_error();
  }
}
