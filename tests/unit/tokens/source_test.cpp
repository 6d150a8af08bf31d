#include "tokens/source.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "core/file.h"
#include "temporary_directory.h"

using namespace trainer::tokens;
using Catch::Matchers::Message;
using trainer::DataError;
using trainer::SpecError;
using trainer::spec::FileFormat;

namespace {

FileFormat format_of(const std::string& path) {
  return find_source(path, FileFormat::kAuto).format;
}

}  // namespace

TEST_CASE("the format of a file is known by its extension and its first bytes") {
  const TemporaryDirectory dir;
  CHECK(format_of(dir.write("a.txt", "x")) == FileFormat::kText);
  CHECK(format_of(dir.write("README", "words")) == FileFormat::kText);
  CHECK(format_of(dir.write("a.jsonl", "{}")) == FileFormat::kJsonl);
  CHECK(format_of(dir.write("a.parquet", "")) == FileFormat::kParquet);
  CHECK(format_of(dir.write("part-0", "PAR1...")) == FileFormat::kParquet);
  CHECK(format_of(dir.write("a.bin", "ab")) == FileFormat::kNanogpt);
  CHECK(format_of(TEST_DATA "/tokens/llmc_gpt2.bin") == FileFormat::kLlmc);
  CHECK(format_of(TEST_DATA "/tokens/megatron_int32.bin") == FileFormat::kMegatron);
  CHECK(find_source(dir.write("b.log", "x"), FileFormat::kJsonl).format == FileFormat::kJsonl);
}

TEST_CASE(
    "tokens are named by their .bin, their .idx, what both begin with, or what their shards begin with") {
  const std::string bin = TEST_DATA "/tokens/megatron_int32.bin";
  for (const char* name : {".bin", ".idx", ""}) {
    const Source source =
        find_source(TEST_DATA "/tokens/megatron_int32" + std::string(name), FileFormat::kAuto);
    CHECK(source.files == std::vector<std::string>{bin});
    CHECK(source.is_tokens());
  }
  const TemporaryDirectory dir;
  const std::string b = dir.write("x[1]_00001.bin", "ab"), a = dir.write("x[1]_00000.bin", "ab");
  dir.write("x[1]_train_00000.bin", "ab");
  CHECK(find_source((dir.path / "x[1]").string(), FileFormat::kAuto).files == std::vector<std::string>{a, b});
}

TEST_CASE("directories and patterns are files in order") {
  const TemporaryDirectory dir;
  const std::string b = dir.write("b.txt", "x"), a = dir.write("a.txt", "x");
  dir.write("notes.md", "x");
  dir.write(".hidden.txt", "x");
  const std::vector<std::string> both = {a, b};
  CHECK(find_source(dir.path.string(), FileFormat::kAuto).files == both);
  CHECK(find_source((dir.path / "*.txt").string(), FileFormat::kAuto).files == both);
  CHECK(find_source((dir.path / "{b,a}.txt").string(), FileFormat::kText).files ==
        std::vector<std::string>{b, a});

  dir.write("c.jsonl", "{}");
  CHECK(find_source(dir.path.string(), FileFormat::kText).files == both);
  CHECK_THROWS_MATCHES(
      find_source(dir.path.string(), FileFormat::kAuto), DataError,
      Message(dir.path.string() +
              ": a directory with files of several kinds (.jsonl .txt); expected one\nhint: give a "
              "pattern, " +
              dir.path.string() + "/*.jsonl"));
  CHECK_THROWS_MATCHES(find_source((dir.path / "[ac].*").string(), FileFormat::kAuto), DataError,
                       Message(a + ": is text, and " + (dir.path / "c.jsonl").string() +
                               " is jsonl; expected files of one kind"));
}

TEST_CASE("what is not there, or not meant, is refused") {
  const TemporaryDirectory dir;
  const std::string path = dir.path.string();
  CHECK_THROWS_MATCHES(
      find_source(path, FileFormat::kAuto), DataError,
      Message(path + ": a directory without such files; expected some of .txt .text .jsonl .ndjson "
                     ".parquet .bin"));
  CHECK_THROWS_MATCHES(find_source(path + "/none", FileFormat::kAuto), SpecError,
                       Message(path + "/none: no such file"));
  CHECK_THROWS_MATCHES(find_source(path + "/*.x", FileFormat::kAuto), SpecError,
                       Message(path + "/*.x: no file matches"));
  const std::string merges = dir.write("tokenizer/merges.txt", "a b");
  CHECK_THROWS_MATCHES(find_source(merges, FileFormat::kAuto), DataError,
                       Message(merges + ": is a model's or tokenizer's file; expected text or tokens"));
  CHECK_THROWS_MATCHES(
      find_source(path + "/tokenizer", FileFormat::kAuto), DataError,
      Message(path +
              "/tokenizer: a directory of a model or tokenizer; expected some of .txt .text .jsonl .ndjson "
              ".parquet .bin"));
  const std::string packed = dir.write("a.jsonl.gz", "\x1f\x8b");
  CHECK_THROWS_MATCHES(find_source(packed, FileFormat::kJsonl), DataError,
                       Message(packed + ": is compressed; expected plain files\nhint: unpack it"));
  const std::string binary = dir.write("x", std::string("a\0b", 3));
  CHECK_THROWS_MATCHES(
      find_source(binary, FileFormat::kAuto), DataError,
      Message(binary + ": is of no kind that is known: it is no text (a zero byte in its first 3)\n"
                       "hint: say data.train.format, or --format"));
  dir.write("sub/train.bin", "ab");
  dir.write("sub/val.bin", "ab");
  CHECK_THROWS_MATCHES(find_source(path + "/sub", FileFormat::kAuto), DataError,
                       Message(path +
                               "/sub: a directory with train.bin and val.bin; expected training data alone\n"
                               "hint: give a pattern, " +
                               path + "/sub/*train*.bin"));
}
