#pragma once

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <string>
#include <vector>

// Reader of tests/data/spec/*.cases: specs and the exact faults that they have.
//   ## name
//   $ set key=value      (options of the case: any words)
//   YAML, as it stands
//   => one expected fault a line
// The last line of every message ("2 faults in job.yaml") is made from their number. An escaped tab is \t.

namespace trainer::test {

struct Case {
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;
  std::string yaml;
  std::vector<std::string> faults;

  std::string message() const {
    std::string text;
    for (const auto& fault : faults) text += fault + '\n';
    return text + std::to_string(faults.size()) + (faults.size() == 1 ? " fault" : " faults") +
           " in job.yaml";
  }
};

inline std::vector<Case> read_cases(const std::string& path) {
  std::ifstream file(path);
  REQUIRE(file);
  std::vector<Case> cases;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("## ", 0) == 0) {
      cases.push_back({line.substr(3), {}, "", {}});
    } else if (cases.empty()) {
      continue;  // the file's header
    } else if (line.rfind("=> ", 0) == 0) {
      cases.back().faults.push_back(line.substr(3));
    } else if (line.rfind("$ ", 0) == 0) {
      const size_t space = line.find(' ', 2);
      cases.back().options.emplace_back(line.substr(2, space - 2), line.substr(space + 1));
    } else if (!line.empty() || !cases.back().yaml.empty()) {
      if (!cases.back().faults.empty()) continue;  // the blank line after a case
      for (size_t at; (at = line.find("\\t")) != std::string::npos;) line.replace(at, 2, 1, '\t');
      cases.back().yaml += line + '\n';
    }
  }
  return cases;
}

}  // namespace trainer::test
