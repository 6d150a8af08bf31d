#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "spec/fault.h"
#include "spec/job_spec.h"

namespace trainer {

// Faults by key, told at the place where the key's value was said; else in the file as a whole.
class JobFaults {
 public:
  explicit JobFaults(spec::Said said) : said_(std::move(said)), faults_(said_.file) {}

  template <class... Args>
  void add(const std::string& key, fmt::format_string<Args...> format, Args&&... args) {
    const auto place = said_.places.find(key);
    faults_.add(place != said_.places.end() ? place->second : spec::Place{0, 0, 0, said_.file}, key,
                fmt::format(format, std::forward<Args>(args)...));
  }
  std::string where(const std::string& key) const {
    const auto place = said_.places.find(key);
    return place != said_.places.end() ? place->second.where : said_.file;
  }
  // A line for Job::warnings.
  std::string warning(const std::string& key, const std::string& text) const {
    const std::string place = where(key);
    return (place.empty() ? "" : place + ": ") + key + ": " + text;
  }
  void throw_if_any() const { faults_.throw_if_any(); }

 private:
  const spec::Said said_;
  spec::Faults faults_;
};

}  // namespace trainer
