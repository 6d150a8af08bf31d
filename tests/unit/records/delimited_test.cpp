#include "records/delimited.h"

#include <catch2/catch.hpp>

#include "core/error.h"
#include "temporary_directory.h"

using Catch::Matchers::Message;
using trainer::DataError;
using trainer::records::DelimitedFile;
using trainer::spec::FileFormat;
using trainer::spec::Quoting;

namespace {

using Rows = std::vector<std::vector<std::string>>;

DelimitedFile open(const std::string& path, Quoting quoting = Quoting::kAuto, bool header = true) {
  return DelimitedFile(path, FileFormat::kAuto, quoting, header);
}

Rows rows_of(const DelimitedFile& file) {
  Rows rows;
  std::string scratch;
  for (int64_t r = 0; r < file.num_rows(); ++r) {
    rows.emplace_back();
    for (size_t c = 0; c < file.columns().size(); ++c) {
      rows.back().emplace_back(file.cell(r, static_cast<int64_t>(c), scratch));
    }
  }
  return rows;
}

}  // namespace

TEST_CASE("a TSV file in MRPC's form: BOM, bare quotes, no end of the last line") {
  const TemporaryDirectory dir;
  const DelimitedFile file =
      open(dir.write("a.tsv", "\xEF\xBB\xBFQuality\t#1 String\n1\the said \" no \" .\n0\t\" unclosed"));
  CHECK(file.columns() == std::vector<std::string>{"Quality", "#1 String"});
  CHECK(rows_of(file) == Rows{{"1", "he said \" no \" ."}, {"0", "\" unclosed"}});
  CHECK(file.line(1) == 3);
}

TEST_CASE("a CSV file by RFC 4180: delimiters, quotes and line ends in quoted cells") {
  const TemporaryDirectory dir;
  const DelimitedFile file = open(dir.write("a.csv",
                                            "label,\"the \"\"text\"\"\"\r\n"
                                            "1,\"a, b\"\r\n"
                                            "2,\"two\r\nlines\"\r\n"
                                            "3,\"\"\r\n"
                                            "4,\"\"\"\"\r\n"
                                            "5,\r\n"
                                            "6,5\" wide\r\n"));
  CHECK(file.columns() == std::vector<std::string>{"label", "the \"text\""});
  CHECK(rows_of(file) ==
        Rows{{"1", "a, b"}, {"2", "two\r\nlines"}, {"3", ""}, {"4", "\""}, {"5", ""}, {"6", "5\" wide"}});
  CHECK(file.line(1) == 3);
  CHECK(file.line(2) == 5);
}

TEST_CASE("line ends: LF, CRLF, none, and empty lines at the end") {
  const TemporaryDirectory dir;
  const Rows expected = {{"1", "x"}, {"2", ""}};
  for (const char* text :
       {"a\tb\n1\tx\n2\t", "a\tb\n1\tx\n2\t\n", "a\tb\r\n1\tx\r\n2\t\r\n", "a\tb\r\n1\tx\r\n2\t\r",
        "a\tb\n1\tx\n2\t\n\n\n", "a\tb\r\n1\tx\r\n2\t\r\n\r\n\r\n"}) {
    for (const Quoting quoting : {Quoting::kNone, Quoting::kRfc4180}) {
      CHECK(rows_of(open(dir.write("a.tsv", text), quoting)) == expected);
    }
  }
  CHECK(open(dir.write("empty.tsv", "")).num_rows() == 0);
  CHECK(open(dir.write("header.tsv", "a\tb\n")).num_rows() == 0);
}

TEST_CASE("a column is given by name or by number; a name wins") {
  const TemporaryDirectory dir;
  const DelimitedFile named = open(dir.write("a.tsv", "text\t0\tlabel\nx\ty\tz\n"));
  CHECK(named.column("label") == 2);
  CHECK(named.column("0") == 1);
  CHECK(named.column("2") == 2);
  const DelimitedFile plain = open(dir.write("b.tsv", "x\ty\n"), Quoting::kAuto, false);
  CHECK(plain.num_rows() == 1);
  CHECK(plain.column("1") == 1);
}

