#include "tokens/tokenize.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/format.h"
#include "core/mix64.h"
#include "core/parallel_for.h"
#include "text/unicode.h"
#include "tokens/documents.h"

namespace trainer::tokens {
namespace {

using spec::FileFormat;
using text::SpecialTokens;

constexpr int64_t kBatchBytes = int64_t{32} << 20;
constexpr size_t kLongText = size_t{1} << 20;  // encoded by all threads together, not by one
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::string_view text_of(const MappedFile& file) {
  std::string_view bytes = file.bytes();
  if (bytes.starts_with(kByteOrderMark)) bytes.remove_prefix(kByteOrderMark.size());
  return bytes;
}

std::unique_ptr<DocumentReader> open_documents(FileFormat format, const std::string& file,
                                               const std::string& field) {
  return format == FileFormat::kJsonl ? open_jsonl(file, field) : open_parquet(file, field);
}

class Tokenization {
 public:
  Tokenization(const Source& source, const text::Tokenizer& tokenizer, const TokenizeOptions& options,
               TokenSink& sink)
      : source_(source), tokenizer_(tokenizer), options_(options), eos_(tokenizer.eos_id()), sink_(sink) {}

  void run(const std::function<void(const TokenizeProgress&)>& progress) {
    const auto report = [&](int64_t bytes_read) {
      progress_.bytes_read = bytes_read;
      if (progress) progress(progress_);
    };
    int64_t before = 0;
    for (const std::string& file : source_.files) {
      if (source_.format == FileFormat::kText) {
        text_file(file, [&](int64_t bytes_read) { report(before + bytes_read); });
      } else {
        const auto reader = open_documents(source_.format, file, options_.field);
        for (;;) {
          DocumentBatch batch = reader->next(kBatchBytes, options_.num_threads);
          if (batch.texts.empty()) break;
          documents(file, batch);
          report(before + batch.bytes_read);
        }
      }
      before += static_cast<int64_t>(std::filesystem::file_size(file));
      report(before);
    }
  }

 private:
  void text_file(const std::string& file, const std::function<void(int64_t)>& report) {
    const MappedFile mapped(file);
    const std::string_view text = text_of(mapped);
    bool open = false;  // a document has begun
    try {
      tokenizer_.encode(text, options_.num_threads, SpecialTokens::kFind,
                        [&](std::span<const int32_t> ids, size_t num_bytes) {
                          open = add_documents(ids, open);
                          report(static_cast<int64_t>(num_bytes));
                        });
    } catch (const DataError& error) {
      fail<DataError>("{}: {}", file, error.what());
    }
    progress_.text_bytes += static_cast<int64_t>(text.size());
    if (!open) return;
    if (options_.append_eos && eos_) sink_.add({&*eos_, 1});
    sink_.end_document();
  }

  // Ids of a text that may hold the ends of documents. Returns whether the last one goes on.
  bool add_documents(std::span<const int32_t> ids, bool open) {
    while (!ids.empty()) {
      const auto end = eos_ ? std::find(ids.begin(), ids.end(), *eos_) : ids.end();
      open = end == ids.end();
      const auto size = static_cast<size_t>(end - ids.begin()) + (open ? 0 : 1);
      sink_.add(ids.first(size));
      ids = ids.subspan(size);
      if (!open) sink_.end_document();
    }
    return open;
  }

  void documents(const std::string& file, const DocumentBatch& batch) {
    std::vector<std::string_view> texts(batch.texts.begin(), batch.texts.end());
    for (std::string_view& text : texts) {
      progress_.text_bytes += static_cast<int64_t>(text.size());
      if (text.size() > kLongText) text = {};  // later
    }
    size_t at = 0;
    try {
      const auto ids = tokenizer_.encode_batch(texts, options_.num_threads, SpecialTokens::kIgnore);
      for (; at < ids.size(); ++at) {
        if (texts[at].size() == batch.texts[at].size()) {
          document(ids[at]);
        } else {
          document(tokenizer_.encode(batch.texts[at], options_.num_threads, SpecialTokens::kIgnore));
        }
      }
    } catch (const DataError&) {
      // Which it is, the batch's error says by its number in the batch.
      for (; at < texts.size(); ++at) {
        try {
          tokenizer_.encode(batch.texts[at], 1, SpecialTokens::kIgnore);
        } catch (const DataError& error) {
          fail<DataError>("{}:{}: {}", file, batch.places[at], error.what());
        }
      }
      throw;
    }
  }

  void document(std::span<const int32_t> ids) {
    if (ids.empty()) return;
    sink_.add(ids);
    if (options_.append_eos && eos_) sink_.add({&*eos_, 1});
    sink_.end_document();
  }

