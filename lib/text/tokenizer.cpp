#include "text/tokenizer.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "text/bpe/tokenizer.h"
#include "text/char_tokenizer.h"
#include "text/parallel.h"

namespace trainer::text {

namespace fs = std::filesystem;

std::vector<int32_t> Tokenizer::encode(std::string_view text, int64_t num_threads,
                                       SpecialTokens special) const {
  std::vector<std::vector<int32_t>> parts;
  encode_parts(text, num_threads, special, std::numeric_limits<size_t>::max(),
               [&](std::vector<int32_t>&& part, size_t) { parts.push_back(std::move(part)); });
  if (parts.empty()) return {};
  if (parts.size() == 1) return std::move(parts[0]);
  size_t size = 0;
  for (const std::vector<int32_t>& part : parts) size += part.size();
  std::vector<int32_t> ids;
  ids.reserve(size);
  for (std::vector<int32_t>& part : parts) {
    ids.insert(ids.end(), part.begin(), part.end());
    std::vector<int32_t>().swap(part);
  }
  return ids;
}

void Tokenizer::encode(std::string_view text, int64_t num_threads, SpecialTokens special,
                       const std::function<void(std::span<const int32_t>, size_t)>& take) const {
  // Chunks whose ids are in memory at a time: enough that threads seldom wait for the last one.
  const size_t round = 16 * static_cast<size_t>(std::max<int64_t>(num_threads, 1));
  encode_parts(text, num_threads, special, round,
               [&](std::vector<int32_t>&& part, size_t done) { take(part, done); });
}

void Tokenizer::encode_parts(std::string_view text, int64_t num_threads, SpecialTokens special, size_t round,
                             const std::function<void(std::vector<int32_t>&&, size_t)>& take) const {
  constexpr size_t kChunk = 1 << 18;  // bytes: large beside what starting on a chunk costs
  const bool cut = text.size() > kChunk && (num_threads > 1 || text.size() / kChunk > round);
  std::vector<Segment> all;
  segments(text, special, cut ? kChunk : std::numeric_limits<size_t>::max(), all);

  // Segments in groups of about a chunk: with many added tokens they are small.
  struct Group {
    size_t begin, end;  // segments
    std::vector<int32_t> ids;
  };
  std::vector<Group> groups;
  for (size_t i = 0; i < all.size(); ++i) {
    if (groups.empty() || (cut && all[i].begin - all[groups.back().begin].begin >= kChunk)) {
      groups.push_back({i, i, {}});
    }
    groups.back().end = i + 1;
  }
  const size_t share = std::min(text.size(), std::min(groups.size(), round) * kChunk) /
                       static_cast<size_t>(std::max<int64_t>(num_threads, 1));
  for (size_t first = 0; first < groups.size(); first += std::min(round, groups.size())) {
    const size_t count = std::min(round, groups.size() - first);
    const auto make_work = [&] {
      return [&, encoder = std::shared_ptr(make_encoder(share))](size_t g) {
        Group& group = groups[first + g];
        const size_t num_bytes = all[group.end - 1].end - all[group.begin].begin;
        group.ids.reserve(num_bytes / 3);  // of English prose: 4.5 bytes a token
        for (size_t i = group.begin; i < group.end; ++i) {
          if (all[i].id >= 0) {
            group.ids.push_back(all[i].id);
          } else {
            encoder->encode(text, all[i], group.ids);
          }
        }
      };
    };
    if (const auto failure = parallel_for(count, 1, num_threads, make_work)) {
      std::rethrow_exception(failure->error);
    }
    for (size_t g = first; g < first + count; ++g) {
      std::vector<int32_t> ids;  // whose memory goes with it
      ids.swap(groups[g].ids);
      take(std::move(ids), all[groups[g].end - 1].end);
    }
  }
}

std::vector<std::vector<int32_t>> Tokenizer::encode_batch(const std::vector<std::string_view>& texts,
                                                          int64_t num_threads, SpecialTokens special) const {
  size_t num_bytes = 0;
  for (const std::string_view text : texts) num_bytes += text.size();
  const auto threads = static_cast<size_t>(std::max<int64_t>(num_threads, 1));
  const size_t chunk = std::clamp<size_t>(texts.size() / (threads * 16), 1, 64);

  std::vector<std::vector<int32_t>> out(texts.size());
  const auto make_work = [&] {
    return [&, encoder = std::shared_ptr(make_encoder(num_bytes / threads)),
            parts = std::vector<Segment>()](size_t i) mutable {
      segments(texts[i], special, std::numeric_limits<size_t>::max(), parts);
      out[i].reserve(texts[i].size() / 3);
      for (const Segment& part : parts) {
        if (part.id >= 0) {
          out[i].push_back(part.id);
        } else {
          encoder->encode(texts[i], part, out[i]);
        }
      }
    };
  };
  if (const auto failure = parallel_for(texts.size(), chunk, num_threads, make_work)) {
    try {
      std::rethrow_exception(failure->error);
    } catch (const DataError& e) {
      fail<DataError>("text {} of {}: {}", failure->index, texts.size(), e.what());
    }
  }
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string out;
  for (const int32_t id : ids) {
    const std::string_view bytes = token_bytes(id);
    if (!skip_special || !is_special(id)) out += bytes;
  }
  return out;
}

void Tokenizer::fail_no_token(int32_t id) const {
  fail<DataError>("no token has the id {}; the tokenizer's vocabulary has {}", id, vocab_size());
}

std::shared_ptr<const Tokenizer> load_tokenizer(TokenizerKind kind, const fs::path& path) {
  constexpr const char* kBpe = "tokenizer.json, or vocab.json and merges.txt";
  if (kind == TokenizerKind::kByte && path.empty()) return make_byte_tokenizer(false);
  if (!fs::exists(path)) {
    fail<SpecError>(
        "{}: no such file or directory; expected a tokenizer's directory ({}, or {}), or a file of it",
        path.string(), kBpe, kCharTokenizerFile);
  }
  const fs::path directory = fs::is_directory(path) ? path : path.parent_path();
  const std::string name = fs::is_directory(path) ? "" : path.filename().string();
  const fs::path own = directory / kCharTokenizerFile;
  const bool has_own = name == kCharTokenizerFile || (name.empty() && fs::exists(own));
  if (kind == TokenizerKind::kChar || kind == TokenizerKind::kByte ||
      (kind == TokenizerKind::kAuto && has_own)) {
    return load_char_tokenizer(kind, name.empty() ? own : path);
  }
  return load_bpe_tokenizer(path);
}

}  // namespace trainer::text
