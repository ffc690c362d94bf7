//===- ProcessTest.cpp - finding and running programs ---------------------===//

#include "lib/Support/Process.h"
#include "test/unit/TempDir.h"

#include <filesystem>
#include <map>

using namespace nsa;

static void writeProgram(const TempDir &dir, const std::string &name) {
  dir.write(name, "#!/bin/sh\n");
  std::filesystem::permissions(dir / name, std::filesystem::perms::owner_all);
}

static Variables variablesOf(const std::map<std::string, std::string> &values) {
  return [=](const std::string &name) -> std::optional<std::string> {
    auto found = values.find(name);
    return found == values.end() ? std::nullopt
                                 : std::optional<std::string>(found->second);
  };
}

TEST(Process, AProgramIsFoundInFoldersBeforePath) {
  TempDir dir;
  writeProgram(dir, "a/tool");
  writeProgram(dir, "b/tool");
  dir.write("c/tool", "no program");
  Variables variables =
      variablesOf({{"PATH", (dir / "c") + ":" + (dir / "b")}});
  EXPECT_EQ(findProgram("tool", {dir / "a"}, variables), dir / "a/tool");
  EXPECT_EQ(findProgram("tool", {dir / "c"}, variables), dir / "b/tool");
  EXPECT_EQ(findProgram("other", {dir / "a"}, variables), "");
}

TEST(Process, PtxasOfCudaHomeComesBeforeThatOfPath) {
  TempDir dir;
  writeProgram(dir, "cuda/bin/ptxas");
  writeProgram(dir, "path/ptxas");
  EXPECT_EQ(findPtxas(variablesOf(
                {{"CUDA_HOME", dir / "cuda"}, {"PATH", dir / "path"}})),
            dir / "cuda/bin/ptxas");
  EXPECT_EQ(findPtxas(variablesOf(
                {{"CUDA_HOME", dir / "none"}, {"PATH", dir / "path"}})),
            dir / "path/ptxas");
  EXPECT_EQ(findPtxas(variablesOf({{"CUDA_HOME", dir / "none"}})), "");
}

TEST(Process, WordsAreQuotedWhereAShellWouldSplitThem) {
  EXPECT_EQ(quoteCommand({"nsa-model", "a b.yaml", "--set", "k=it's", ""}),
            "nsa-model 'a b.yaml' --set 'k=it'\\''s' ''");
}

TEST(Process, OutputOfAProgramIsReturned) {
  Result<std::string> text =
      runProgram({"/bin/sh", "-c", "echo one; echo two"});
  ASSERT_TRUE(text) << text.message();
  EXPECT_EQ(*text, "one\ntwo\n");
}

TEST(Process, AProgramThatFailsIsNamedWithItsCodeOrSignal) {
  EXPECT_EQ(runProgram({"/bin/sh", "-c", "exit 7"}).message(),
            "'/bin/sh' ended with code 7");
  EXPECT_EQ(runProgram({"/bin/sh", "-c", "kill -9 $$"}).message(),
            "'/bin/sh' was ended by signal 9 (Killed)");
  EXPECT_EQ(runProgram({"/none/tool"}).message(),
            "cannot start '/none/tool': No such file or directory");
}