  const Source& source_;
  const text::Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  const std::optional<int32_t> eos_;
  TokenSink& sink_;
  TokenizeProgress progress_;
};

class MemorySink final : public TokenSink {
 public:
  explicit MemorySink(TokenType type) : type_(type) {}
  void add(std::span<const int32_t> ids) override { append_ids(ids, type_, bytes_); }
  void end_document() override {
    starts_.push_back(begin_);
    begin_ = size();
  }
  int64_t size() const { return static_cast<int64_t>(bytes_.size()) / size_of(type_); }
  TokenPart part(const std::string& name) {
    const int64_t num_tokens = size();
    auto kept = std::make_shared<const std::string>(std::move(bytes_));
    const void* ids = kept->data();
    return {name,  std::move(kept), ids,
            type_, num_tokens,      std::make_shared<const KeptDocuments>(std::move(starts_))};
  }

 private:
  TokenType type_;
  std::string bytes_;
  std::vector<int64_t> starts_;
  int64_t begin_ = 0;
};

}  // namespace

void tokenize(const Source& source, const text::Tokenizer& tokenizer, const TokenizeOptions& options,
              TokenSink& sink, const std::function<void(const TokenizeProgress&)>& progress) {
  Tokenization(source, tokenizer, options, sink).run(progress);
}

std::string distinct_characters(const Source& source, const std::string& field, int64_t num_threads) {
  constexpr size_t kCodePoints = 0x110000;
  std::vector<bool> all(kCodePoints);
  const auto add = [&](std::string_view text, std::vector<bool>& seen) {
    for (size_t i = 0; i < text.size();) seen[text::next_code_point(text, i)] = true;
  };
  for (const std::string& file : source.files) {
    if (source.format == FileFormat::kText) {
      const MappedFile mapped(file);
      const std::string_view text = text_of(mapped);
      std::mutex mutex;
      parallel_for(static_cast<int64_t>(text.size()), kBatchBytes, num_threads,
                   [&](int64_t begin, int64_t end) {
                     // From the first character that begins in this piece to the last.
                     const auto next_begin = [&](int64_t at) {
                       auto i = static_cast<size_t>(at);
                       while (i < text.size() && (static_cast<uint8_t>(text[i]) & 0xc0) == 0x80 &&
                              i < static_cast<size_t>(at) + 4)
                         ++i;
                       return i;
                     };
                     const size_t first = next_begin(begin), last = next_begin(end);
                     std::vector<bool> seen(kCodePoints);
                     add(text.substr(first, last - first), seen);
                     const std::lock_guard lock(mutex);
                     for (size_t c = 0; c < kCodePoints; ++c) {
                       if (seen[c]) all[c] = true;
                     }
                   });
      continue;
    }
    const auto reader = open_documents(source.format, file, field);
    for (;;) {
      const DocumentBatch batch = reader->next(kBatchBytes, num_threads);
      if (batch.texts.empty()) break;
      for (const std::string& text : batch.texts) add(text, all);
    }
  }
  std::string characters;
  for (size_t c = 0; c < kCodePoints; ++c) {
    if (all[c]) text::append_utf8(static_cast<char32_t>(c), characters);
  }
  if (characters.empty()) fail<DataError>("{}: has no text", source.files[0]);
  return characters;
}

int64_t size_of(const Source& source) {
  int64_t bytes = 0;
  for (const std::string& file : source.files)
    bytes += static_cast<int64_t>(std::filesystem::file_size(file));
  return bytes;
}

uint64_t vocabulary_hash(const text::Tokenizer& tokenizer) {
  uint64_t hash = mix64(static_cast<uint64_t>(tokenizer.vocab_size()));
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    std::string_view bytes;
    try {
      bytes = tokenizer.token_bytes(static_cast<int32_t>(id));
    } catch (const DataError&) {  // a gap in the vocabulary
    }
    hash = mix64(hash ^ bytes.size());
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
      hash = mix64(hash ^ word);
    }
  }
  return hash;
}

TokenType type_for(int64_t vocab_size) {
  return vocab_size <= 65536 ? TokenType::kUint16 : TokenType::kInt32;
}

void append_ids(std::span<const int32_t> ids, TokenType type, std::string& bytes) {
  const size_t begin = bytes.size();
  bytes.resize(begin + ids.size() * static_cast<size_t>(size_of(type)));
  if (type == TokenType::kInt32) {
    if (!ids.empty()) std::memcpy(bytes.data() + begin, ids.data(), ids.size_bytes());
    return;
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<uint16_t>(ids[i]);
    std::memcpy(bytes.data() + begin + i * sizeof id, &id, sizeof id);
  }
}

TokenPart tokenize_in_memory(const Source& source, const std::string& path, const text::Tokenizer& tokenizer,
                             const TokenizeOptions& options, int64_t most) {
  const auto check = [&](int64_t bytes) {
    if (bytes <= most) return;
    fail<DataError>(
        "{}: {} of text, expected at most {}, as every run tokenizes it anew\nhint: trainer prepare {} "
        "--output PREFIX "
        "--tokenizer DIR, then data.train.path: PREFIX",
        path, binary_bytes(bytes), binary_bytes(most), path);
  };
  check(size_of(source));
  MemorySink sink(type_for(tokenizer.vocab_size()));
  tokenize(source, tokenizer, options, sink,
           [&](const TokenizeProgress& progress) { check(progress.text_bytes); });
  return sink.part(source.files.size() == 1 ? source.files[0] : path);
}

}  // namespace trainer::tokens
