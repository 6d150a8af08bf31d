#include "data/language.h"

#include <algorithm>
#include <thread>

#include "core/file.h"
#include "tokens/token_files.h"

namespace trainer::data {
namespace {

using spec::FileFormat;

std::shared_ptr<const text::Tokenizer> open_tokenizer(const Job& job, const std::string& training_text) {
  const spec::TokenizerSource& source = job.spec.data.tokenizer;
  const std::string path = source.path.empty() ? job.spec.model.pretrained : source.path;
  switch (source.type) {
    case spec::TokenizerType::kByte:
      return text::make_byte_tokenizer(false);
    case spec::TokenizerType::kChar:
      if (path.empty()) return text::make_char_tokenizer(training_text);
      return text::load_tokenizer(text::TokenizerKind::kChar, path);
    case spec::TokenizerType::kBpe:
      return text::load_tokenizer(text::TokenizerKind::kBpe, path);
    case spec::TokenizerType::kAuto:
      break;
  }
  return text::load_tokenizer(text::TokenizerKind::kAuto, path);
}

std::shared_ptr<const tokens::TokenStream> encode(const std::string& path, const std::string& text,
                                                  const text::Tokenizer& tokenizer) {
  auto ids = tokenizer.encode(text, std::max(1U, std::thread::hardware_concurrency()));
  std::vector<tokens::TokenPart> parts;
  parts.push_back(tokens::TokenPart::in_memory(path, std::move(ids), {0}));
  return std::make_shared<const tokens::TokenStream>(std::move(parts));
}

}  // namespace

LanguageData open_language(const Job& job) {
  const spec::Data& d = job.spec.data;
  LanguageData data;
  const std::string text = read_file(d.train.path);
  data.tokenizer = open_tokenizer(job, text);
  const auto stream = encode(d.train.path, text, *data.tokenizer);
  WindowOptions options{.length = d.max_length,
                        .vocab_size = data.tokenizer->vocab_size(),
                        .windows = d.windows,
                        .documents = d.documents};
  WindowOptions validation = options;
  validation.windows = spec::Windows::kEpoch;
  if (!d.validation.path.empty()) {
    const auto other = encode(d.validation.path, read_file(d.validation.path), *data.tokenizer);
    data.validation = std::make_shared<const TokenWindows>(other, validation);
  } else if (d.validation_fraction > 0) {
    options.end = static_cast<int64_t>(static_cast<double>(stream->size()) * (1 - d.validation_fraction));
    validation.begin = options.end;
    validation.end = stream->size();
    data.validation = std::make_shared<const TokenWindows>(stream, validation);
  }
  data.train = std::make_shared<const TokenWindows>(stream, options);
  return data;
}

}  // namespace trainer::data
