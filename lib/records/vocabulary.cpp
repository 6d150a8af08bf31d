#include "records/vocabulary.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/error.h"
#include "core/file.h"
#include "core/mix64.h"
#include "records/fingerprint.h"

namespace trainer::records {
namespace {

uint64_t hash_of(std::string_view text) {
  uint64_t hash = text.size(), word = 0;
  for (; text.size() > sizeof word; text.remove_prefix(sizeof word)) {
    std::memcpy(&word, text.data(), sizeof word);
    hash = mix64(hash ^ word);
  }
  word = 0;
  std::memcpy(&word, text.data(), text.size());
  return mix64(hash ^ word);
}

constexpr uint32_t kMostStrings = UINT32_MAX - 1;

}  // namespace

size_t StringIndex::slot_of(std::string_view text, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.number == 0 || (slot.tag == tag && (*this)[slot.number - 1] == text)) return i;
  }
}

std::string_view StringIndex::operator[](int64_t number) const {
  const auto i = static_cast<size_t>(number);
  const uint64_t begin = i == 0 ? 0 : ends_[i - 1];
  return {bytes_.data() + begin, ends_[i] - begin};
}

int64_t StringIndex::find(std::string_view text) const {
  if (slots_.empty()) return kNone;
  return static_cast<int64_t>(slots_[slot_of(text, hash_of(text))].number) - 1;
}

int64_t StringIndex::add(std::string_view text) {
  if ((ends_.size() + 1) * 4 > slots_.size() * 3) grow();
  const uint64_t hash = hash_of(text);
  Slot& slot = slots_[slot_of(text, hash)];
  if (slot.number == 0) {
    if (ends_.size() >= kMostStrings) fail<DataError>("more than {} different ids in a table", kMostStrings);
    bytes_ += text;
    ends_.push_back(bytes_.size());
    slot = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(ends_.size())};
  }
  return static_cast<int64_t>(slot.number) - 1;
}

void StringIndex::grow() {
  constexpr size_t kFirst = 64;
  slots_.assign(std::max(slots_.size() * 2, kFirst), {});
  for (size_t i = 0; i < ends_.size(); ++i) {
    const uint64_t hash = hash_of((*this)[static_cast<int64_t>(i)]);
    const size_t mask = slots_.size() - 1;
    size_t at = hash & mask;
    while (slots_[at].number != 0) at = (at + 1) & mask;
    slots_[at] = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(i + 1)};
  }
}

int64_t StringIndex::memory_bytes() const {
  return static_cast<int64_t>(slots_.size() * sizeof(Slot) + ends_.size() * sizeof(uint64_t) + bytes_.size());
}

void IdCounts::add(std::string_view id, int64_t times) {
  const auto number = static_cast<size_t>(ids_.add(id));
  if (number == counts_.size()) counts_.push_back(0);
  counts_[number] += times;
}

void IdCounts::merge(const IdCounts& other) {
  for (int64_t i = 0; i < other.size(); ++i) add(other.id(i), other.count(i));
}

Vocabulary::Vocabulary(const IdCounts& counts, int64_t min_count, int64_t most) {
  std::vector<uint32_t> order;
  for (int64_t i = 0; i < counts.size(); ++i) {
    if (counts.count(i) >= min_count) order.push_back(static_cast<uint32_t>(i));
  }
  const auto before = [&](uint32_t a, uint32_t b) {
    if (counts.count(a) != counts.count(b)) return counts.count(a) > counts.count(b);
    return counts.id(a) < counts.id(b);
  };
  if (static_cast<size_t>(most) < order.size()) {
    std::nth_element(order.begin(), order.begin() + most, order.end(), before);
    order.resize(static_cast<size_t>(most));
  }
  std::sort(order.begin(), order.end(), before);
  for (const uint32_t i : order) ids_.add(counts.id(i));
}

void Vocabulary::save(const std::filesystem::path& file) const {
  std::string text;
  for (int64_t row = 1; row < rows(); ++row) {
    for (const char c : id(row)) {
      if (c == '\n' || c == '\r' || c == '\\') text += '\\';
      text += c == '\n' ? 'n' : c == '\r' ? 'r' : c;
    }
    text += '\n';
  }
  write_file_atomic(file, text);
}

Vocabulary Vocabulary::load(const std::filesystem::path& file, int64_t rows) {
  const MappedFile mapped(file);
  std::string_view text = mapped.bytes();
  Vocabulary vocabulary;
  std::string id;
  int64_t line = 0;
  while (!text.empty()) {
    ++line;
    const size_t stop = std::min(text.find('\n'), text.size());
    id.clear();
    for (size_t i = 0; i < stop; ++i) {
      char c = text[i];
      if (c == '\\' && i + 1 < stop) {
        c = text[++i];
        c = c == 'n' ? '\n' : c == 'r' ? '\r' : c;
      }
      id += c;
    }
    if (vocabulary.ids_.add(id) != line - 1)
      fail<DataError>("{}:{}: this id is here twice", file.string(), line);
    text.remove_prefix(std::min(stop + 1, text.size()));
  }
  if (vocabulary.rows() != rows) {
    fail<DataError>("{}: has {} ids, expected {}, as features.json says", file.string(), line, rows - 1);
  }
  return vocabulary;
}

uint64_t Vocabulary::fingerprint() const {
  Fingerprint print;
  for (int64_t row = 1; row < rows(); ++row) print.add(id(row));
  return print.value();
}

}  // namespace trainer::records
