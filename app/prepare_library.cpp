// libtrainer_prepare.so: tokenizers are linked to ICU, which the executable is to start without.

#include <atomic>
#include <csignal>

#include "core/log.h"
#include "records/prepare.h"
#include "report_error.h"
#include "tokens/prepare.h"
#include "torch_library.h"

namespace {

std::atomic<bool> stop = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // a handler's to set
volatile std::sig_atomic_t stopped_by = 0;

// The first signal stops what may take hours cleanly; a second one ends it at once.
void stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int number) {
    stopped_by = number;
    stop = true;
  };
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    if (::sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_DFL)  // nohup ignores its own
      ::sigaction(number, &action, nullptr);
  }
}

// `prepare` with the signals' flag; the exit code.
template <class Prepare>
int guarded(const std::string& output, const Prepare& prepare) {
  try {
    stop_on_signals();
    if (prepare()) return 0;
    trainer::write_line(
        2, fmt::format("stopped by signal {}: nothing of {} is written, what was there is as it was",
                       static_cast<int>(stopped_by), output));
    constexpr int kSignal = 128;
    return kSignal + stopped_by;
  } catch (...) {
    return trainer::app::report_error();
  }
}

}  // namespace

extern "C" int trainer_prepare_main(const trainer::tokens::PrepareOptions* options) noexcept {
  return guarded(options->output, [&] { return trainer::tokens::prepare(*options, stop); });
}

extern "C" int trainer_prepare_records_main(const trainer::records::PrepareOptions* options) noexcept {
  return guarded(options->output, [&] { return trainer::records::prepare(*options, stop); });
}

extern "C" int trainer_prepare_synthetic_main(const trainer::records::SyntheticOptions* options) noexcept {
  return guarded(options->output, [&] { return trainer::records::prepare_synthetic(*options, stop); });
}
