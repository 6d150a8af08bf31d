#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "spec/describe.h"
#include "spec/load.h"
#include "spec/visit.h"

namespace trainer::spec {
namespace {

// In double quotes unless it is a word that no YAML version reads as anything else; ${ is escaped, so that a
// saved spec means the same wherever it is read.
std::string scalar(const std::string& text) {
  static const std::vector<std::string_view> reserved = {"true", "false", "null", "yes", "no",
                                                         "on",   "off",   "y",    "n"};
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '/' || c == '.' || c == '-';
  };
  if (!text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) &&
      std::all_of(text.begin(), text.end(), is_plain) &&
      std::find(reserved.begin(), reserved.end(), lower) == reserved.end()) {
    return text;
  }
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '$' && i + 1 < text.size() && text[i + 1] == '{') {
      out += "$$";
    } else if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string scalar(bool value) {
  return value ? "true" : "false";
}
std::string scalar(int64_t value) {
  return std::to_string(value);
}
std::string scalar(double value) {
  std::string text = fmt::format("{}", value);  // the shortest that reads back to the same
  // YAML 1.1 takes 5e-05 for a string and 1e+20 too: the mantissa needs its point.
  if (text.find('.') == std::string::npos) text.insert(std::min(text.find('e'), text.size()), ".0");
  return text;
}
template <EnumField E>
std::string scalar(E value) {
  return std::string(to_string(value));
}

struct Writer {
  std::string out;
  int depth = 0;

  template <class T>
  void operator()(std::string_view key, T& field, const Rule&, std::string_view) {
    out += fmt::format("{:{}}{}:", "", 2 * depth, key);
    write(field);
  }
  template <class T>
  void inherit(T&, const T&) {}

  template <class T>
  void write(T& field) {
    if constexpr (SectionField<T>) {
      out += '\n';
      ++depth;
      describe(*this, field);
      --depth;
    } else if constexpr (OptionalField<T>) {
      out += fmt::format(" {}\n", field ? scalar(*field) : "null");
    } else if constexpr (ListField<T>) {
      out += " [";
      for (size_t i = 0; i < field.size(); ++i) out += (i > 0 ? ", " : "") + scalar(field[i]);
      out += "]\n";
    } else if constexpr (MapField<T>) {
      out += field.empty() ? " {}\n" : "\n";
      ++depth;
      for (auto& [name, value] : field) {
        out += fmt::format("{:{}}{}:", "", 2 * depth, scalar(name));
        write(value);
      }
      --depth;
    } else {
      out += fmt::format(" {}\n", scalar(field));
    }
  }
};

}  // namespace

std::string to_yaml(const JobSpec& spec) {
  JobSpec copy = spec;  // a visitor may write
  Writer writer;
  describe(writer, copy);
  return writer.out;
}

}  // namespace trainer::spec
