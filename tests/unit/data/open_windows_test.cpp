#include "data/open_windows.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "temporary_directory.h"
#include "tokens/metadata.h"
#include "tokens/prepare.h"

using namespace trainer::data;
using Catch::Matchers::Message;
using trainer::DataError;
using trainer::Job;
using trainer::SpecError;
using trainer::spec::Documents;
using trainer::spec::TokenizerType;
using trainer::spec::Windows;

namespace {

constexpr char kText[] =
    "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n";

Job job_of(const std::string& path) {
  Job job;
  job.spec.data.train.path = path;
  job.spec.data.train.text = job.spec.data.validation.text = "text";
  job.spec.data.max_length = 8;
  return job;
}

WindowSets open(const Job& job) {
  const auto tokenizer = open_tokenizer(job, 2);
  return open_windows(job, tokenizer, tokenizer == nullptr ? 50257 : tokenizer->vocab_size(), 2);
}

// The text that windows read, input by input.
std::string text_of(const TokenWindows& windows, const trainer::text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < windows.size(); ++i) {
    const Batch batch = windows.batch({i}, 0, 0, false);
    for (int64_t t = 0; t < batch.num_tokens(); ++t) {
      ids.push_back(static_cast<int32_t>(batch.input_ids.const_data_ptr<int64_t>()[t]));
    }
  }
  return tokenizer.decode(ids);
}

std::string prepare(const TemporaryDirectory& dir, const std::string& tokenizer, double fraction = 0) {
  trainer::tokens::PrepareOptions options;
  options.inputs = {dir.write("text.txt", kText)};
  options.output = (dir.path / "out").string();
  options.tokenizer = tokenizer;
  options.validation_fraction = fraction;
  trainer::tokens::prepare(options);
  return options.output;
}

}  // namespace

TEST_CASE("text is trained on as it is, its last part kept for validation") {
  const TemporaryDirectory dir;
  Job job = job_of(dir.write("a.txt", kText));
  job.spec.data.tokenizer.type = TokenizerType::kChar;
  job.spec.data.validation_fraction = 0.25;
  job.spec.data.windows = Windows::kRandom;
  const auto tokenizer = open_tokenizer(job, 1);
  const WindowSets sets = open_windows(job, tokenizer, tokenizer->vocab_size(), 1);
  const std::string text = kText;
  const size_t cut = text.size() * 3 / 4;
  CHECK(sets.train->num_tokens() == static_cast<int64_t>(cut));
  CHECK(sets.train->size() == static_cast<int64_t>(cut - 1) / 8);
  // Every one but the last, which is a target alone.
  CHECK(text_of(*sets.validation, *tokenizer) == text.substr(cut, text.size() - cut - 1));
}

TEST_CASE("documents of JSON lines may be separate") {
  const TemporaryDirectory dir;
  Job job = job_of(dir.write("a.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"defghijk\"}\n"));
  job.spec.data.tokenizer.type = TokenizerType::kByte;
  job.spec.data.documents = Documents::kSeparate;
  const WindowSets sets = open(job);
  CHECK(sets.train->batch({0}, 0, 0, false).seqlens == std::vector<int32_t>{4, 4});
  CHECK(sets.validation == nullptr);
  job.spec.data.validation.path = dir.write("v.jsonl", "{\"text\": \"123456789\"}\n");
  CHECK(open(job).validation->num_tokens() == 10);
}

TEST_CASE("tokens that prepare wrote find their tokenizer beside them") {
  const TemporaryDirectory dir;
  Job job = job_of(prepare(dir, "char", 0.25) + "_train");
  job.spec.data.validation.path = (dir.path / "out_validation.idx").string();
  const auto tokenizer = open_tokenizer(job, 1);
  REQUIRE(tokenizer != nullptr);
  const WindowSets sets = open_windows(job, tokenizer, tokenizer->vocab_size(), 1);
  const std::string text = kText;
  const size_t cut = text.size() * 3 / 4;
  CHECK(text_of(*sets.train, *tokenizer) == text.substr(0, cut - 1));
  CHECK(text_of(*sets.validation, *tokenizer) == text.substr(cut, text.size() - cut - 1));
}

