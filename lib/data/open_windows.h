#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "data/token_windows.h"
#include "job/job.h"
#include "text/tokenizer.h"

namespace trainer::data {

// The tokenizer of a job of model.type gpt: data.tokenizer's, else the one that `trainer prepare` left beside the tokens,
// else that of model.pretrained. Null: the data are tokens of other programs, and none is said. The characters of
// type char are those of data.train. Throws SpecError, also when tokens were made with another one or a pretrained model is
// of other tokens, and DataError.
std::shared_ptr<const text::Tokenizer> open_tokenizer(const Job& job, int64_t num_threads);

struct WindowSets {
  std::shared_ptr<const TokenWindows> train;
  std::shared_ptr<const TokenWindows>
      validation;  // null: none; consecutive windows, whatever data.windows says
};

// The job's datasets, for a model of `vocab_size`; text is tokenized now. The ids of files are looked at before the
// first step: all of them in files up to 4 GiB and those that prepare wrote (it knows the largest), else the first
// 1 GiB; batches look at every one. Throws SpecError and DataError. `tokenizer` may be null as above.
WindowSets open_windows(const Job& job, const std::shared_ptr<const text::Tokenizer>& tokenizer,
                        int64_t vocab_size, int64_t num_threads);

// Bytes of text that each token stands for, [vocab_size] int32 on the CPU: special tokens and what is no token, 0. For
// bits per byte: byte_lengths.index_select(0, labels) where there is a target.
at::Tensor token_byte_lengths(const text::Tokenizer& tokenizer, int64_t vocab_size);

}  // namespace trainer::data
