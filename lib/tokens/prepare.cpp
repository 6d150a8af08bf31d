#include "tokens/prepare.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "core/clock.h"
#include "core/descriptor.h"
#include "core/error.h"
#include "core/file.h"
#include "core/format.h"
#include "core/log.h"
#include "core/output_lock.h"
#include "spec/enums.h"
#include "text/tokenizer.h"
#include "tokens/megatron.h"
#include "tokens/metadata.h"
#include "tokens/prepare_files.h"
#include "tokens/tokenize.h"

namespace trainer::tokens {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_write(const std::string& path) {
  fail<DataError>("{}: cannot write: {}", path, std::strerror(errno));
}

std::string counted(int64_t number, const char* what) {
  return fmt::format("{} {}{}", grouped(number), what, number == 1 ? "" : "s");
}

// That prepare() was told to stop.
struct Stopped {};

// All tokens in one file, and the lengths of their documents.
class FileSink final : public TokenSink {
 public:
  FileSink(std::string path, TokenType type)
      : path_(std::move(path)),
        type_(type),
        fd_(::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (!fd_.is_open()) fail<DataError>("{}: cannot create: {}", path_, std::strerror(errno));
  }

  void add(std::span<const int32_t> ids) override {
    append_ids(ids, type_, buffer_);
    num_tokens_ += static_cast<int64_t>(ids.size());
    constexpr size_t kBuffer = size_t{4} << 20;
    if (buffer_.size() >= kBuffer) flush();
  }
  void end_document() override {
    lengths_.push_back(num_tokens_ - begin_);
    begin_ = num_tokens_;
  }
  void flush() {
    if (!write_all(fd_.get(), buffer_)) fail_write(path_);
    buffer_.clear();
  }

  int fd() const { return fd_.get(); }
  int64_t num_tokens() const { return num_tokens_; }
  const std::vector<int64_t>& lengths() const { return lengths_; }

 private:
  std::string path_;
  TokenType type_;
  Descriptor fd_;
  std::string buffer_;
  std::vector<int64_t> lengths_;
  int64_t num_tokens_ = 0, begin_ = 0;
};

// One .bin and .idx to be: tokens [begin, end) of all, documents of these lengths.
struct Piece {
  std::string prefix;
  int64_t begin, end;
  std::vector<int64_t> lengths;
};

// The pieces of tokens [begin, end): one, or shards, which end with a document.
void cut(const std::string& prefix, int64_t begin, int64_t end, std::span<const int64_t> lengths,
         int64_t shard_tokens, std::vector<Piece>& pieces) {
  const size_t first = pieces.size();
  int64_t start = 0;  // of a document
  for (const int64_t length : lengths) {
    // Of a document that the split cuts, what is in here.
    const int64_t from = std::max(start, begin), to = std::min(start + length, end);
    start += length;
    if (from >= to) continue;
    const bool is_full = pieces.size() > first && shard_tokens > 0 && to - pieces.back().begin > shard_tokens;
    if (pieces.size() == first || is_full) pieces.push_back({prefix, from, from, {}});
    pieces.back().end = to;
    pieces.back().lengths.push_back(to - from);
  }
  if (shard_tokens == 0) return;
  for (size_t i = first; i < pieces.size(); ++i) pieces[i].prefix += shard_suffix(i - first);
}

class Preparation {
 public:
  Preparation(const PrepareOptions& options, const std::atomic<bool>& stop) : options_(options), stop_(stop) {
    if (fs::path(options_.output).filename().empty()) {
      fail<SpecError>("--output: got \"{}\"; expected what the files' names begin with, such as {}text",
                      options_.output, options_.output);
    }
    for (const std::string& input : options_.inputs) {
      const Source source = find_source(input, options_.format);
      if (source.is_tokens()) fail<DataError>("{}: has tokens already ({})", input, to_string(source.format));
      if (!source_.files.empty() && source.format != source_.format) {
        fail<DataError>("{}: is {}, and {} is {}; expected files of one kind", source_.files[0],
                        to_string(source_.format), input, to_string(source.format));
      }
      source_.format = source.format;
      source_.files.insert(source_.files.end(), source.files.begin(), source.files.end());
    }
    const fs::path directory = fs::path(options_.output).parent_path();
    std::error_code error;
    if (!directory.empty()) fs::create_directories(directory, error);
    if (error) fail<DataError>("{}: cannot make: {}", directory.string(), error.message());
    lock_.emplace(options_.output);
    earlier_ = files_to_replace(options_.output, source_.files, options_.force);
  }

