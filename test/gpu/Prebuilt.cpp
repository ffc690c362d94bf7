//===- Prebuilt.cpp - modules of tests, compiled beforehand ---------------===//

#include "test/gpu/Prebuilt.h"
#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"

#include <sstream>

using namespace nsa;
using namespace nsa::test;

std::string nsa::test::prebuiltFolder() {
  const char *folder = std::getenv("NSA_PREBUILT");
  return folder ? folder : "";
}

std::string nsa::test::prebuiltName(const std::string &text) {
  return toHex(hashBytes(text)) + ".nsax";
}

std::vector<std::string> nsa::test::modulesOf(const Combination &c) {
  return {moduleText(c), moduleText(c, {"gated", "gated_backward"}),
          moduleText(c, rotationEntries())};
}

Result<std::vector<Combination>>
nsa::test::readCombinations(const std::string &folder) {
  std::string path = folder + "/" + kCombinationsFile;
  Result<std::string> text = readFile(path);
  if (!text)
    return text.takeError();
  std::vector<Combination> list;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    std::optional<Combination> c = parseCombination(line);
    if (!c)
      return Error{path + ":" + std::to_string(list.size() + 1) +
                   ": no combination: " + line};
    list.push_back(*c);
  }
  if (list.empty())
    return Error{"'" + path + "' is empty"};
  return list;
}

Result<std::vector<std::string>>
nsa::test::readModules(const std::string &folder) {
  std::string path = folder + "/" + kModulesFile;
  Result<std::string> text = readFile(path);
  if (!text)
    return text.takeError();
  std::vector<std::string> names;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);)
    names.push_back(line);
  if (names.empty())
    return Error{"'" + path + "' is empty"};
  return names;
}
