#pragma once

#include <cstdint>
#include <vector>

#include "core/error.h"
#include "core/parallel_for.h"

namespace trainer::text {

// encode(text, out) of each of the texts, in order, by an `encode` that each of the threads makes for itself, which takes
// `chunk` texts at a time. DataError names the first failing text by its index.
template <class Out, class Text, class MakeEncode>
std::vector<Out> encode_each(const std::vector<Text>& texts, int64_t chunk, int64_t num_threads,
                             const MakeEncode& make_encode) {
  std::vector<Out> out(texts.size());
  parallel_for(static_cast<int64_t>(texts.size()), chunk, num_threads, [&]() -> LoopBody {
    return [&, encode = make_encode()](int64_t begin, int64_t end) mutable {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        try {
          encode(texts[i], out[i]);
        } catch (const DataError& e) {
          fail<DataError>("text {} of {}: {}", i, texts.size(), e.what());
        }
      }
    };
  });
  return out;
}

}  // namespace trainer::text