TEST_CASE("tokens and a job of different tokenizers are refused") {
  const TemporaryDirectory dir;
  Job job = job_of(prepare(dir, "char"));
  const TemporaryDirectory other;
  prepare(other, "byte");
  job.spec.data.tokenizer.path = (other.path / "out_tokenizer").string();
  CHECK_THROWS_MATCHES(
      open_tokenizer(job, 1), SpecError,
      Message(job.spec.data.train.path +
              ": its tokens were made with another tokenizer (23 tokens) than data.tokenizer.path " +
              job.spec.data.tokenizer.path +
              " (257); expected the same\nhint: leave data.tokenizer out, or run trainer prepare with "
              "this one"));
  job.spec.data.tokenizer.path.clear();
  job.spec.data.validation.path = (other.path / "out").string();
  CHECK_THROWS_MATCHES(
      open(job), SpecError,
      Message(job.spec.data.validation.path +
              ": its tokens were made with another tokenizer (257 tokens) than the job's (23); expected "
              "the same\nhint: leave data.tokenizer out, or run trainer prepare with this one"));
}

TEST_CASE("a model with fewer tokens than the tokenizer or the data is refused") {
  const TemporaryDirectory dir;
  Job job = job_of(prepare(dir, "byte"));
  const auto tokenizer = open_tokenizer(job, 1);
  CHECK_NOTHROW(open_windows(job, tokenizer, 257, 1));
  CHECK_THROWS_MATCHES(
      open_windows(job, tokenizer, 256, 1), SpecError,
      Message("model.gpt.vocab_size: the model has 256 tokens and the tokenizer 257; expected no more "
              "than the model's"));
  CHECK_THROWS_MATCHES(open_windows(job, nullptr, 256, 1), DataError,
                       Message(job.spec.data.train.path +
                               ": has ids up to 256; expected less than 256, the model's vocabulary"));
  // Files of other programs are looked through.
  Job other = job_of(TEST_DATA "/tokens/nanogpt.bin");
  CHECK(open_tokenizer(other, 1) == nullptr);
  CHECK_NOTHROW(open_windows(other, nullptr, 50257, 1));
  CHECK_THROWS_MATCHES(
      open_windows(other, nullptr, 50256, 1), DataError,
      Message(TEST_DATA "/tokens/nanogpt.bin: token 4: got id 50256; expected 0 to 50255, the model's "
                        "vocabulary"));
}

TEST_CASE("documents of files without an index are found by their end-of-text token") {
  const TemporaryDirectory dir;
  Job job = job_of(TEST_DATA "/tokens/llmc_gpt2.bin");
  job.spec.data.documents = Documents::kSeparate;
  job.spec.data.max_length = 6;
  CHECK(open(job).train->batch({0}, 0, 0, false).seqlens == std::vector<int32_t>{3, 3});
  job.spec.data.train.path = dir.write("a.bin", std::string("a\0\0\x01"
                                                            "b\0c\0d\0",
                                                            10));
  job.spec.data.max_length = 4;
  CHECK_THROWS_MATCHES(
      open(job), SpecError,
      Message("data.documents: got separate, but where documents end in " + job.spec.data.train.path +
              " is not known; expected data.tokenizer with an end-of-text token"));
  job.spec.data.tokenizer.type = TokenizerType::kByte;
  CHECK(open(job).train->batch({0}, 0, 0, false).seqlens == std::vector<int32_t>{2, 2});
}

TEST_CASE("tokens of prepare without their index are refused") {
  const TemporaryDirectory dir;
  const Job job = job_of(prepare(dir, "char"));
  std::filesystem::remove(dir.path / "out.idx");
  CHECK_THROWS_MATCHES(
      open(job), SpecError,
      Message((dir.path / "out.idx").string() + ": no such file; " + (dir.path / "out.bin").string() +
              " is of trainer prepare, which wrote it beside"));
}

