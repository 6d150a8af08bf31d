#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace trainer::report {

// Why a worker failed, as it tells its agent: torchelastic's error file, with fields of our own that torchrun
// ignores.
struct ErrorReport {
  std::string message;     // "data error: train.tsv:7: ..."; may have several lines
  double timestamp_s = 0;  // since the epoch
  std::optional<int64_t> step;
};

// {"message":{"message":...,"extraInfo":{"py_callstack":"","timestamp":"...","step":...}}}, by temporary file
// and rename: torchrun's agent crashes on half a file. Never throws: it is called while another error is
// reported.
void write_error_file(const std::filesystem::path& path, const ErrorReport& report) noexcept;

// Also accepts {"message":"text","timestamp":N}. C++ symbols in the message are made readable. Nothing when the file is
// missing, malformed, no plain file or larger than 16 MiB.
std::optional<ErrorReport> read_error_file(const std::filesystem::path& path);

}  // namespace trainer::report
