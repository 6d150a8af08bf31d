#include "records/reader.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "core/error.h"
#include "temporary_directory.h"

using Catch::Matchers::Message;
using trainer::DataError;
using trainer::SpecError;
using trainer::records::open_reader;
using trainer::records::RecordReader;
using trainer::spec::DataSource;
using trainer::spec::FileFormat;

namespace {

DataSource source_of(const std::string& path, FileFormat format = FileFormat::kAuto) {
  DataSource source;
  source.path = path;
  source.format = format;
  return source;
}

// Fields of all rows, with what stands before each part.
std::vector<std::vector<std::string>> rows_of(const RecordReader& reader,
                                              const std::vector<int64_t>& columns) {
  std::vector<std::vector<std::string>> rows;
  for (int64_t part = 0; part < reader.num_parts(); ++part) {
    int64_t expected = 0;
    reader.read(part, columns, [&](int64_t row, std::span<const std::string_view> fields) {
      REQUIRE(row == expected++);
      rows.emplace_back(fields.begin(), fields.end());
    });
  }
  return rows;
}

std::string criteo_row(bool label, const std::string& first) {
  std::string row = label ? first : "";
  for (int i = 1; i <= 13; ++i)
    row += fmt::format("{}{}", row.empty() ? "" : "\t", i == 2 ? "" : std::to_string(i));
  for (int i = 1; i <= 26; ++i) row += i == 3 ? "\t" : fmt::format("\t{:08x}", i);
  return row + "\n";
}

}  // namespace

TEST_CASE("Criteo's files have names for their columns, with and without labels") {
  const TemporaryDirectory dir;
  for (const char* name : {"train.txt", "day_0", "train.tsv"}) {
    const auto reader =
        open_reader(source_of(dir.write(name, criteo_row(true, "1") + criteo_row(true, "0"))));
    REQUIRE(reader->columns().names.size() == 40);
    CHECK(reader->columns().names[0] == "label");
    CHECK(reader->columns().names[13] == "I13");
    CHECK(reader->columns().names[39] == "C26");
    CHECK(reader->hexadecimal_ids());
    using Rows = std::vector<std::vector<std::string>>;
    CHECK(rows_of(*reader, {0, 2, 39, 16}) == Rows{{"1", "", "0000001a", ""}, {"0", "", "0000001a", ""}});
  }
  const auto reader =
      open_reader(source_of(dir.write("test.txt", criteo_row(false, "")), FileFormat::kCriteo));
  CHECK(reader->columns().names.size() == 39);
  CHECK(reader->columns().names[0] == "I1");
}

TEST_CASE("a header is no row of Criteo's, and other tables are read as such") {
  const TemporaryDirectory dir;
  std::string header = "label";
  for (int i = 1; i <= 39; ++i) header += fmt::format("\tx{}", i);
  const auto reader = open_reader(source_of(dir.write("a.tsv", header + "\n" + criteo_row(true, "1"))));
  CHECK(reader->columns().names[1] == "x1");
  CHECK_FALSE(reader->hexadecimal_ids());
  const std::string path = dir.write("b.tsv", "a\tb\n1\t2\n");
  CHECK(open_reader(source_of(path))->columns().names == std::vector<std::string>{"a", "b"});
  CHECK_THROWS_MATCHES(
      open_reader(source_of(path, FileFormat::kCriteo)), DataError,
      Message(path + ":1: 2 columns between tabs that begin with \"a\"; expected 40 (label, I1 to I13, C1 to "
                     "C26) or 39 without the label, and no header\nhint: data.train.format is criteo; a "
                     "file with a header is tsv or csv"));
}

TEST_CASE("files that are no tables of rows are refused") {
  const TemporaryDirectory dir;
  const std::string empty = dir.write("empty.csv", ""), header = dir.write("header.csv", "a,b\n");
  CHECK_THROWS_MATCHES(open_reader(source_of(empty)), DataError, Message(empty + ": has no rows"));
  CHECK_THROWS_MATCHES(open_reader(source_of(header)), DataError, Message(header + ": has no rows"));
  const std::string text = dir.write("empty.txt", "\n");
  CHECK_THROWS_MATCHES(open_reader(source_of(text)), DataError, Message(text + ": has no rows"));
  const std::string missing = (dir.path / "none.csv").string();
  CHECK_THROWS_MATCHES(open_reader(source_of(missing)), SpecError,
                       Message(missing + ": cannot open: No such file or directory"));
  CHECK_THROWS_MATCHES(open_reader(source_of(header, FileFormat::kJsonl)), DataError,
                       Message(header + ": got format jsonl; expected criteo, tsv, csv or records"));
}

TEST_CASE("a row with another number of columns is named by its line") {
  const TemporaryDirectory dir;
  const std::string path = dir.write("a.csv", "a,b\n1,\"2\n2\"\n3\n");
  CHECK_THROWS_MATCHES(rows_of(*open_reader(source_of(path)), {0}), DataError,
                       Message(path + ":4: 1 column, expected 2 (a, b)"));
  dir.write("a.csv", "a,b\n1,\"2\n");
  CHECK_THROWS_AS(rows_of(*open_reader(source_of(path)), {0}), DataError);
}

TEST_CASE("parts begin at rows, also where quotes have line ends in them") {
  const TemporaryDirectory dir;
  std::string text = "a,b\r\n";
  std::vector<std::vector<std::string>> expected;
  for (int i = 0; text.size() < (size_t{3} << 20); ++i) {
    // Long stretches without quotes and with them.
    const bool quoted = i / 20000 % 2 == 1;
    expected.push_back(
        {std::to_string(i), quoted ? fmt::format("\"{}\n,\n\"x", i) : fmt::format("5\" {}", i)});
    text += quoted ? fmt::format("{},\"\"\"{}\n,\n\"\"x\"\r\n", i, i) : fmt::format("{},5\" {}\r\n", i, i);
  }
  const std::string path = dir.write("a.csv", text);
  const auto reader = open_reader(source_of(path));
  CHECK(reader->num_parts() >= 3);
  CHECK(rows_of(*reader, {0, 1}) == expected);
  CHECK(reader->where(0, 2) == path + ":4");
}

TEST_CASE("rows beyond 4 GiB are read") {
  const TemporaryDirectory dir;
  const std::string path = dir.write("a.tsv", "a\tb\n1\t");
  // The second cell of the first row is a hole of 4 GiB: no disk is used.
  std::filesystem::resize_file(path, std::uintmax_t{1} << 32);
  std::ofstream(path, std::ios::binary | std::ios::app) << "\n2\tlast\n";
  const auto reader = open_reader(source_of(path));
  const int64_t last = reader->num_parts() - 1;
  std::vector<std::string> cells;
  for (int64_t part = std::max<int64_t>(last - 1, 1); part <= last; ++part) {
    reader->read(part, std::vector<int64_t>{1},
                 [&](int64_t, std::span<const std::string_view> fields) { cells.emplace_back(fields[0]); });
  }
  CHECK(cells == std::vector<std::string>{"last"});
}