  void run() {
    make_tokenizer();
    const PartialFiles removed{options_.output};
    const std::string all = options_.output + ".bin" + std::string(kPartial);
    const TokenType type = type_for(tokenizer_->vocab_size());
    FileSink sink(all, type);
    tokenize_all(sink);
    sink.flush();
    if (sink.num_tokens() == 0) fail<DataError>("{}: has no text", options_.inputs[0]);

    std::vector<Piece> pieces;
    std::vector<std::string> prefixes = {options_.output};
    if (options_.validation_fraction > 0) {
      prefixes = {options_.output + "_train", options_.output + "_validation"};
      const int64_t split = split_of(all, sink, type);
      cut(prefixes[0], 0, split, sink.lengths(), options_.shard_tokens, pieces);
      cut(prefixes[1], split, sink.num_tokens(), sink.lengths(), options_.shard_tokens, pieces);
    } else {
      cut(prefixes[0], 0, sink.num_tokens(), sink.lengths(), options_.shard_tokens, pieces);
    }
    warn_of_long_documents(pieces);
    take_apart(sink, pieces, type);
    if (stop_) throw Stopped();
    put_into_place(pieces, all);
    for (const std::string& prefix : prefixes) finish(prefix, pieces);
  }

 private:
  void make_tokenizer() {
    if (options_.tokenizer == "byte") {
      tokenizer_ = text::make_byte_tokenizer(options_.append_eos);
    } else if (options_.tokenizer == "char") {
      tokenizer_ =
          text::make_char_tokenizer(distinct_characters(source_, options_.field, options_.num_threads));
    } else {
      tokenizer_ = text::load_tokenizer(spec::TokenizerType::kAuto, options_.tokenizer);
    }
  }

  void tokenize_all(FileSink& sink) {
    const int64_t total = size_of(source_);
    const double begin_s = monotonic_s();
    double said_s = begin_s;
    const auto rate = [&](int64_t bytes) {
      return binary_bytes(
          static_cast<int64_t>(static_cast<double>(bytes) / std::max(monotonic_s() - begin_s, 1e-3)));
    };
    log_info("{}, {} of {}; {}", counted(static_cast<int64_t>(source_.files.size()), "file"),
             binary_bytes(total), to_string(source_.format), counted(options_.num_threads, "thread"));
    TokenizeOptions options{options_.field, options_.append_eos, options_.num_threads};
    TokenizeProgress last;
    tokenize(source_, *tokenizer_, options, sink, [&](const TokenizeProgress& progress) {
      if (stop_) throw Stopped();
      last = progress;
      constexpr double kEvery = 5;  // seconds
      if (monotonic_s() - said_s < kEvery) return;
      said_s = monotonic_s();
      const double share = std::clamp(
          static_cast<double>(progress.bytes_read) / static_cast<double>(std::max<int64_t>(total, 1)), 1e-6,
          1.0);
      log_info("{:.0f} %, {} tokens, {}/s, {} left", 100 * share, grouped(sink.num_tokens()),
               rate(progress.bytes_read), duration((said_s - begin_s) / share * (1 - share)));
    });
    log_info("{} of text: {} tokens, {}, {}/s", binary_bytes(last.text_bytes), grouped(sink.num_tokens()),
             counted(static_cast<int64_t>(sink.lengths().size()), "document"), rate(last.bytes_read));
  }

  int64_t split_of(const std::string& all, const FileSink& sink, TokenType type) const {
    auto file = std::make_shared<const MappedFile>(all);
    const void* ids = file->bytes().data();
    std::vector<int64_t> starts;
    int64_t start = 0;
    for (const int64_t length : sink.lengths()) {
      starts.push_back(start);
      start += length;
    }
    std::vector<TokenPart> parts;
    parts.push_back({options_.inputs[0], std::move(file), ids, type, sink.num_tokens(),
                     std::make_shared<const KeptDocuments>(std::move(starts))});
    return validation_begin(TokenStream(std::move(parts)), options_.validation_fraction);
  }

