#include "data/open_windows.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/log.h"
#include "job/faults.h"
#include "spec/enums.h"
#include "tokens/metadata.h"
#include "tokens/source.h"
#include "tokens/token_files.h"
#include "tokens/tokenize.h"

namespace trainer::data {
namespace {

namespace fs = std::filesystem;
using text::Tokenizer;

std::optional<tokens::Metadata> metadata_of(const tokens::Source& source) {
  return source.is_tokens() ? tokens::read_metadata(source.files[0]) : std::nullopt;
}

// Tokens that prepare wrote are of one tokenizer.
void check_same(const Tokenizer& tokenizer, const std::string& which, const tokens::Metadata& metadata,
                const std::string& path) {
  if (tokens::vocabulary_hash(tokenizer) == metadata.vocabulary_hash) return;
  fail<SpecError>(
      "{}: its tokens were made with another tokenizer ({} tokens) than {} ({}); expected the same\nhint: "
      "leave "
      "data.tokenizer out, or run trainer prepare with this one",
      path, metadata.vocab_size, which, tokenizer.vocab_size());
}

// data.tokenizer's place, for messages.
std::string place_of(const Job& job) {
  const JobFaults faults(job.spec.said);
  std::string key = "data.tokenizer";
  for (const char* more : {".path", ".type"}) {
    if (job.spec.said.contains("data.tokenizer" + std::string(more))) {
      key += more;
      break;
    }
  }
  const std::string where = faults.where(key);
  if (where.empty()) return key;
  return where.ends_with(key) ? where : where + ": " + key;  // "--set data.tokenizer.path" names it
}

// One that the job names, or that of its pretrained model; null: neither.
std::shared_ptr<const Tokenizer> named_tokenizer(const Job& job, std::string& which) {
  const spec::TokenizerSource& said = job.spec.data.tokenizer;
  if (!said.path.empty()) {
    which = "data.tokenizer.path " + said.path;
    try {
      return text::load_tokenizer(said.type, said.path);
    } catch (const DataError& error) {
      fail<DataError>("{}: {}", place_of(job), error.what());
    }
  }
  const bool may_be_pretrained =
      said.type == spec::TokenizerType::kAuto || said.type == spec::TokenizerType::kBpe;
  if (!job.spec.model.pretrained.empty() && may_be_pretrained &&
      text::has_tokenizer(job.spec.model.pretrained)) {
    which = "model.pretrained's";
    return text::load_tokenizer(said.type, job.spec.model.pretrained);
  }
  return nullptr;
}

// The bytes of a token; empty: there is none.
std::string_view bytes_of(const Tokenizer& tokenizer, int32_t id) {
  try {
    return tokenizer.token_bytes(id);
  } catch (const DataError&) {  // a gap in the vocabulary
    return {};
  }
}

// Pretrained embeddings mean the tokens of their directory's own tokenizer. Another one may have fewer, or more behind.
void check_fits_pretrained(const Job& job, const Tokenizer& tokenizer) {
  const spec::Model& model = job.spec.model;
  const bool is_own = job.spec.data.tokenizer == spec::TokenizerSource();
  if (is_own || model.pretrained.empty() || model.init != spec::ModelInit::kPretrained ||
      !text::has_tokenizer(model.pretrained)) {
    return;
  }
  const auto warn = [&](const std::string& text) {
    if (job.world.is_main()) log_warning("{}: {}", place_of(job), text);
  };
  std::shared_ptr<const Tokenizer> own;
  try {
    own = text::load_tokenizer(spec::TokenizerType::kAuto, model.pretrained);
  } catch (const DataError& error) {  // of a kind that is not known here
    return warn(fmt::format("cannot be compared with model.pretrained's own: {}", error.what()));
  }
  int64_t num_more = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = bytes_of(tokenizer, id), own_bytes = bytes_of(*own, id);
    if (bytes == own_bytes || bytes.empty()) continue;
    if (!own_bytes.empty()) {
      fail<SpecError>(
          "{}: token {} is {}, and {} in {}, whose weights are to be trained on; expected the same tokens\n"
          "hint: leave data.tokenizer out, or say model.init: random",
          place_of(job), id, spec::shown(bytes), spec::shown(own_bytes), model.pretrained);
    }
    ++num_more;
  }
  if (num_more > 0) {
    warn(fmt::format("has {} tokens more than model.pretrained's own tokenizer: are they in its weights?",
                     num_more));
  }
}

std::shared_ptr<const tokens::TokenStream> open_stream(const Job& job, const spec::DataSource& said,
                                                       const Tokenizer* tokenizer, int64_t vocab_size,
                                                       int64_t num_threads) {
  const tokens::Source source = tokens::find_source(said.path, said.format);
  if (!source.is_tokens()) {
    const tokens::TokenizeOptions options{said.text, true, num_threads};
    std::vector<tokens::TokenPart> parts;
    parts.push_back(tokens::tokenize_in_memory(source, said.path, *tokenizer, options));
    return std::make_shared<const tokens::TokenStream>(std::move(parts));
  }
  auto stream = std::make_shared<tokens::TokenStream>(tokens::open_token_files(source.files, source.format));
  if (const auto metadata = metadata_of(source)) {
    if (tokenizer != nullptr) check_same(*tokenizer, "the job's", *metadata, said.path);
    if (metadata->vocab_size > vocab_size) {
      fail<DataError>("{}: has ids up to {}; expected less than {}, the model's vocabulary", said.path,
                      metadata->vocab_size - 1, vocab_size);
    }
  } else {
    constexpr int64_t kAll = int64_t{4} << 30, kFirst = int64_t{1} << 30;  // bytes
    int64_t bytes = 0;
    for (const tokens::TokenPart& part : stream->parts()) bytes += part.size * tokens::size_of(part.type);
    const int64_t end = bytes <= kAll ? stream->size() : kFirst / tokens::size_of(stream->parts()[0].type);
    if (const int64_t bad = stream->find_outside(0, std::min(end, stream->size()), vocab_size, num_threads);
        bad >= 0) {
      int64_t id = 0;
      stream->read(bad, 1, &id);
      fail<DataError>("{}: got id {}; expected 0 to {}, the model's vocabulary", stream->where(bad), id,
                      vocab_size - 1);
    }
  }
  if (job.spec.data.documents == spec::Documents::kSeparate && !stream->has_documents()) {
    if (source.format == spec::FileFormat::kLlmc) {
      stream->find_documents(tokens::llmc_delimiter(stream->parts()[0]), true, num_threads);
    } else if (tokenizer != nullptr && tokenizer->eos_id()) {
      stream->find_documents(*tokenizer->eos_id(), false, num_threads);
    } else {
      fail<SpecError>(
          "data.documents: got separate, but where documents end in {} is not known; expected data.tokenizer "
          "with an "
          "end-of-text token",
          said.path);
    }
  }
  return stream;
}

std::shared_ptr<const Tokenizer> choose_tokenizer(const Job& job, int64_t num_threads) {
  const spec::Data& data = job.spec.data;
  const tokens::Source source = tokens::find_source(data.train.path, data.train.format);
  const auto metadata = metadata_of(source);
  std::string which;
  std::shared_ptr<const Tokenizer> named = named_tokenizer(job, which);
  if (metadata) {
    if (named != nullptr) {
      check_same(*named, which, *metadata, data.train.path);
      return named;
    }
    return text::load_tokenizer(data.tokenizer.type,
                                fs::path(source.files[0]).parent_path() / metadata->tokenizer);
  }
  if (named != nullptr) return named;
  if (data.tokenizer.type == spec::TokenizerType::kByte) return text::make_byte_tokenizer(true);
  if (data.tokenizer.type == spec::TokenizerType::kChar && !source.is_tokens()) {
    return text::make_char_tokenizer(tokens::distinct_characters(source, data.train.text, num_threads));
  }
  if (source.is_tokens() && data.tokenizer.type == spec::TokenizerType::kAuto) return nullptr;
  const bool is_bare = !job.spec.model.pretrained.empty() && !text::has_tokenizer(job.spec.model.pretrained);
  fail<SpecError>("{}: got {} without a path{}; expected {}", place_of(job),
                  spec::to_string(data.tokenizer.type),
                  is_bare ? ", and model.pretrained has no tokenizer.json and no vocab.json" : "",
                  source.is_tokens() ? "the directory of the tokenizer that made the tokens"
                                     : "path (the directory of a tokenizer), or type char or byte");
}

}  // namespace

