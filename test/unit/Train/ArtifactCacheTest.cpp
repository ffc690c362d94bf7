//===- ArtifactCacheTest.cpp - artefacts that were compiled before --------===//

#include "nsa/Runtime/ArtifactCache.h"
#include "lib/Support/Files.h"
#include "lib/Support/Process.h"
#include "runtime/Train/CompileConfig.h"
#include "test/unit/Expect.h"
#include "test/unit/Runtime/ArtifactBuilder.h"
#include "test/unit/TempDir.h"

#include <atomic>
#include <filesystem>
#include <thread>
#include <unistd.h>

using namespace nsa;

namespace {
/// A cache in a folder of its own, and a compiler that counts its calls.
class ArtifactCacheTest : public testing::Test {
protected:
  Variables variables = [this](const std::string &name) {
    return name == "XDG_CACHE_HOME" ? std::optional<std::string>(dir.str())
                                    : std::nullopt;
  };

  /// A copy of an artefact stands for one that is compiled.
  ArtifactCache::Compile compile = [this](const std::string &,
                                          const std::string &artifact) {
    ++compilations;
    return writeFileAtomically(artifact, makeTestArtifact());
  };

  Result<std::string> get(const CompileInputs &inputs) {
    Result<ArtifactCache> cache = ArtifactCache::open(variables);
    EXPECT_TRUE(cache) << cache.message();
    return cache->get("model", inputs, compile,
                      [&](const std::string &line) { said += line + "\n"; });
  }

  TempDir dir;
  std::atomic<int> compilations = 0;
  std::string said;
};
} // namespace

TEST_F(ArtifactCacheTest, HashDiffersWhereAnyInputDoes) {
  const CompileInputs base = {"text", {"--target=cpu", "--no-fuse"}, 1, 2};
  std::vector<CompileInputs> others(6, base);
  others[0].model = "texts";
  others[1].options = {"--target=cpu"};
  others[2].options = {"--target=cpu--no-fuse"};
  others[3].compiler = 3;
  others[4].assembler = 3;
  others[5].options = {"--no-fuse", "--target=cpu"};
  EXPECT_EQ(base.hash(), CompileInputs(base).hash());
  for (size_t i = 0; i < others.size(); ++i)
    EXPECT_NE(others[i].hash(), base.hash()) << i;
}

TEST_F(ArtifactCacheTest, WhatWasCompiledIsFound) {
  std::string first = take(get({"text", {}, 1, 2}));
  EXPECT_EQ(compilations, 1);
  EXPECT_EQ(said, "");
  EXPECT_EQ(*get({"text", {}, 1, 2}), first);
  EXPECT_EQ(compilations, 1);
  EXPECT_EQ(said, "using " + first + ", compiled before\n");
  EXPECT_NE(*get({"text", {"--no-fuse"}, 1, 2}), first);
  EXPECT_EQ(compilations, 2);
}

TEST_F(ArtifactCacheTest, DamagedEntriesAreCompiledAgain) {
  Result<std::string> path = get({"text", {}, 1, 2});
  ASSERT_TRUE(path) << path.message();
  std::string folder = std::filesystem::path(*path).parent_path();
  auto damage = [&](const std::string &file, const std::string &bytes) {
    ASSERT_TRUE(writeFileAtomically(folder + "/" + file, bytes));
    int before = compilations;
    said.clear();
    EXPECT_TRUE(get({"text", {}, 1, 2}));
    EXPECT_EQ(compilations, before + 1) << file;
    EXPECT_EQ(said.rfind("compiling again: ", 0), 0u) << said;
  };
  damage("model.nsax", makeTestArtifact().substr(0, 100));
  damage("model.mlir", "another text");
  // What a process that was killed has left goes with it.
  ASSERT_TRUE(writeFileAtomically(folder + "/model.nsax.tmp.1.0", "part"));
  damage("model.nsax", "");
  EXPECT_FALSE(std::filesystem::exists(folder + "/model.nsax.tmp.1.0"));
}

