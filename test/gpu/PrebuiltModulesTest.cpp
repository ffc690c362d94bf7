//===- PrebuiltModulesTest.cpp - random modules compiled elsewhere --------===//
//
// Runs the random modules of nsa-prebuild, of the folder $NSA_PREBUILT, with
// and without fusion, with poisoned memory, and compares every result with the
// reference. NSA_TEST_REPEATS=100 runs every entry so often; twice if it says
// nothing: always the same bits, and no argument changes that is not updated.
//
//===----------------------------------------------------------------------===//

#include "lib/Support/Files.h"
#include "test/gpu/Case.h"
#include "test/gpu/Prebuilt.h"
#include "test/unit/CompiledModule.h"
#include "test/unit/KernelSweep/Trial.h"

#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>

using namespace nsa;
using namespace nsa::test;
using reference::Tensor;

namespace {
/// One case on one program.
class CaseRun {
public:
  CaseRun(CompiledModule &module, const Case &c, std::string where);

  void check();

private:
  std::string find(const std::string &name, const std::vector<unsigned> &list);
  /// Sets all arguments, runs, and gives the results.
  std::vector<Tensor> run();
  /// A tensor's elements on the device, whatever its role.
  Tensor fetch(const std::string &name);

  CompiledModule &module;
  const Case &c;
  std::string where;
  /// The tensors of the program.
  std::vector<std::string> arguments, results;
};
} // namespace

CaseRun::CaseRun(CompiledModule &module, const Case &c, std::string where)
    : module(module), c(c), where(std::move(where) + " @" + c.entry) {
  const EntryInfo *entry = module.getProgram().findEntry(c.entry);
  if (!entry)
    return;
  for (const CaseArgument &argument : c.arguments)
    arguments.push_back(argument.isShared ? argument.name
                                          : find(argument.name, entry->inputs));
  for (const CaseResult &result : c.results)
    results.push_back(result.argument >= 0 ? arguments[result.argument]
                                           : find(result.name, entry->outputs));
}

std::string CaseRun::find(const std::string &name,
                          const std::vector<unsigned> &list) {
  for (unsigned index : list)
    for (const std::string &candidate : {name, c.entry + "." + name})
      if (module.getProgram().tensors()[index].name == candidate)
        return candidate;
  return name + " of no tensor";
}

std::vector<Tensor> CaseRun::run() {
  Program &program = module.getProgram();
  for (size_t i = 0; i < arguments.size(); ++i) {
    module.set(arguments[i], c.arguments[i].value);
    if (const TensorView *view = program.findTensor(arguments[i])) {
      // Parameters and moments are not moved by a run.
      Status status = program.toDevice(*view);
      EXPECT_TRUE(status.ok()) << where << ": " << status.message();
    }
  }
  Status status = program.run(c.entry);
  EXPECT_TRUE(status.ok()) << where << ": " << status.message();
  std::vector<Tensor> values;
  values.reserve(results.size());
  for (const std::string &result : results)
    values.push_back(fetch(result));
  return values;
}

Tensor CaseRun::fetch(const std::string &name) {
  Program &program = module.getProgram();
  if (const TensorView *view = program.findTensor(name)) {
    Status status = program.toHost(*view);
    EXPECT_TRUE(status.ok()) << where << ": " << status.message();
  }
  return module.get(name);
}

void CaseRun::check() {
  ASSERT_EQ(results.size(), c.results.size()) << where << ": no such entry";
  std::vector<Tensor> first = run();
  if (testing::Test::HasFailure())
    return;
  for (size_t i = 0; i < results.size(); ++i) {
    const CaseResult &expected = c.results[i];
    ASSERT_EQ(first[i].data.size(), expected.value.data.size());
    if (expected.tolerance >= 0.0)
      EXPECT_LE(distance(first[i], expected.value), expected.tolerance)
          << where << ", result " << i << " (" << results[i]
          << "); the largest element is " << magnitude(expected.value);
  }
  for (size_t i = 0; i < arguments.size(); ++i)
    if (std::none_of(c.results.begin(), c.results.end(),
                     [&](const CaseResult &result) {
                       return result.argument == static_cast<int64_t>(i);
                     }))
      EXPECT_TRUE(isSame(fetch(arguments[i]), c.arguments[i].value))
          << where << " changes " << arguments[i];
  const char *text = std::getenv("NSA_TEST_REPEATS");
  long repeats = std::max(2l, text ? std::strtol(text, nullptr, 10) : 2);
  for (long repeat = 2; repeat <= repeats; ++repeat) {
    std::vector<Tensor> again = run();
    for (size_t i = 0; i < results.size(); ++i)
      ASSERT_TRUE(isSame(again[i], first[i]))
          << "run " << repeat << " of " << where << " gives other bits in "
          << results[i];
  }
}

class PrebuiltModules : public testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PrebuiltModules);
INSTANTIATE_TEST_SUITE_P(All, PrebuiltModules,
                         testing::ValuesIn(readListOrExit(readModules)));

TEST_P(PrebuiltModules, AllModules_AgreeWithTheReference) {
  std::string path = prebuiltFolder() + "/" + GetParam();
  Result<std::string> bytes = readFile(path + ".cases");
  ASSERT_TRUE(bytes) << bytes.message();
  Result<std::vector<Case>> cases = readCases(*bytes);
  ASSERT_TRUE(cases) << path << ": " << cases.message();
  for (const char *form : kModuleForms) {
    CompiledArtifact artifact;
    Result<std::string> program = readFile(path + form + ".nsax");
    ASSERT_TRUE(program) << program.message();
    artifact.bytes = std::move(*program);
    Result<CompiledModule> module = CompiledModule::load(artifact);
    ASSERT_TRUE(module) << GetParam() << form << ": " << module.message();
    for (const Case &c : *cases)
      CaseRun(*module, c, GetParam() + form).check();
  }
}