std::shared_ptr<const Tokenizer> open_tokenizer(const Job& job, int64_t num_threads) {
  const auto tokenizer = choose_tokenizer(job, num_threads);
  if (tokenizer != nullptr) check_fits_pretrained(job, *tokenizer);
  return tokenizer;
}

WindowSets open_windows(const Job& job, const std::shared_ptr<const Tokenizer>& tokenizer, int64_t vocab_size,
                        int64_t num_threads) {
  const spec::Data& data = job.spec.data;
  if (tokenizer != nullptr && tokenizer->vocab_size() > vocab_size) {
    fail<SpecError>(
        "model.gpt.vocab_size: the model has {} tokens and the tokenizer {}; expected no more than the "
        "model's",
        vocab_size, tokenizer->vocab_size());
  }
  WindowOptions options;
  options.length = data.max_length;
  options.vocab_size = vocab_size;
  options.windows = data.windows;
  options.documents = data.documents;
  const auto stream = open_stream(job, data.train, tokenizer.get(), vocab_size, num_threads);
  WindowOptions of_validation = options;
  of_validation.windows = spec::Windows::kEpoch;
  WindowSets sets;
  if (!data.validation.path.empty()) {
    if (tokenizer == nullptr &&
        !tokens::find_source(data.validation.path, data.validation.format).is_tokens()) {
      fail<SpecError>(
          "data.validation.path: got text, and no tokenizer is known; expected tokens, or data.tokenizer");
    }
    sets.validation = std::make_shared<const TokenWindows>(
        data.validation == data.train
            ? stream
            : open_stream(job, data.validation, tokenizer.get(), vocab_size, num_threads),
        of_validation);
  } else if (data.validation_fraction > 0) {
    options.end = of_validation.begin = tokens::validation_begin(*stream, data.validation_fraction);
    if (const int64_t kept = stream->size() - of_validation.begin; kept <= data.max_length) {
      fail<DataError>(
          "{}: {} tokens for validation, expected at least {} (data.max_length and one more)\nhint: raise "
          "data.validation_fraction",
          data.train.path, kept, data.max_length + 1);
    }
    sets.validation = std::make_shared<const TokenWindows>(stream, of_validation);
  }
  sets.train = std::make_shared<const TokenWindows>(stream, options);
  return sets;
}

at::Tensor token_byte_lengths(const Tokenizer& tokenizer, int64_t vocab_size) {
  at::Tensor lengths = at::zeros({vocab_size}, at::kInt);
  auto* data = lengths.mutable_data_ptr<int32_t>();
  for (int64_t id = 0; id < std::min(vocab_size, tokenizer.vocab_size()); ++id) {
    const auto token = static_cast<int32_t>(id);
    try {
      if (!tokenizer.is_special(token)) data[id] = static_cast<int32_t>(tokenizer.token_bytes(token).size());
    } catch (const DataError&) {  // a gap in the vocabulary
    }
  }
  return lengths;
}

}  // namespace trainer::data
