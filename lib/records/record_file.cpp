#include "records/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/format.h"

namespace trainer::records {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'T', 'R', 'N', 'R', 'R', 'E', 'C', '\n'};
constexpr uint32_t kVersion = 1;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t reserved;
  uint64_t num_rows;
  uint64_t ragged_at;  // also the end of the rows
  uint64_t json_at;    // also the end of the ragged part
  uint64_t json_bytes;
  uint64_t fingerprint;  // of the rows
  uint64_t unused;
};
static_assert(sizeof(Header) == 64);

[[noreturn]] void fail_write(const fs::path& path) {
  fail<DataError>("{}: cannot write: {}", path.string(), std::strerror(errno));
}

Descriptor create(const fs::path& path) {
  Descriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.is_open()) fail<DataError>("{}: cannot create: {}", path.string(), std::strerror(errno));
  return fd;
}

nlohmann::ordered_json describe(const RowLayout& layout) {
  return {{"dense", layout.num_dense},  {"sparse", layout.num_sparse}, {"id_bytes", layout.id_bytes},
          {"labels", layout.labels},    {"groups", layout.groups},     {"ragged", layout.ragged},
          {"weighted", layout.weighted}};
}

}  // namespace

void move_ragged(const RowLayout& layout, uint64_t places, std::string& rows) {
  if (!layout.ragged || places == 0) return;
  const auto stride = static_cast<size_t>(layout.stride());
  for (size_t at = 0; at < rows.size(); at += stride) {
    uint64_t place = 0;
    std::memcpy(&place, rows.data() + at, sizeof place);
    place += places;
    std::memcpy(rows.data() + at, &place, sizeof place);
  }
}

bool is_record_file(const spec::DataSource& source) {
  if (source.format == spec::FileFormat::kRecords) return true;
  if (source.format != spec::FileFormat::kAuto) return false;
  const Descriptor fd(::open(source.path.c_str(), O_RDONLY | O_CLOEXEC));
  char magic[sizeof kMagic];
  return fd.is_open() && ::pread(fd.get(), magic, sizeof magic, 0) == sizeof magic &&
         std::memcmp(magic, kMagic, sizeof magic) == 0;
}

std::shared_ptr<const Records> open_record_file(const fs::path& path, const FeatureMap& map,
                                                bool labels_required) {
  const auto file = std::make_shared<const MappedFile>(path);
  const std::string_view bytes = file->bytes();
  const std::string name = path.string();
  Header header{};
  std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof header));
  if (bytes.size() < sizeof header || std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    fail<DataError>("{}: is no file of records; expected one that trainer prepare wrote", name);
  }
  if (header.version != kVersion) {
    fail<DataError>("{}: version {} of the format, expected {}\nhint: prepare it again with this program",
                    name, header.version, kVersion);
  }
  RowLayout layout;
  std::string map_fingerprint;
  const bool whole = header.ragged_at >= sizeof header && header.ragged_at <= header.json_at &&
                     header.json_at <= bytes.size() && header.json_bytes == bytes.size() - header.json_at;
  if (!whole) fail<DataError>("{}: is not whole: {}", name, binary_bytes(static_cast<int64_t>(bytes.size())));
  try {
    const auto json = nlohmann::json::parse(bytes.substr(header.json_at));
    const auto& said = json.at("layout");
    layout.num_dense = said.at("dense");
    layout.num_sparse = said.at("sparse");
    layout.id_bytes = said.at("id_bytes");
    layout.labels = said.at("labels");
    layout.groups = said.at("groups");
    layout.ragged = said.at("ragged");
    layout.weighted = said.at("weighted");
    map_fingerprint = json.at("map");
  } catch (const nlohmann::json::exception& error) {
    fail<DataError>("{}: is not as trainer prepare writes it: {}", name, error.what());
  }
  if (const std::string expected = fmt::format("{:016x}", map.fingerprint()); map_fingerprint != expected) {
    fail<DataError>(
        "{}: was prepared by another feature map ({}) than the one in use ({}): its ids would mean "
        "others\nhint: prepare "
        "training and validation data together, or validate on the file itself rather than on records of it",
        name, map_fingerprint, expected);
  }
  const uint64_t row_bytes = header.ragged_at - sizeof header;
  if (layout != map.layout(layout.labels) ||
      row_bytes != header.num_rows * static_cast<uint64_t>(layout.stride())) {
    fail<DataError>("{}: is damaged: its rows are not as its description says", name);
  }
  if (labels_required && !layout.labels) {
    fail<SpecError>("{}: was prepared without labels ({}); expected data with them", name,
                    map.features().label);
  }
  return std::make_shared<const Records>(
      layout, file, bytes.substr(sizeof header, row_bytes),
      bytes.substr(header.ragged_at, header.json_at - header.ragged_at), header.fingerprint,
      [name](int64_t row) { return fmt::format("{}: row {}", name, row + 1); });
}

