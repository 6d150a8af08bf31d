#include "tokens/megatron.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace trainer::tokens {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr size_t kHeader = 9 + 8 + 1 + 8 + 8;

}  // namespace

template <class T>
T MegatronIndex::at(size_t offset) const {  // nothing in the file is aligned
  T value;
  std::memcpy(&value, file_.bytes().data() + offset, sizeof value);
  return value;
}

MegatronIndex::MegatronIndex(const std::filesystem::path& path) : path_(path.string()), file_(path) {
  const std::string_view bytes = file_.bytes();
  if (!bytes.starts_with(kMagic)) {
    fail<DataError>("{}: is not an index of Megatron: got {}; expected MMIDIDX at its beginning", path_,
                    bytes.size() < kMagic.size() ? "a shorter file" : "other bytes");
  }
  if (bytes.size() < kHeader)
    fail<DataError>("{}: truncated: {} bytes, expected at least {}", path_, bytes.size(), kHeader);
  if (const auto version = at<uint64_t>(9); version != 1) {
    fail<DataError>("{}: got version {}; expected 1", path_, version);
  }
  const auto code = at<uint8_t>(17);
  type_ = static_cast<TokenType>(code);
  if (code == 6 || code == 7)
    fail<DataError>("{}: got ids of a floating-point type (code {}); expected integers", path_, code);
  if (code < 1 || code > 8) fail<DataError>("{}: got type code {}; expected 1 to 5 or 8", path_, code);

  const auto sequences = at<uint64_t>(18), entries = at<uint64_t>(26);
  constexpr uint64_t kMost = uint64_t{1} << 48;  // so that no product overflows
  if (sequences > kMost || entries > kMost || entries < 1 ||
      bytes.size() < kHeader + sequences * 12 + entries * 8) {
    fail<DataError>(
        "{}: truncated: {} bytes, expected at least {} for {} sequences and {} entries of documents", path_,
        bytes.size(), kHeader + sequences * 12 + entries * 8, sequences, entries);
  }
  num_sequences_ = static_cast<int64_t>(sequences);
  num_documents_ = static_cast<int64_t>(entries) - 1;
  pointers_ = kHeader + sequences * 4;
  documents_ = pointers_ + sequences * 8;

  const int64_t width = size_of(type_);
  for (int64_t s = 0; s < num_sequences_; ++s) {
    const auto length = at<int32_t>(kHeader + static_cast<size_t>(s) * 4);
    const auto pointer = at<int64_t>(pointers_ + static_cast<size_t>(s) * 8);
    if (length < 0 || pointer != num_tokens_ * width) {
      fail<DataError>(
          "{}: sequence {}: got {} tokens at byte {}; expected them at byte {}, behind the one before", path_,
          s, length, pointer, num_tokens_ * width);
    }
    num_tokens_ += length;
  }
  int64_t before = 0;
  for (int64_t i = 0; i <= num_documents_; ++i) {
    const int64_t sequence = document(i);
    if (sequence < before || sequence > num_sequences_ || (i == 0 && sequence != 0)) {
      fail<DataError>("{}: document {}: got sequence {}; expected {} to {}", path_, i, sequence, before,
                      i == 0 ? 0 : num_sequences_);
    }
    before = sequence;
  }
}

int64_t MegatronIndex::document(int64_t i) const {
  return at<int64_t>(documents_ + static_cast<size_t>(i) * 8);
}

int64_t MegatronIndex::start(int64_t i) const {
  const int64_t sequence = document(i);
  if (sequence == num_sequences_) return num_tokens_;
  return at<int64_t>(pointers_ + static_cast<size_t>(sequence) * 8) / size_of(type_);
}

void write_megatron_index(const std::filesystem::path& path, TokenType type,
                          std::span<const int64_t> document_lengths) {
  constexpr int64_t kMost = INT32_MAX;
  std::vector<int32_t> lengths;
  std::vector<int64_t> documents = {0};
  for (int64_t length : document_lengths) {
    for (; length > kMost; length -= kMost) lengths.push_back(INT32_MAX);
    lengths.push_back(static_cast<int32_t>(length));
    documents.push_back(static_cast<int64_t>(lengths.size()));
  }
  std::ofstream out(path, std::ios::binary);
  const auto put = [&](auto value) { out.write(reinterpret_cast<const char*>(&value), sizeof value); };
  out << kMagic;
  put(uint64_t{1});
  put(static_cast<uint8_t>(type));
  put(uint64_t{lengths.size()});
  put(uint64_t{documents.size()});
  for (const int32_t length : lengths) put(length);
  int64_t pointer = 0;
  for (const int32_t length : lengths) {
    put(pointer);
    pointer += length * size_of(type);
  }
  for (const int64_t document : documents) put(document);
  if (!out.flush()) fail<DataError>("{}: cannot write: {}", path.string(), std::strerror(errno));
}

TokenPart open_megatron(const std::filesystem::path& bin) {
  auto idx = bin;
  if (!std::filesystem::exists(idx.replace_extension(".idx"))) {
    fail<DataError>(
        "{}: has no {} beside it; expected both files of the pair\nhint: name what both begin with, or make "
        "them from "
        "texts with trainer prepare",
        bin.string(), idx.filename().string());
  }
  const auto index = std::make_shared<const MegatronIndex>(idx);
  auto file = std::make_shared<const MappedFile>(bin);
  const auto size = static_cast<int64_t>(file->bytes().size());
  const int64_t expected = index->num_tokens() * size_of(index->type());
  if (size != expected) {
    fail<DataError>("{}: {}: {} bytes, expected {}: {} tokens of {} bytes, as its index says", bin.string(),
                    size < expected ? "truncated" : "of another index", size, expected, index->num_tokens(),
                    size_of(index->type()));
  }
  const void* ids = file->bytes().data();
  return {bin.string(), std::move(file), ids, index->type(), index->num_tokens(), index};
}

}  // namespace trainer::tokens
