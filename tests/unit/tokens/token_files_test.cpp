#include "tokens/token_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "core/error.h"
#include "core/file.h"
#include "temporary_directory.h"
#include "token_part.h"
#include "tokens/megatron.h"

using namespace trainer::tokens;
using Catch::Matchers::Message;
using trainer::DataError;
using trainer::spec::FileFormat;

// Files that tests/parity/make/token_files.py wrote with numpy.
namespace {

const std::string kFiles = TEST_DATA "/tokens/";
const std::vector<int64_t> kIds = {1, 2, 3, 4, 50256, 5, 6, 7, 50256, 8, 9, 10, 50256};

std::vector<int64_t> all(const TokenStream& stream) {
  std::vector<int64_t> ids(static_cast<size_t>(stream.size()));
  stream.read(0, stream.size(), ids.data());
  return ids;
}

std::vector<int64_t> documents(const TokenStream& stream, int64_t begin, int64_t end) {
  std::vector<int64_t> starts;
  stream.document_starts(begin, end, starts);
  return starts;
}

template <class T>
void put(std::string& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

// A Megatron pair as in the fixture, with what `change` does to its index.
template <class Change>
std::string changed_index(const TemporaryDirectory& dir, Change change) {
  dir.write("x.bin", trainer::read_file(kFiles + "megatron_uint16.bin"));
  std::string index = trainer::read_file(kFiles + "megatron_uint16.idx");
  change(index);
  dir.write("x.idx", index);
  return (dir.path / "x.bin").string();
}

}  // namespace

TEST_CASE("Megatron's files of every integer type are read, with their documents") {
  for (const char* type : {"uint16", "int32", "int64", "uint8", "int8", "int16"}) {
    const std::string file = kFiles + "megatron_" + type + ".bin";
    CHECK(detect_token_format(file) == FileFormat::kMegatron);
    const TokenStream stream = open_token_files({file}, FileFormat::kMegatron);
    std::vector<int64_t> expected = kIds;
    if (std::string(type) == "uint8" || std::string(type) == "int8" || std::string(type) == "int16") {
      for (int64_t& id : expected) id = std::min<int64_t>(id, 100);
    }
    CHECK(all(stream) == expected);
    REQUIRE(stream.has_documents());
    CHECK(documents(stream, 0, 13) == std::vector<int64_t>{0, 5, 9});
    CHECK(documents(stream, 1, 9) == std::vector<int64_t>{5});
    CHECK(documents(stream, 10, 13).empty());
  }
}

TEST_CASE("nanoGPT's and llm.c's files are read") {
  CHECK(detect_token_format(kFiles + "nanogpt.bin") == FileFormat::kNanogpt);
  TokenStream nanogpt = open_token_files({kFiles + "nanogpt.bin"}, FileFormat::kNanogpt);
  CHECK(all(nanogpt) == kIds);
  CHECK_FALSE(nanogpt.has_documents());
  nanogpt.find_documents(50256, false, 2);
  CHECK(documents(nanogpt, 0, 13) == std::vector<int64_t>{0, 5, 9});

  for (const auto& [name, begin, big] :
       {std::tuple{"llmc_gpt2", 50256, 4}, std::tuple{"llmc_llama3", 128000, 100000}}) {
    const std::string file = kFiles + name + ".bin";
    CHECK(detect_token_format(file) == FileFormat::kLlmc);
    TokenStream stream = open_token_files({file}, FileFormat::kLlmc);
    CHECK(all(stream) == std::vector<int64_t>{begin, 1, 2, begin, 3, big, 5});
    CHECK(llmc_delimiter(stream.parts()[0]) == begin);
    stream.find_documents(begin, true, 1);
    CHECK(documents(stream, 0, 7) == std::vector<int64_t>{0, 3});
  }
}

TEST_CASE("several files are one stream") {
  TokenStream stream =
      open_token_files({kFiles + "nanogpt.bin", kFiles + "nanogpt.bin"}, FileFormat::kNanogpt);
  REQUIRE(stream.size() == 26);
  std::vector<int64_t> ids(4);
  stream.read(11, 4, ids.data());
  CHECK(ids == std::vector<int64_t>{10, 50256, 1, 2});
  stream.find_documents(50256, false, 1);
  CHECK(documents(stream, 0, 26) == std::vector<int64_t>{0, 5, 9, 13, 18, 22});
  CHECK(documents(stream, 12, 19) == std::vector<int64_t>{13, 18});
  CHECK(stream.where(13) == kFiles + "nanogpt.bin: token 0");
}

TEST_CASE("a file that goes on where the one before was cut begins no document") {
  const TemporaryDirectory dir;
  const std::string a = dir.write("a.bin", std::string("\x01\0\x09\0\x02\0", 6));
  const std::string b = dir.write("b.bin", std::string("\x03\0\x09\0\x04\0", 6));
  TokenStream at_ends = open_token_files({a, b}, FileFormat::kNanogpt);
  at_ends.find_documents(9, false, 1);
  CHECK(documents(at_ends, 0, 6) == std::vector<int64_t>{0, 2, 5});
  TokenStream at_beginnings = open_token_files({a, b}, FileFormat::kNanogpt);
  at_beginnings.find_documents(9, true, 1);
  CHECK(documents(at_beginnings, 0, 6) == std::vector<int64_t>{0, 1, 4});
}

TEST_CASE("positions beyond 4 GiB are read") {
  const TemporaryDirectory dir;
  const std::string file = dir.write("big.bin", "");
  const int64_t size = (int64_t{1} << 33) + 64;  // bytes, nearly all of them a hole
  REQUIRE(::truncate(file.c_str(), size) == 0);
  const int fd = ::open(file.c_str(), O_WRONLY);
  const uint16_t ids[2] = {7, 8};
  REQUIRE(::pwrite(fd, ids, 4, size - 4) == 4);
  REQUIRE(::close(fd) == 0);
  const TokenStream stream = open_token_files({file}, FileFormat::kNanogpt);
  REQUIRE(stream.size() == size / 2);
  std::vector<int64_t> read(3);
  stream.read(stream.size() - 3, 3, read.data());
  CHECK(read == std::vector<int64_t>{0, 7, 8});
  CHECK(stream.find_outside(stream.size() - 10, stream.size(), 8, 1) == stream.size() - 1);
  CHECK(stream.where(stream.size() - 1) == file + ": token 4294967327");
}

TEST_CASE("the first id outside of the vocabulary is found") {
  std::vector<int32_t> ids(10'000'000, 5);
  ids[9'000'000] = 99;
  ids[9'500'000] = -1;
  std::vector<TokenPart> parts;
  parts.push_back(token_part("a", {1, 2}, {0}));
  parts.push_back(token_part("b", std::move(ids), {0}));
  const TokenStream stream(std::move(parts));
  for (const int64_t threads : {1, 3}) {
    CHECK(stream.find_outside(0, stream.size(), 100, threads) == 9'500'002);
    CHECK(stream.find_outside(0, stream.size(), 99, threads) == 9'000'002);
    CHECK(stream.find_outside(0, 9'000'002, 6, threads) == -1);
    CHECK(stream.find_outside(1, 3, 2, threads) == 1);
  }
}

TEST_CASE("a fingerprint changes with the ids") {
  const auto of = [](std::vector<int32_t> ids) {
    std::vector<TokenPart> parts;
    parts.push_back(token_part("a", std::move(ids), {0}));
    return TokenStream(std::move(parts)).fingerprint();
  };
  std::vector<int32_t> ids(1000);
  std::iota(ids.begin(), ids.end(), 0);
  const uint64_t one = of(ids);
  CHECK(of(ids) == one);
  ids.back() = 1;
  CHECK(of(ids) != one);
  CHECK(of({1}) != of({2}));
}

TEST_CASE("a truncated or wrong .bin is refused") {
  const TemporaryDirectory dir;
  const std::string odd = dir.write("odd.bin", "abc");
  CHECK_THROWS_MATCHES(
      detect_token_format(odd), DataError,
      Message(
          odd +
          ": 3 bytes, without a header that is known and without an .idx beside it; expected an even number, "
          "of uint16 ids as nanoGPT writes them: is it truncated?"));
  CHECK_THROWS_MATCHES(open_nanogpt(odd), DataError,
                       Message(odd + ": truncated: 3 bytes, expected an even number, of uint16 ids"));
  CHECK_THROWS_MATCHES(
      open_llmc(odd), DataError,
      Message(odd + ": wrong header: got magic 0; expected 20240520 (GPT-2) or 20240801 (Llama 3), as "
                    "llm.c writes them"));
  std::string llmc = trainer::read_file(kFiles + "llmc_gpt2.bin");
  const std::string cut = dir.write("cut.bin", llmc.substr(0, llmc.size() - 2));
  CHECK_THROWS_MATCHES(
      open_llmc(cut), DataError,
      Message(cut + ": truncated: 1036 bytes, expected 1038: a header of 1024 and 7 tokens of 2 bytes"));
  const std::string longer = dir.write("longer.bin", llmc + "xx");
  CHECK_THROWS_MATCHES(
      open_llmc(longer), DataError,
      Message(longer +
              ": wrong header: 1040 bytes, expected 1038: a header of 1024 and 7 tokens of 2 bytes"));
  put<int32_t>(llmc, 4, 2);
  const std::string version = dir.write("version.bin", llmc);
  CHECK_THROWS_MATCHES(open_llmc(version), DataError,
                       Message(version + ": wrong header: got version 2; expected 1 with magic 20240520"));
  put<int32_t>(llmc, 0, 20240522);
  const std::string evaluation = dir.write("evaluation.bin", llmc);
  CHECK(detect_token_format(evaluation) == FileFormat::kLlmc);
  CHECK_THROWS_MATCHES(
      open_llmc(evaluation), DataError,
      Message(evaluation + ": is an evaluation file of llm.c (magic 20240522); expected one of tokens"));
}

TEST_CASE("a wrong index of Megatron is refused") {
  const TemporaryDirectory dir;
  const std::string idx = (dir.path / "x.idx").string();
  const auto message_of = [&](auto change) -> std::string {
    try {
      open_megatron(changed_index(dir, change));
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message_of([](std::string&) {}).empty());
  CHECK(message_of([](std::string& b) { b[0] = 'X'; }) ==
        idx + ": is not an index of Megatron: got other bytes; expected MMIDIDX at its beginning");
  CHECK(message_of([](std::string& b) { b.resize(3); }) ==
        idx + ": is not an index of Megatron: got a shorter file; expected MMIDIDX at its beginning");
  CHECK(message_of([](std::string& b) { b.resize(20); }) ==
        idx + ": truncated: 20 bytes, expected at least 34");
  CHECK(message_of([](std::string& b) { b.pop_back(); }) ==
        idx + ": truncated: 133 bytes, expected at least 134 for 5 sequences and 5 entries of documents");
  CHECK(message_of([](std::string& b) { put<uint64_t>(b, 18, UINT64_MAX); }).find(": truncated: ") !=
        std::string::npos);
  CHECK(message_of([](std::string& b) { put<uint64_t>(b, 9, 2); }) == idx + ": got version 2; expected 1");
  CHECK(message_of([](std::string& b) { b[17] = 9; }) == idx + ": got type code 9; expected 1 to 5 or 8");
  CHECK(message_of([](std::string& b) { b[17] = 7; }) ==
        idx + ": got ids of a floating-point type (code 7); expected integers");
  CHECK(message_of([](std::string& b) { put<int32_t>(b, 34, -1); }) ==
        idx + ": sequence 0: got -1 tokens at byte 0; expected them at byte 0, behind the one before");
  CHECK(message_of([](std::string& b) { put<int64_t>(b, 54 + 8, 0); }) ==
        idx + ": sequence 1: got 2 tokens at byte 0; expected them at byte 6, behind the one before");
  CHECK(message_of([](std::string& b) { put<int64_t>(b, 94 + 8, 9); }) ==
        idx + ": document 1: got sequence 9; expected 0 to 5");
  CHECK(message_of([](std::string& b) { put<int64_t>(b, 94, 1); }) ==
        idx + ": document 0: got sequence 1; expected 0 to 0");
  CHECK(message_of([](std::string& b) { put<int32_t>(b, 34 + 16, 4); }) ==
        (dir.path / "x.bin").string() +
            ": truncated: 26 bytes, expected 28: 14 tokens of 2 bytes, as its index says");
  CHECK(message_of([](std::string& b) { put<int32_t>(b, 34 + 16, 2); }) ==
        (dir.path / "x.bin").string() +
            ": of another index: 26 bytes, expected 24: 12 tokens of 2 bytes, as its index says");
}

TEST_CASE("Megatron's tokens without their index are refused") {
  const TemporaryDirectory dir;
  const std::string bin = dir.write("x.bin", "abcd");
  CHECK_THROWS_MATCHES(
      open_megatron(bin), DataError,
      Message(bin + ": has no x.idx beside it; expected both files of the pair\nhint: name what both "
                    "begin with, or make them from texts with trainer prepare"));
}

TEST_CASE("an index that is written is read, also of a document longer than a sequence can be") {
  const TemporaryDirectory dir;
  const std::vector<int64_t> lengths = {3, (int64_t{1} << 32) + 5, 2};
  write_megatron_index(dir.path / "x.idx", TokenType::kInt32, lengths);
  const MegatronIndex index(dir.path / "x.idx");
  CHECK(index.type() == TokenType::kInt32);
  REQUIRE(index.size() == 3);
  CHECK(index.start(0) == 0);
  CHECK(index.start(1) == 3);
  CHECK(index.start(2) == (int64_t{1} << 32) + 8);
  CHECK(index.num_tokens() == (int64_t{1} << 32) + 10);
  // Byte by byte, by the format's rules.
  const std::vector<int64_t> small = {3, 2};
  write_megatron_index(dir.path / "y.idx", TokenType::kUint16, small);
  std::string expected("MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0", 34);
  expected +=
      std::string("\x03\0\0\0\x02\0\0\0", 8) + std::string(8, '\0') + std::string("\x06\0\0\0\0\0\0\0", 8);
  expected += std::string(8, '\0') + std::string("\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0", 16);
  CHECK(trainer::read_file(dir.path / "y.idx") == expected);
  CHECK_THROWS_MATCHES(
      write_megatron_index(dir.path / "none/x.idx", TokenType::kUint16, small), DataError,
      Message((dir.path / "none/x.idx").string() + ": cannot write: No such file or directory"));
}