RecordFileWriter::RecordFileWriter(fs::path path, const RowLayout& layout)
    : path_(std::move(path)), partial_(path_.string() + ".partial"), layout_(layout) {
  fd_ = create(partial_);
  const Header header{};
  if (!write_all(fd_.get(), {reinterpret_cast<const char*>(&header), sizeof header})) fail_write(partial_);
  if (!layout_.ragged) return;
  ragged_partial_ = path_.string() + ".ragged.partial";
  ragged_fd_ = create(ragged_partial_);
}

RecordFileWriter::~RecordFileWriter() {
  std::error_code ignored;
  if (fd_.is_open()) fs::remove(partial_, ignored);
  if (!ragged_partial_.empty()) fs::remove(ragged_partial_, ignored);
}

void RecordFileWriter::add(EncodedRows&& rows) {
  move_ragged(layout_, ragged_bytes_, rows.rows);
  print_.add(rows.rows);
  print_.add(rows.ragged);
  num_rows_ += rows.num_rows;
  ragged_bytes_ += rows.ragged.size();
  if (!write_all(fd_.get(), rows.rows)) fail_write(partial_);
  if (layout_.ragged && !write_all(ragged_fd_.get(), rows.ragged)) fail_write(ragged_partial_);
}

void RecordFileWriter::finish(const FeatureMap& map, const std::string& source) {
  if (num_rows_ == 0) fail<DataError>("{}: has no rows", source);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.num_rows = static_cast<uint64_t>(num_rows_);
  header.ragged_at = sizeof header + header.num_rows * static_cast<uint64_t>(layout_.stride());
  header.json_at = header.ragged_at + ragged_bytes_;
  header.fingerprint = print_.value();
  std::string buffer(size_t{8} << 20, '\0');
  for (uint64_t at = 0; at < ragged_bytes_;) {
    const ssize_t n = ::pread(ragged_fd_.get(), buffer.data(), std::min(buffer.size(), ragged_bytes_ - at),
                              static_cast<off_t>(at));
    if (n <= 0 || !write_all(fd_.get(), {buffer.data(), static_cast<size_t>(n)})) fail_write(partial_);
    at += static_cast<uint64_t>(n);
  }
  nlohmann::ordered_json json;
  json["format"] = "trainer records";
  json["version"] = kVersion;
  json["rows"] = num_rows_;
  json["source"] = source;
  json["map"] = fmt::format("{:016x}", map.fingerprint());
  json["layout"] = describe(layout_);
  const std::string text = json.dump(2) + "\n";
  header.json_bytes = text.size();
  if (!write_all(fd_.get(), text) || ::pwrite(fd_.get(), &header, sizeof header, 0) != sizeof header ||
      ::fsync(fd_.get()) != 0) {
    fail_write(partial_);
  }
  if (::rename(partial_.c_str(), path_.c_str()) != 0) fail_write(path_);
  fd_.reset();
}

}  // namespace trainer::records
