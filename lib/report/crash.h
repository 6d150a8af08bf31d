#pragma once

#include "report/progress.h"

namespace trainer::report {

// From now on this process says why it dies when nobody can catch it: on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT,
// and on an exception that leaves a thread, it writes to standard error and to the error file (TORCHELASTIC_ERROR_FILE):
// what happened, the step and phase of `page`, the native stack of the thread. Then it dies of the signal, with a core
// dump where those are on. An exception of ours that leaves a thread ends the process with its exit code.
//
// Signals that somebody else handles or ignores already are left alone. A stack that overflowed is reported for the
// calling thread, the main one, only. Call it once; `page` must stay.
void report_crashes(const ProgressPage& page);

}  // namespace trainer::report