  void warn_of_long_documents(const std::vector<Piece>& pieces) const {
    int64_t num_long = 0, longest = 0;
    for (const Piece& piece : pieces) {
      const int64_t size = piece.end - piece.begin;
      if (options_.shard_tokens == 0 || size <= options_.shard_tokens) continue;
      ++num_long;
      longest = std::max(longest, size);
    }
    if (num_long == 0) return;
    log_warning("--shard-tokens: {} with more than {} tokens, as no document is cut: the longest has {}",
                counted(num_long, "file"), grouped(options_.shard_tokens), grouped(longest));
  }

  // Cuts piece after piece off the end of the file of all, so that the disk never holds more than one twice. The
  // first stays in it.
  static void take_apart(const FileSink& sink, const std::vector<Piece>& pieces, TokenType type) {
    for (size_t i = pieces.size(); i-- > 0;) {
      const Piece& piece = pieces[i];
      write_megatron_index(piece.prefix + ".idx" + std::string(kPartial), type, piece.lengths);
      if (i == 0) break;
      const std::string path = piece.prefix + ".bin" + std::string(kPartial);
      const Descriptor out(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
      if (!out.is_open()) fail_write(path);
      off_t from = piece.begin * size_of(type);
      const off_t end = piece.end * size_of(type);
      std::string buffer(size_t{8} << 20, '\0');
      while (from < end) {
        const ssize_t n =
            ::pread(sink.fd(), buffer.data(), std::min(buffer.size(), static_cast<size_t>(end - from)), from);
        if (n <= 0 || !write_all(out.get(), std::string_view(buffer.data(), static_cast<size_t>(n))))
          fail_write(path);
        from += n;
      }
      if (::fsync(out.get()) != 0 || ::ftruncate(sink.fd(), piece.begin * size_of(type)) != 0)
        fail_write(path);
    }
    if (::fsync(sink.fd()) != 0) fail_write(pieces[0].prefix);
  }

  void put_into_place(const std::vector<Piece>& pieces, const std::string& all) {
    // Their .json first: without it nothing of them counts.
    std::stable_partition(earlier_.begin(), earlier_.end(),
                          [](const fs::path& file) { return file.extension() == ".json"; });
    for (const fs::path& file : earlier_) fs::remove_all(file);
    const std::string tokenizer = options_.output + "_tokenizer";
    const std::string partial = tokenizer + std::string(kPartial);
    fs::remove_all(partial);
    fs::create_directory(partial);
    for (const text::TokenizerFile& file : tokenizer_->files())
      write_file_atomic(fs::path(partial) / file.name, file.contents);
    fs::rename(partial, tokenizer);
    for (const Piece& piece : pieces) {
      const bool is_first = &piece == &pieces.front();
      fs::rename(is_first ? all : piece.prefix + ".bin" + std::string(kPartial), piece.prefix + ".bin");
      fs::rename(piece.prefix + ".idx" + std::string(kPartial), piece.prefix + ".idx");
    }
  }

  void finish(const std::string& prefix, const std::vector<Piece>& pieces) const {
    Metadata metadata;
    metadata.vocab_size = tokenizer_->vocab_size();
    int64_t num_files = 0;
    for (const Piece& piece : pieces) {
      if (!piece.prefix.starts_with(prefix)) continue;
      ++num_files;
      metadata.num_tokens += piece.end - piece.begin;
      metadata.num_documents += static_cast<int64_t>(piece.lengths.size());
    }
    metadata.sources = source_.files;
    metadata.tokenizer = fs::path(options_.output + "_tokenizer").filename().string();
    metadata.vocabulary_hash = vocabulary_hash(*tokenizer_);
    write_metadata(prefix + ".json", metadata);
    // The result, which main() fails without.
    fmt::print("{}: {} tokens, {}, {}\n", prefix, grouped(metadata.num_tokens),
               counted(metadata.num_documents, "document"), counted(num_files, "file"));
  }

  const PrepareOptions& options_;
  const std::atomic<bool>& stop_;
  std::optional<OutputLock> lock_;
  Source source_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<fs::path> earlier_;
};

}  // namespace

bool prepare(const PrepareOptions& options, const std::atomic<bool>& stop) {
  try {
    Preparation(options, stop).run();
    return true;
  } catch (const Stopped&) {
    return false;
  } catch (const fs::filesystem_error& error) {
    fail<DataError>("{}", error.what());
  }
}

}  // namespace trainer::tokens