TEST_F(ArtifactCacheTest, EntryOfOtherInputs_IsCompiledAgain) {
  namespace fs = std::filesystem;
  auto folderOf = [&](const char *option) -> fs::path {
    return fs::path(*get({"text", {option}, 1, 2})).parent_path();
  };
  const fs::path own = folderOf("--precision=fp32");
  ArtifactCache::Compile first = compile;
  compile = [this](const std::string &, const std::string &artifact) {
    ++compilations;
    return writeFileAtomically(artifact, makeTestArtifact("sm_90a"));
  };
  const fs::path other = folderOf("--precision=bf16");
  compile = first;
  auto expectMiss = [&](const std::string &what) {
    int before = compilations;
    said.clear();
    EXPECT_EQ(folderOf("--precision=fp32"), own);
    EXPECT_EQ(compilations, before + 1) << what;
    EXPECT_EQ(said.rfind("compiling again: ", 0), 0u) << said;
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    said.clear();
    EXPECT_EQ(folderOf("--precision=fp32"), own);
    EXPECT_EQ(compilations, before + 1) << "the entry was replaced";
  };
  auto copy = [&](const char *file) {
    fs::copy_file(other / file, own / file,
                  fs::copy_options::overwrite_existing);
  };
  copy("model.nsax");
  expectMiss("an artefact of another entry");
  copy("model.nsax");
  copy("hashes");
  expectMiss("another entry");
  fs::remove(own / "model.nsax");
  fs::create_symlink(other / "model.nsax", own / "model.nsax");
  expectMiss("a link");
  fs::permissions(own / "model.nsax", fs::perms::all);
  expectMiss("a file that others may write to");
}

TEST_F(ArtifactCacheTest, ACompilationThatFailsLeavesNothing) {
  ArtifactCache::Compile works = compile;
  compile = [](const std::string &, const std::string &) -> Status {
    return Error{"it ended with code 1"};
  };
  EXPECT_EQ(get({"text", {}, 1, 2}).message(), "it ended with code 1");
  compile = works;
  EXPECT_TRUE(get({"text", {}, 1, 2}));
  EXPECT_EQ(compilations, 1);
}

TEST_F(ArtifactCacheTest, ProcessesThatAskForOneEntryCompileItOnce) {
  ArtifactCache::Compile fast = compile;
  std::atomic<bool> waits = false;
  // The first goes on once the second waits for it.
  compile = [&](const std::string &model, const std::string &artifact) {
    while (!waits)
      std::this_thread::yield();
    return fast(model, artifact);
  };
  ArtifactCache cache = take(ArtifactCache::open(variables));
  std::atomic<int> works = 0;
  auto ask = [&] {
    auto say = [&](const std::string &line) {
      // The first may not have written its number yet.
      waits = waits || line.rfind("waiting for ", 0) == 0;
    };
    works += cache.get("model", {"text", {}, 1, 2}, compile, say).ok();
  };
  std::thread other(ask);
  ask();
  other.join();
  EXPECT_EQ(works, 2);
  EXPECT_EQ(compilations, 1);
}

TEST_F(ArtifactCacheTest, CacheThatIsTurnedOff_CompilesEveryTime) {
  Variables on = variables;
  variables = [=](const std::string &name) {
    return name == "NSA_CACHE" ? std::optional<std::string>("0") : on(name);
  };
  EXPECT_TRUE(get({"text", {}, 1, 2}));
  EXPECT_TRUE(get({"text", {}, 1, 2}));
  EXPECT_EQ(compilations, 2);
}