TEST_CASE("a missing column lists those there are, and the nearest") {
  const TemporaryDirectory dir;
  const std::string path = dir.write("a.tsv", "Quality\t#1 String\tid\tid\n1\tx\t2\t3\n");
  const DelimitedFile file = open(path);
  CHECK_THROWS_MATCHES(
      file.column("quality"), DataError,
      Message(path + ": no column \"quality\"; columns: Quality, #1 String, id, id; did you mean "
                     "Quality?"));
  CHECK_THROWS_MATCHES(file.column("4"), DataError,
                       Message(path + ": no column \"4\"; columns: Quality, #1 String, id, id"));
  CHECK_THROWS_MATCHES(file.column("id"), DataError,
                       Message(path + ": two columns are named \"id\"; give one by number: 2 or 3"));
}

TEST_CASE("a row with another number of columns is named, with a hint when quoting is the likely cause") {
  const TemporaryDirectory dir;
  const std::string path = dir.write("a.tsv", "a\tb\tc\n1\t2\t3\n1\t2\n");
  CHECK_THROWS_MATCHES(open(path), DataError, Message(path + ":3: 2 columns, expected 3 (a, b, c)"));
  dir.write("a.tsv", "a\tb\tc\n1\t\"x\ty\"\t2\n1\t\"2\t3\"\t4\n");
  CHECK_THROWS_MATCHES(
      open(path), DataError,
      Message(path + ":2: 4 columns, expected 3 (a, b, c)\nhint: quoting is \"none\"; this row has "
                     "quotes, if they enclose cells try \"rfc4180\""));
  dir.write("a.tsv", "a\tb\tc\n1\t\"x\ty\"\n");
  CHECK_THROWS_MATCHES(
      open(path, Quoting::kRfc4180), DataError,
      Message(path + ":2: 2 columns, expected 3 (a, b, c)\nhint: quoting is \"rfc4180\"; this row has "
                     "quotes, if they are text try \"none\""));
  dir.write("a.tsv", "a\tb\n1\t2\n\n3\t4\n");
  CHECK_THROWS_MATCHES(open(path), DataError, Message(path + ":3: 1 column, expected 2 (a, b)"));
}

TEST_CASE("quotes out of place are named with the line that they start on") {
  const TemporaryDirectory dir;
  const std::string hint = "\nhint: quoting is \"rfc4180\"; if quotes are text in this file try \"none\"";
  const std::string path = dir.write("a.csv", "a,b\n1,\"x\n2,y\n3,z\n");
  CHECK_THROWS_MATCHES(open(path), DataError,
                       Message(path + ":2: the quote that opens a cell here is never closed" + hint));
  dir.write("a.csv", "a,b\n1,\"x\n2,y\"z\n");
  CHECK_THROWS_MATCHES(open(path), DataError,
                       Message(path +
                               ":3: text after a closing quote, expected a delimiter or the line's end; the "
                               "cell opens in line 2" +
                               hint));
  dir.write("a.csv", "a,b\n1,\"x\"\rz\n");
  CHECK_THROWS_MATCHES(open(path), DataError,
                       Message(path +
                               ":2: text after a closing quote, expected a delimiter or the line's end; the "
                               "cell opens in line 2" +
                               hint));
}

TEST_CASE("UTF-16 is refused") {
  const TemporaryDirectory dir;
  const std::string path = dir.write("a.tsv", std::string_view("\xFF\xFE"
                                                               "a\0\n\0",
                                                               6));
  CHECK_THROWS_MATCHES(open(path), DataError, Message(path + ": is UTF-16, expected UTF-8"));
}

TEST_CASE("offsets beyond 4 GiB are right") {
  const TemporaryDirectory dir;
  const std::string path = dir.write("a.tsv", "a\tb\n1\t");
  // The second cell of the first row is a hole of 4 GiB: no disk is used.
  std::filesystem::resize_file(path, std::uintmax_t{1} << 32);
  std::ofstream(path, std::ios::binary | std::ios::app) << "\n2\tlast\n";
  const DelimitedFile file = open(path);
  REQUIRE(file.num_rows() == 2);
  std::string scratch;
  CHECK(file.cell(1, 1, scratch) == "last");
  CHECK(file.line(1) == 3);
}
