#include "data/text_classification.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>

#include "core/error.h"
#include "core/mix64.h"
#include "core/parallel_for.h"
#include "data/hash.h"

namespace trainer::data {
namespace {

constexpr size_t kKeepBelowBytes = size_t{256} << 20;  // files; their ids take about as much memory

// By name or number.
bool has_column(const records::DelimitedFile& file, std::string_view name) {
  const auto& columns = file.columns();
  if (std::find(columns.begin(), columns.end(), name) != columns.end()) return true;
  size_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() && number < columns.size();
}

}  // namespace

TextClassification::TextClassification(const spec::DataSource& source, LabelReader labels, Encode encode,
                                       bool needs_labels)
    : file_(source.path, source.format, source.quoting, source.header),
      labels_(std::move(labels)),
      encode_(std::move(encode)) {
  text_ = file_.column(source.text);
  if (!source.text_pair.empty()) pair_ = file_.column(source.text_pair);
  if (!source.label.empty() && (needs_labels || has_column(file_, source.label))) {
    label_ = file_.column(source.label);
  }
  if (size() == 0) fail<DataError>("{}: has no rows", file_.path());
  check_rows();
  if (file_.bytes().size() < kKeepBelowBytes) {
    kept_ = std::vector<std::atomic<const Sequence*>>(static_cast<size_t>(size()));
  }
}

TextClassification::~TextClassification() {
  for (const auto& sequence : kept_) delete sequence.load(std::memory_order_relaxed);
}

void TextClassification::check_rows() {
  std::string scratch;
  std::vector<double> values;
  text_bytes_.resize(static_cast<size_t>(size()));
  for (int64_t row = 0; row < size(); ++row) {
    size_t num_bytes = file_.cell(row, text_, scratch).size();
    if (pair_) num_bytes += file_.cell(row, *pair_, scratch).size();
    text_bytes_[static_cast<size_t>(row)] = static_cast<int32_t>(std::min<size_t>(num_bytes, INT32_MAX));
    if (!label_) continue;
    try {
      labels_.read(file_.cell(row, *label_, scratch), values);
    } catch (const DataError& error) {
      fail<DataError>("{}: {}: {}", where(row), file_.columns()[static_cast<size_t>(*label_)], error.what());
    }
  }
}

uint64_t TextClassification::fingerprint() const {
  const std::string_view bytes = file_.bytes();
  uint64_t hash = mix64(bytes.size());
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
    hash = mix64(hash ^ word);
  }
  return hash;
}

const TextClassification::Sequence& TextClassification::sequence(int64_t sample, Sequence& scratch) const {
  std::atomic<const Sequence*>* slot = kept_.empty() ? nullptr : &kept_[static_cast<size_t>(sample)];
  if (slot != nullptr) {
    if (const Sequence* kept = slot->load(std::memory_order_acquire)) return *kept;
  }
  std::string text_scratch, pair_scratch;
  text::TextPair input;
  input.text = file_.cell(sample, text_, text_scratch);
  if (pair_) input.pair = file_.cell(sample, *pair_, pair_scratch);
  input.has_pair = pair_.has_value();
  text::Encoding encoding = encode_(input);
  scratch.ids = std::move(encoding.ids);
  scratch.first_length =
      static_cast<int32_t>(std::count(encoding.token_types.begin(), encoding.token_types.end(), 0));
  if (slot == nullptr) return scratch;
  scratch.ids.shrink_to_fit();
  const auto* made = new Sequence(std::move(scratch));
  const Sequence* other = nullptr;  // of another thread that had the same sample in another epoch
  if (slot->compare_exchange_strong(other, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *other;
}

std::vector<int32_t> TextClassification::lengths(int64_t num_threads) const {
  std::vector<int32_t> lengths(static_cast<size_t>(size()));
  parallel_for(size(), 64, num_threads, [&](int64_t begin, int64_t end) {
    Sequence scratch;
    for (int64_t i = begin; i < end; ++i) {
      lengths[static_cast<size_t>(i)] = static_cast<int32_t>(sequence(i, scratch).ids.size());
    }
  });
  return lengths;
}

Batch TextClassification::batch(const std::vector<int64_t>& samples, uint64_t seed, int64_t epoch,
                                bool pinned) const {
  std::vector<Sequence> scratch(samples.size());
  std::vector<const Sequence*> sequences;
  int64_t num_tokens = 0;
  for (size_t b = 0; b < samples.size(); ++b) {
    sequences.push_back(&sequence(samples[b], scratch[b]));
    num_tokens += static_cast<int64_t>(sequences[b]->ids.size());
  }

  const auto num_samples = static_cast<int64_t>(samples.size());
  const auto options = at::TensorOptions().pinned_memory(pinned);
  const at::Tensor tokens = at::empty({4, num_tokens}, options.dtype(at::kLong));
  Batch batch;
  batch.input_ids = tokens[0];
  batch.token_type_ids = tokens[1];
  batch.position_ids = tokens[2];
  batch.row_keys = tokens[3];
  batch.cu_seqlens = at::empty({num_samples + 1}, options.dtype(at::kInt));
  batch.samples = samples;

  auto* ids = tokens.mutable_data_ptr<int64_t>();
  int64_t *types = ids + num_tokens, *positions = types + num_tokens, *keys = positions + num_tokens;
  auto* starts = batch.cu_seqlens.mutable_data_ptr<int32_t>();
  int32_t at = 0;
  for (size_t b = 0; b < samples.size(); ++b) {
    const Sequence& sequence = *sequences[b];
    const auto length = static_cast<int32_t>(sequence.ids.size());
    const uint64_t key = sample_key(seed, epoch, samples[b]);
    starts[b] = at;
    for (int32_t t = 0; t < length; ++t, ++at) {
      ids[at] = sequence.ids[static_cast<size_t>(t)];
      types[at] = t >= sequence.first_length;
      positions[at] = t;
      keys[at] = static_cast<int64_t>(mix64(key + static_cast<uint64_t>(t)));
    }
    batch.seqlens.push_back(length);
  }
  starts[samples.size()] = at;

  if (!label_) return batch;
  std::vector<int64_t> shape = {num_samples};
  if (labels_.width() > 1 || labels_.multi_label()) shape.push_back(labels_.width());
  batch.labels = at::empty(shape, options.dtype(labels_.integral() ? at::kLong : at::kFloat));
  std::string cell;
  std::vector<double> values;
  int64_t next = 0;
  for (const int64_t sample : samples) {
    labels_.read(file_.cell(sample, *label_, cell), values);
    for (const double value : values) {
      if (labels_.integral()) {
        batch.labels.mutable_data_ptr<int64_t>()[next++] = static_cast<int64_t>(value);
      } else {
        batch.labels.mutable_data_ptr<float>()[next++] = static_cast<float>(value);
      }
    }
  }
  return batch;
}

}  // namespace trainer::data