TEST_CASE("a pretrained model takes no tokenizer of other tokens than its own") {
  const TemporaryDirectory dir;
  Job job = job_of(dir.write("a.txt", "abab"));
  const auto tokenizer_of = [&](const std::string& name, const std::string& characters) {
    for (const auto& file : trainer::text::make_char_tokenizer(characters)->files())
      dir.write(name + "/" + file.name, file.contents);
    return (dir.path / name).string();
  };
  job.spec.model.pretrained = tokenizer_of("model", "abc");
  for (const char* characters : {"abc", "ab", "abcd"}) {  // the same, fewer; more is warned of
    job.spec.data.tokenizer.path = tokenizer_of(characters, characters);
    CHECK(open_tokenizer(job, 1)->vocab_size() == static_cast<int64_t>(std::string(characters).size()));
  }
  job.spec.data.tokenizer.path = tokenizer_of("other", "bc");
  CHECK_THROWS_MATCHES(open_tokenizer(job, 1), SpecError,
                       Message("data.tokenizer: token 0 is \"b\", and \"a\" in " + job.spec.model.pretrained +
                               ", whose weights are to be trained on; expected the same tokens\nhint: leave "
                               "data.tokenizer out, or say model.init: random"));
  job.spec.model.init = trainer::spec::ModelInit::kRandom;
  CHECK_NOTHROW(open_tokenizer(job, 1));
  // What is wrong with a tokenizer is told at the key's place.
  job.spec.data.tokenizer.path = dir.path.string();
  for (const auto& [where, begin] : {std::pair{"job.yaml:7:3", "job.yaml:7:3: data.tokenizer.path: "},
                                     std::pair{"--set data.tokenizer.path", "--set data.tokenizer.path: "}}) {
    job.spec.said.places["data.tokenizer.path"].where = where;
    CHECK_THROWS_WITH(open_tokenizer(job, 1), Catch::Matchers::StartsWith(begin + dir.path.string() +
                                                                          ": no byte-level BPE tokenizer"));
  }
}

TEST_CASE("text needs a tokenizer") {
  const TemporaryDirectory dir;
  Job job = job_of(dir.write("a.txt", kText));
  CHECK_THROWS_MATCHES(
      open_tokenizer(job, 1), SpecError,
      Message("data.tokenizer: got auto without a path; expected path (the directory of a tokenizer), "
              "or type char or byte"));
  job.spec.model.pretrained = dir.path.string();
  CHECK_THROWS_MATCHES(open_tokenizer(job, 1), SpecError,
                       Message("data.tokenizer: got auto without a path, and model.pretrained has no "
                               "tokenizer.json and no vocab.json; "
                               "expected path (the directory of a tokenizer), or type char or byte"));
  Job tokens = job_of(TEST_DATA "/tokens/nanogpt.bin");
  tokens.spec.data.tokenizer.type = TokenizerType::kChar;
  CHECK_THROWS_MATCHES(
      open_tokenizer(tokens, 1), SpecError,
      Message("data.tokenizer: got char without a path; expected the directory of the tokenizer that "
              "made the tokens"));
  tokens.spec.data.tokenizer.type = TokenizerType::kAuto;
  tokens.spec.data.validation.path = job.spec.data.train.path;
  CHECK_THROWS_MATCHES(
      open(tokens), SpecError,
      Message("data.validation.path: got text, and no tokenizer is known; expected tokens, or "
              "data.tokenizer"));
}

TEST_CASE("a context longer than the data is refused") {
  Job job = job_of(TEST_DATA "/tokens/nanogpt.bin");
  job.spec.data.max_length = 13;
  CHECK_THROWS_MATCHES(
      open(job), DataError,
      Message(TEST_DATA "/tokens/nanogpt.bin: 13 tokens, expected at least 14 (data.max_length and one "
                        "more)\nhint: lower data.max_length"));
}

TEST_CASE("a damaged file of metadata is refused") {
  const TemporaryDirectory dir;
  const Job job = job_of(prepare(dir, "char"));
  dir.write("out.json", "{\"format\": \"trainer tokens\", \"vocab_size\": 3}");
  CHECK_THROWS_WITH(open(job), Catch::Matchers::StartsWith((dir.path / "out.json").string() +
                                                           ": is not as trainer prepare writes it: "));
  dir.write("out.json", "{\"other\": \"program\"}");
  CHECK(open_tokenizer(job, 1) == nullptr);
}

TEST_CASE("tokens know the bytes that they stand for") {
  const auto tokenizer = trainer::text::make_char_tokenizer("a\xe2\x82\xac");
  const at::Tensor lengths = token_byte_lengths(*tokenizer, 4);
  const std::vector<int32_t> expected = {1, 3, 0, 0};
  CHECK(std::vector<int32_t>(lengths.const_data_ptr<int32_t>(), lengths.const_data_ptr<int32_t>() + 4) ==
        expected);
  CHECK(token_byte_lengths(*trainer::text::make_byte_tokenizer(true), 257)[256].item<int32_t>() == 0);
}
