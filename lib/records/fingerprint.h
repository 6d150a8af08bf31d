#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/mix64.h"

namespace trainer::records {

// A hash of values in their order.
class Fingerprint {
 public:
  void add(uint64_t value) { hash_ = mix64(hash_ ^ value); }
  void add(std::string_view bytes) {
    add(bytes.size());
    uint64_t word = 0;
    for (; bytes.size() >= sizeof word; bytes.remove_prefix(sizeof word)) {
      std::memcpy(&word, bytes.data(), sizeof word);
      add(word);
    }
    word = 0;
    std::memcpy(&word, bytes.data(), bytes.size());
    if (!bytes.empty()) add(word);
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0;
};

}  // namespace trainer::records
