#include "data/text_classification.h"

namespace trainer::data {

std::shared_ptr<const TextClassification> open_text_classification(
    const Job& job, const spec::DataSource& source, std::shared_ptr<const text::WordPiece> tokenizer,
    bool needs_labels) {
  const spec::JobSpec& spec = job.spec;
  text::EncodeOptions options;
  options.max_length = spec.data.max_length;
  options.truncation = spec.data.truncation;
  return std::make_shared<TextClassification>(
      source, LabelReader(spec.model.problem_type, spec.model.num_labels, spec.data.label_names),
      [tokenizer = std::move(tokenizer), options](const text::TextPair& input) {
        return tokenizer->encode(input, options);
      },
      needs_labels);
}

}  // namespace trainer::data
