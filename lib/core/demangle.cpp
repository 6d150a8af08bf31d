#include "core/demangle.h"

#include <cxxabi.h>

#include <cctype>
#include <cstdlib>
#include <memory>

namespace trainer {
namespace {

constexpr size_t kMostBytes = 160;  // LibTorch's templates fill pages

}  // namespace

std::string demangle(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> readable(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  if (status != 0) return symbol;
  std::string text = readable.get();
  if (text.size() > kMostBytes)
    text = text.substr(0, kMostBytes - 40) + " ... " + text.substr(text.size() - 35);
  return text;
}

std::string demangle_words(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t at = text.find("_Z");
    result += text.substr(0, at);
    if (at == std::string_view::npos) break;
    text.remove_prefix(at);
    size_t end = 2;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 ||
                                 text[end] == '_' || text[end] == '.' || text[end] == '$')) {
      ++end;
    }
    result += demangle(std::string(text.substr(0, end)).c_str());
    text.remove_prefix(end);
  }
  return result;
}

}  // namespace trainer