TEST_F(ArtifactCacheTest, EntriesOverTheLimit_TheOldestAreRemoved) {
  const uint64_t each = makeTestArtifact().size() + 1;
  ArtifactCache cache = take(ArtifactCache::open(variables, 2 * each));
  auto ask = [&](const std::string &text) {
    int before = compilations;
    Result<std::string> bytes = cache.read("model", {text, {}, 1, 2}, compile,
                                           [](const std::string &) {});
    EXPECT_TRUE(bytes && *bytes == makeTestArtifact());
    return compilations - before;
  };
  auto age = [&](const std::string &text, int hours) {
    std::filesystem::last_write_time(
        cache.entry("model", {text, {}, 1, 2}) + "/model.nsax",
        std::filesystem::file_time_type::clock::now() -
            std::chrono::hours(hours));
  };
  EXPECT_EQ(ask("a") + ask("b"), 2);
  age("a", 2);
  age("b", 1);
  // Its use makes it the youngest.
  EXPECT_EQ(ask("a"), 0);
  EXPECT_EQ(ask("c"), 1);
  EXPECT_EQ(ask("a"), 0);
  // What is in use stays, whatever its age.
  age("a", 2);
  {
    FileLock used = take(
        FileLock::take(cache.entry("model", {"a", {}, 1, 2}) + "/lock", "it"));
    EXPECT_EQ(ask("b"), 1);
  }
  EXPECT_EQ(ask("a"), 0);
  EXPECT_EQ(ask("c"), 1);
}

TEST_F(ArtifactCacheTest, TheFolderIsThatOfTheUserAlone) {
  ArtifactCache cache = take(ArtifactCache::open(variables));
  EXPECT_EQ(cache.folder(), dir / "nsa");
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(dir / "nsa").permissions(),
            perms::owner_all);
  std::filesystem::permissions(dir / "nsa", perms::all);
  std::string user = std::to_string(::geteuid());
  EXPECT_EQ(ArtifactCache::open(variables).message().rfind(
                "the folder for compiled models '" + (dir / "nsa") +
                    "' belongs to user " + user + " and has mode 0777: ",
                0),
            0u)
      << ArtifactCache::open(variables).message();
}

TEST_F(ArtifactCacheTest, RelativeXDGCacheHomeIsIgnored) {
  auto open = [&](const std::string &cache, const std::string &home) {
    return ArtifactCache::open(
        [=](const std::string &name) -> std::optional<std::string> {
          return name == "HOME" ? home : cache;
        });
  };
  EXPECT_EQ(open("cache", dir.str())->folder(), dir / ".cache/nsa");
  EXPECT_EQ(open("", "").message(),
            "there is no folder for compiled models: neither XDG_CACHE_HOME "
            "nor HOME is an absolute path");
}

TEST(CompileConfig, ConfigurationsAreToldByTheirExtension) {
  EXPECT_TRUE(namesConfiguration("a/b.yaml"));
  EXPECT_TRUE(namesConfiguration("b.yml"));
  EXPECT_TRUE(namesConfiguration("run/config.json"));
  EXPECT_FALSE(namesConfiguration("yaml.nsax"));
  EXPECT_FALSE(namesConfiguration("yaml"));
}

TEST(CompileConfig, KeysOfTheConfigurationBecomeOptions) {
  RunConfig config;
  config.runtime.precision = "bf16";
  config.runtime.gradientCheckpointing = "block";
  config.runtime.recomputeBudget = 300;
  config.train.optimizer = "lion";
  EXPECT_EQ(
      makeCompileOptions(config, "sm_80", {"shard-ranks=2"}),
      (std::vector<std::string>{"--target=sm_80", "--precision=bf16",
                                "--optimizer=lion", "--recompute=block",
                                "--recompute-budget=300", "--shard-ranks=2"}));
}

TEST(CompileConfig, OptionsThatAKeyStandsForAreRefused) {
  EXPECT_TRUE(checkCompileOption("no-fuse"));
  EXPECT_TRUE(checkCompileOption("logits-mib=48"));
  for (const char *option : {"precision=bf16", "output=a", "--no-fuse", ""})
    EXPECT_FALSE(checkCompileOption(option)) << option;
  EXPECT_TRUE(failsWith(checkCompileOption("shard-rank=2"),
                        "did you mean 'shard-ranks'?"));
}
