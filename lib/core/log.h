#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace trainer {

// Lines for people, on standard output (information) and standard error (warnings, errors). Each line is
// written by one write(2), so lines of several threads or processes never tear.
void write_line(int fd, std::string_view text);

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  write_line(1, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  write_line(2, "warning: " + fmt::format(format, std::forward<Args>(args)...));
}

// A status is one line that replaces the last status: the progress bar. A worker writes it as "\r<text>\n" on
// standard output; the agent draws it in place on a terminal and never writes it to a log file.
constexpr char kStatusMark = '\r';

}  // namespace trainer
