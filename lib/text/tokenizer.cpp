#include "text/tokenizer.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/parallel_for.h"
#include "text/batch.h"
#include "text/bpe/tokenizer.h"
#include "text/char_tokenizer.h"

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

void Tokenizer::encode_segments(std::string_view text, std::span<const Segment> segments, Encoder& encoder,
                                std::vector<int32_t>& ids) {
  for (const Segment& segment : segments) {
    if (segment.id >= 0) {
      ids.push_back(segment.id);
    } else {
      encoder.encode(text, segment, ids);
    }
  }
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
    parallel_for(static_cast<int64_t>(count), 1, num_threads, [&]() -> LoopBody {
      return [&, encoder = std::shared_ptr(make_encoder(share))](int64_t g, int64_t) {
        Group& group = groups[first + static_cast<size_t>(g)];
        const size_t num_bytes = all[group.end - 1].end - all[group.begin].begin;
        group.ids.reserve(num_bytes / 3);  // of English prose: 4.5 bytes a token
        encode_segments(text, std::span(all).subspan(group.begin, group.end - group.begin), *encoder,
                        group.ids);
      };
    });
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
  const auto make_encode = [&] {
    return [&, encoder = std::shared_ptr(make_encoder(num_bytes / threads)), parts = std::vector<Segment>()](
               std::string_view text, std::vector<int32_t>& ids) mutable {
      segments(text, special, std::numeric_limits<size_t>::max(), parts);
      ids.reserve(text.size() / 3);
      encode_segments(text, parts, *encoder, ids);
    };
  };
  return encode_each<std::vector<int32_t>>(texts, static_cast<int64_t>(chunk), num_threads, make_encode);
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string out;
  for (const int32_t id : ids) out += token_bytes(id);
  return out;
}

void Tokenizer::fail_no_token(int32_t id) const {
  fail<DataError>("no token has the id {}; the tokenizer's vocabulary has {}", id, vocab_size());
}

std::vector<std::string> tokenizer_files(const fs::path& directory) {
  std::vector<std::string> names;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json",
                           "added_tokens.json", "vocab.json", "merges.txt", kCharTokenizerFile}) {
    if (fs::exists(directory / name)) names.emplace_back(name);
  }
  return names;
}

bool has_tokenizer(const fs::path& directory) {
  return fs::exists(directory / "tokenizer.json") || fs::exists(directory / "vocab.json") ||
         fs::exists(directory / kCharTokenizerFile);
}

std::shared_ptr<const Tokenizer> load_tokenizer(spec::TokenizerType type, const fs::path& path) {
  constexpr const char* kBpeFiles = "tokenizer.json, or vocab.json and merges.txt";
  if (!fs::exists(path)) {
    fail<SpecError>(
        "{}: no such file or directory; expected a tokenizer's directory ({}, or {}), or a file of it",
        path.string(), kBpeFiles, kCharTokenizerFile);
  }
  const fs::path directory = fs::is_directory(path) ? path : path.parent_path();
  const std::string name = fs::is_directory(path) ? "" : path.filename().string();
  const fs::path own = directory / kCharTokenizerFile;
  const bool has_own = name == kCharTokenizerFile || (name.empty() && fs::exists(own));
  using enum spec::TokenizerType;
  if (type == kChar || type == kByte || (type == kAuto && has_own)) {
    return load_char_tokenizer(type, name.empty() ? own : path);
  }
  return load_bpe_tokenizer(path);
}

}  // namespace trainer::text
