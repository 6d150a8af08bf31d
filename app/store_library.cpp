// libtrainer_store.so: the job's TCPStore, which an agent runs as a process of its own. Apart from libtrainer_torch.so so
// that it starts without the models and kernels.

#include "dist/store_host.h"
#include "report_error.h"
#include "torch_library.h"

extern "C" int trainer_store_main(int listening_fd) noexcept {
  try {
    trainer::dist::serve_store(listening_fd);
  } catch (...) {
    return trainer::app::report_error();
  }
}
