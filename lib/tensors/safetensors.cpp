#include "tensors/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "core/crc32c.h"
#include "core/descriptor.h"
#include "core/error.h"

namespace trainer::tensors {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
constexpr size_t kDataAlignment = 64;

constexpr std::pair<const char*, at::ScalarType> kDtypes[] = {
    {"F32", at::kFloat}, {"F16", at::kHalf}, {"BF16", at::kBFloat16}, {"F64", at::kDouble},
    {"I64", at::kLong},  {"I32", at::kInt},  {"I16", at::kShort},     {"I8", at::kChar},
    {"U8", at::kByte},   {"BOOL", at::kBool}};

// The header's entry `name`; `where` is "file: tensor name".
TensorInfo parse_entry(const std::string& where, const Json& entry, size_t data_bytes) {
  const auto is_sizes = [](const Json& list) {
    return list.is_array() &&
           std::all_of(list.begin(), list.end(), [](const Json& n) { return n.is_number_unsigned(); });
  };
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !is_sizes(entry["shape"]) || !entry.contains("data_offsets") ||
      !is_sizes(entry["data_offsets"]) || entry["data_offsets"].size() != 2) {
    fail<CheckpointError>("{}: got {}; expected {{\"dtype\", \"shape\", \"data_offsets\": [begin, end]}}",
                          where, entry.dump().substr(0, 120));
  }
  const auto dtype = entry["dtype"].get<std::string>();
  const auto* known = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                   [&](const auto& candidate) { return dtype == candidate.first; });
  if (known == std::end(kDtypes)) {
    fail<CheckpointError>("{}: unknown dtype {}; expected F64, F32, F16, BF16, I64, I32, I16, I8, U8 or BOOL",
                          where, dtype);
  }
  TensorInfo info{known->second, {}, entry["data_offsets"][0], entry["data_offsets"][1]};
  if (info.begin > info.end || info.end > data_bytes) {
    fail<CheckpointError>(
        "{}: data_offsets [{}, {}] are out of range; the file has {} bytes of data (truncated?)", where,
        info.begin, info.end, data_bytes);
  }
  size_t bytes = at::elementSize(info.dtype);
  for (const Json& size : entry["shape"]) {
    info.shape.push_back(size.get<int64_t>());
    if (__builtin_mul_overflow(bytes, size.get<uint64_t>(), &bytes) || info.shape.back() < 0) {
      fail<CheckpointError>("{}: shape {} overflows", where, entry["shape"].dump());
    }
  }
  if (bytes != info.end - info.begin) {
    fail<CheckpointError>("{}: {} of shape {} takes {} bytes, but data_offsets [{}, {}] hold {}", where,
                          dtype, entry["shape"].dump(), bytes, info.begin, info.end, info.end - info.begin);
  }
  return info;
}

Json parse_header(const fs::path& path, std::string_view header) {
  std::set<std::string> names;
  const auto refuse_duplicates = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key && !names.insert(parsed.get<std::string>()).second) {
      fail<CheckpointError>("{}: tensor {} is in the header twice", path.string(), parsed.get<std::string>());
    }
    return true;
  };
  try {
    Json json = Json::parse(header, refuse_duplicates);
    if (json.is_object()) return json;
  } catch (const Json::exception& error) {
    fail<CheckpointError>("{}: the header is not JSON: {}", path.string(), error.what());
  }
  fail<CheckpointError>("{}: the header is not a JSON object", path.string());
}

// Appends to a new file, in pieces that are still in the cache when they are written.
class Writer {
 public:
  explicit Writer(const fs::path& path)
      : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (!fd_.is_open()) fail<CheckpointError>("{}: cannot write: {}", path.string(), std::strerror(errno));
  }
  void write(std::string_view bytes) {
    constexpr size_t kPiece = 1 << 18;
    for (; !bytes.empty(); bytes.remove_prefix(std::min(kPiece, bytes.size()))) {
      const std::string_view piece = bytes.substr(0, kPiece);
      written_.crc32c = trainer::crc32c(piece, written_.crc32c);
      if (!write_all(fd_.get(), piece))
        fail<CheckpointError>("{}: cannot write: {}", path_.string(), std::strerror(errno));
      written_.size_bytes += piece.size();
    }
  }
  void write(const at::Tensor& tensor) {
    constexpr size_t kMostCopied = 32 << 20;
    if (tensor.nbytes() == 0) return;
    const bool as_it_is = tensor.is_cpu() && tensor.is_contiguous();
    if (!as_it_is && tensor.dim() > 0 && tensor.size(0) > 1 && tensor.nbytes() > kMostCopied) {
      const size_t row_bytes = tensor.nbytes() / static_cast<size_t>(tensor.size(0));
      const auto rows = static_cast<int64_t>(std::max<size_t>(kMostCopied / row_bytes, 1));
      for (const at::Tensor& part : tensor.split(rows)) write(part.cpu().contiguous());
      return;
    }
    const at::Tensor host = as_it_is ? tensor : tensor.cpu().contiguous();
    write({static_cast<const char*>(host.const_data_ptr()), host.nbytes()});
  }
  const WrittenFile& written() const { return written_; }

 private:
  fs::path path_;
  Descriptor fd_;
  WrittenFile written_;
};

}  // namespace

