#include "data/labels.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "spec/fault.h"

namespace trainer::data {
namespace {

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::string quote(std::string_view text) {
  constexpr size_t kMost = 40;
  return fmt::format("\"{}{}\"", text.substr(0, kMost), text.size() > kMost ? "..." : "");
}

template <class Number>
bool parse(std::string_view text, Number& number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && stop == text.data() + text.size();
}

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t stop = std::min(text.find_first_of(separators), text.size());
    if (const std::string_view word = trim(text.substr(0, stop)); !word.empty()) words.push_back(word);
    text.remove_prefix(std::min(stop + 1, text.size()));
  }
  return words;
}

}  // namespace

LabelReader::LabelReader(spec::ProblemType problem, int64_t num_labels, std::vector<std::string> names)
    : problem_(problem), num_labels_(num_labels), names_(std::move(names)) {
  if (!names_.empty() && static_cast<int64_t>(names_.size()) != num_labels_) {
    fail<DataError>("data.label_names: got {} names; expected {} (model.num_labels)", names_.size(),
                    num_labels_);
  }
  for (const std::string& name : names_) {
    int64_t number = 0;
    if (parse(name, number)) integers_ = false;
  }
}

int64_t LabelReader::width() const {
  return integral() ? 1 : num_labels_;
}

int64_t LabelReader::class_of(std::string_view word) const {
  if (const auto name = std::find(names_.begin(), names_.end(), word); name != names_.end()) {
    return name - names_.begin();
  }
  int64_t number = 0;
  if (integers_ && parse(word, number) && number >= 0 && number < num_labels_) return number;
  if (names_.empty()) {
    fail<DataError>("got {}; expected an integer from 0 to {} (model.num_labels is {})", quote(word),
                    num_labels_ - 1, num_labels_);
  }
  fail<DataError>("got {}; expected one of {}{}", quote(word), fmt::join(names_, ", "),
                  spec::did_you_mean(word, {names_.begin(), names_.end()}));
}

void LabelReader::read(std::string_view cell, std::vector<double>& values) const {
  values.assign(static_cast<size_t>(width()), 0.0);
  switch (problem_) {
    case spec::ProblemType::kSingleLabel:
      values[0] = static_cast<double>(class_of(trim(cell)));
      return;
    case spec::ProblemType::kMultiLabel:
      for (const std::string_view word : split(cell, names_.empty() ? ",| " : ",|")) {
        values[static_cast<size_t>(class_of(word))] = 1.0;
      }
      return;
    case spec::ProblemType::kRegression: {
      const std::vector<std::string_view> words = split(cell, ",| ");
      bool good = words.size() == values.size();
      for (size_t i = 0; good && i < words.size(); ++i) {
        good = parse(words[i], values[i]) && std::isfinite(values[i]);
      }
      if (good) return;
      if (num_labels_ == 1) fail<DataError>("got {}; expected a finite number", quote(cell));
      fail<DataError>("got {}; expected {} finite numbers (model.num_labels)", quote(cell), num_labels_);
    }
  }
}

}  // namespace trainer::data
