#include "tokens/token_files.h"

#include <cstring>
#include <memory>
#include <string_view>

#include "core/error.h"
#include "core/file.h"
#include "tokens/megatron.h"
#include "tokens/metadata.h"

namespace trainer::tokens {
namespace {

constexpr size_t kLlmcHeader = 256 * sizeof(int32_t);

struct LlmcKind {
  int32_t magic, version;
  TokenType type;
  int64_t delimiter;
};
constexpr LlmcKind kLlmcKinds[] = {{20240520, 1, TokenType::kUint16, 50256},
                                   {20240801, 7, TokenType::kUint32, 128000}};
constexpr int32_t kLlmcEvaluation = 20240522;  // llm.c's multiple-choice files

int32_t int_at(std::string_view bytes, size_t index) {
  int32_t value = 0;
  if (bytes.size() >= (index + 1) * sizeof value)
    std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

const LlmcKind* llmc_kind(std::string_view bytes) {
  for (const LlmcKind& kind : kLlmcKinds) {
    if (int_at(bytes, 0) == kind.magic) return &kind;
  }
  return nullptr;
}

}  // namespace

spec::FileFormat detect_token_format(const std::filesystem::path& bin) {
  auto idx = bin;
  if (std::filesystem::exists(idx.replace_extension(".idx"))) return spec::FileFormat::kMegatron;
  if (read_metadata(bin)) {
    fail<SpecError>("{}: no such file; {} is of trainer prepare, which wrote it beside", idx.string(),
                    bin.string());
  }
  const MappedFile file(bin);
  if (llmc_kind(file.bytes()) != nullptr || int_at(file.bytes(), 0) == kLlmcEvaluation)
    return spec::FileFormat::kLlmc;
  if (file.bytes().size() % 2 == 0) return spec::FileFormat::kNanogpt;
  fail<DataError>(
      "{}: {} bytes, without a header that is known and without an .idx beside it; expected an even number, "
      "of uint16 "
      "ids as nanoGPT writes them: is it truncated?",
      bin.string(), file.bytes().size());
}

TokenPart open_nanogpt(const std::filesystem::path& bin) {
  auto file = std::make_shared<const MappedFile>(bin);
  const std::string_view bytes = file->bytes();
  if (bytes.size() % 2 != 0) {
    fail<DataError>("{}: truncated: {} bytes, expected an even number, of uint16 ids", bin.string(),
                    bytes.size());
  }
  return {
      bin.string(), std::move(file), bytes.data(), TokenType::kUint16, static_cast<int64_t>(bytes.size() / 2),
      nullptr};
}

TokenPart open_llmc(const std::filesystem::path& bin) {
  auto file = std::make_shared<const MappedFile>(bin);
  const std::string_view bytes = file->bytes();
  const LlmcKind* kind = llmc_kind(bytes);
  if (int_at(bytes, 0) == kLlmcEvaluation) {
    fail<DataError>("{}: is an evaluation file of llm.c (magic {}); expected one of tokens", bin.string(),
                    kLlmcEvaluation);
  }
  if (kind == nullptr) {
    fail<DataError>(
        "{}: wrong header: got magic {}; expected {} (GPT-2) or {} (Llama 3), as llm.c writes them",
        bin.string(), int_at(bytes, 0), kLlmcKinds[0].magic, kLlmcKinds[1].magic);
  }
  if (int_at(bytes, 1) != kind->version) {
    fail<DataError>("{}: wrong header: got version {}; expected {} with magic {}", bin.string(),
                    int_at(bytes, 1), kind->version, kind->magic);
  }
  const int64_t num_tokens = int_at(bytes, 2);
  const int64_t expected = static_cast<int64_t>(kLlmcHeader) + num_tokens * size_of(kind->type);
  const auto size = static_cast<int64_t>(bytes.size());
  if (num_tokens < 0 || size != expected) {
    fail<DataError>("{}: {}: {} bytes, expected {}: a header of {} and {} tokens of {} bytes", bin.string(),
                    size < expected ? "truncated" : "wrong header", size, expected, kLlmcHeader, num_tokens,
                    size_of(kind->type));
  }
  return {bin.string(), std::move(file), bytes.data() + kLlmcHeader, kind->type, num_tokens, nullptr};
}

int64_t llmc_delimiter(const TokenPart& part) {
  return part.type == kLlmcKinds[0].type ? kLlmcKinds[0].delimiter : kLlmcKinds[1].delimiter;
}

TokenStream open_token_files(const std::vector<std::string>& files, spec::FileFormat format) {
  std::vector<TokenPart> parts;
  for (const std::string& file : files) {
    parts.push_back(format == spec::FileFormat::kMegatron  ? open_megatron(file)
                    : format == spec::FileFormat::kNanogpt ? open_nanogpt(file)
                                                           : open_llmc(file));
  }
  return TokenStream(std::move(parts));
}

}  // namespace trainer::tokens