const char* dtype_name(at::ScalarType type) {
  for (const auto& [name, known] : kDtypes) {
    if (known == type) return name;
  }
  return nullptr;
}

SafetensorsFile::SafetensorsFile(const fs::path& path) : file_(std::make_shared<MappedFile>(path)) {
  const std::string_view bytes = file_->bytes();
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes) {
    fail<CheckpointError>("{}: {} bytes are too few for a safetensors file", path.string(), bytes.size());
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes) {
    fail<CheckpointError>("{}: the header claims {} bytes, the limit is {}; is this a safetensors file?",
                          path.string(), header_bytes, kMaxHeaderBytes);
  }
  if (header_bytes > bytes.size() - sizeof header_bytes) {
    fail<CheckpointError>("{}: truncated: the header claims {} bytes, the file has {}", path.string(),
                          header_bytes, bytes.size());
  }
  data_start_ = sizeof header_bytes + header_bytes;
  const size_t data_bytes = bytes.size() - data_start_;
  const Json header = parse_header(path, bytes.substr(sizeof header_bytes, header_bytes));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    tensors_.emplace(name, parse_entry(fmt::format("{}: tensor {}", path.string(), name), entry, data_bytes));
  }

  std::vector<const std::pair<const std::string, TensorInfo>*> in_order;
  for (const auto& entry : tensors_) in_order.push_back(&entry);
  std::sort(in_order.begin(), in_order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  size_t end = 0;
  for (const auto* entry : in_order) {
    if (entry->second.begin != end) {
      fail<CheckpointError>(
          "{}: tensor {}: its data begin at {}, expected {}, the end of the tensor before ({})",
          path.string(), entry->first, entry->second.begin, end,
          entry->second.begin < end ? "they overlap" : "there is a hole");
    }
    end = entry->second.end;
  }
  if (end != data_bytes) {
    fail<CheckpointError>("{}: {} bytes of data, but the header accounts for {}", path.string(), data_bytes,
                          end);
  }
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const TensorInfo& info = tensors_.at(name);
  const char* data = file_->bytes().data() + data_start_ + info.begin;
  if (reinterpret_cast<uintptr_t>(data) % at::elementSize(info.dtype) != 0) {  // allowed, if rare
    at::Tensor copy = at::empty(info.shape, info.dtype);
    std::memcpy(copy.mutable_data_ptr(), data, info.end - info.begin);
    return copy;
  }
  return at::from_blob(
      const_cast<char*>(data), info.shape, [file = file_](void*) {}, info.dtype);
}

WrittenFile write_safetensors(const fs::path& path, NamedTensors tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(-static_cast<int64_t>(a.second.element_size()), a.first) <
           std::pair(-static_cast<int64_t>(b.second.element_size()), b.first);
  });
  nlohmann::ordered_json header{{"__metadata__", {{"format", "pt"}}}};
  size_t end = 0;
  for (const auto& [name, tensor] : tensors) {
    const char* const dtype = dtype_name(tensor.scalar_type());
    if (dtype == nullptr) {
      fail<CheckpointError>("{}: tensor {}: safetensors has no dtype {}", path.string(), name,
                            at::toString(tensor.scalar_type()));
    }
    const size_t begin = std::exchange(end, end + tensor.nbytes());
    header[name] = {{"dtype", dtype}, {"shape", tensor.sizes().vec()}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  const uint64_t padded =
      (sizeof(uint64_t) + text.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
  const uint64_t header_bytes = padded - sizeof(uint64_t);
  text.resize(header_bytes, ' ');

  Writer file(path);
  file.write({reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes});
  file.write(text);
  for (const auto& [name, tensor] : tensors) file.write(tensor.detach());
  return file.written();
}

}  // namespace trainer::tensors
