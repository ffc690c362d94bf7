//===- Prebuilt.h - modules of tests, compiled beforehand -------*- C++ -*-===//
//
// A folder with an artefact for each module of a list of combinations, and with
// modules of random operations:
//
//   combinations.txt    Combination::describe(), a line each
//   HASH.nsax           the artefact of the module whose text has this hash
//   modules.txt         the names of random modules, a line each
//   NAME.cases          what the entries of a random module must give
//   NAME.nsax           its artefact
//   NAME-unfused.nsax   the same without fusion
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_GPU_PREBUILT_H
#define NSA_TEST_GPU_PREBUILT_H

#include "nsa/Support/Result.h"
#include "test/unit/KernelSweep/Combination.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace nsa::test {

inline constexpr const char *kCombinationsFile = "combinations.txt";

inline constexpr const char *kModulesFile = "modules.txt";
inline constexpr const char *kModuleForms[] = {"", "-unfused"};

/// The file of a module's artefact, without its folder.
std::string prebuiltName(const std::string &text);

/// The texts of the modules that the tests of a combination load.
std::vector<std::string> modulesOf(const Combination &c);

/// The combinations of a folder. The message names the file and the line.
Result<std::vector<Combination>> readCombinations(const std::string &folder);

/// The names of the random modules of a folder.
Result<std::vector<std::string>> readModules(const std::string &folder);

/// The folder that $NSA_PREBUILT names, or nothing.
std::string prebuiltFolder();

/// What `read` gives for that folder; an empty list without one. Tests are made
/// of it before any runs, so an error ends the process.
template <typename Element>
std::vector<Element>
readListOrExit(Result<std::vector<Element>> (*read)(const std::string &)) {
  std::string folder = prebuiltFolder();
  if (folder.empty())
    return {};
  Result<std::vector<Element>> list = read(folder);
  if (!list) {
    std::fprintf(stderr, "%s\n", list.message().c_str());
    std::exit(1);
  }
  return *list;
}

} // namespace nsa::test

#endif // NSA_TEST_GPU_PREBUILT_H
