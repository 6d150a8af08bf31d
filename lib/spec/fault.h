#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "spec/job_spec.h"

namespace trainer::spec {

// Collects every fault of a spec, so that people see them together.
class Faults {
 public:
  // `file` is what the last line counts faults in; empty: "the job spec".
  explicit Faults(std::string file) : file_(std::move(file)) {}

  // `message`: what was got; what is expected. `key`: its full name, empty for a fault of the file itself.
  void add(const Place& place, std::string_view key, std::string_view message);
  bool empty() const { return faults_.empty(); }
  // Throws SpecError with one fault a line, sorted by place, and a last line that counts them.
  void throw_if_any() const;

 private:
  struct Fault {
    Place place;
    std::string line;
  };
  std::string file_;
  std::vector<Fault> faults_;
};

// The candidate nearest to `word` by edit distance (a swap of neighbours counts as one), empty when none is
// near enough to be what was meant.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates);
// "; did you mean x?" with the nearest, or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates);

// Text as messages show it: numbers bare, everything else in quotes, without control characters, at most 60
// characters.
std::string shown(std::string_view text);

}  // namespace trainer::spec
