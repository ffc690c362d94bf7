//===- CheckpointTest.cpp - saving and resuming ---------------------------===//

#include "runtime/Train/Checkpoint.h"
#include "runtime/Train/NamedTensors.h"
#include "runtime/Train/RunDirectory.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"
#include "test/unit/Train/BigramModel.h"

#include <csignal>
#include <sys/resource.h>

using namespace nsa;
namespace fs = std::filesystem;

namespace {

TrainState stateAt(int64_t step) {
  TrainState state;
  state.step = step;
  state.samples = uint64_t(step) * 4;
  state.seed = 9;
  state.artefactHash = 0xabc;
  state.dataDigest = 0xdef;
  return state;
}

/// The configuration of stateAt.
RunConfig runConfig() {
  RunConfig config;
  config.train.batchSize = 4;
  config.train.microBatch = 4;
  config.train.seed = 9;
  return config;
}

/// What finds checkpoints of a program and data.
CheckpointFilter ofProgram(uint64_t artefact, uint64_t data) {
  return [=](const std::string &, const TrainState &state) {
    return Result<bool>(state.artefactHash == artefact &&
                        state.dataDigest == data);
  };
}

/// A model whose every persistent element differs from `seed` to `seed`.
void fill(const BigramModel &model, float seed) {
  for (const TensorView &tensor : model.tensors())
    if (tensor.type == DataType::F32) {
      for (uint64_t i = 0; i < tensor.elements(); ++i)
        tensor.as<float>()[i] = seed + float(i);
      (void)model.toDevice(tensor);
    }
}

TEST(Checkpoint, Restored_EveryPersistentTensorIsThere) {
  TempDir dir;
  BigramModel model(1, 2, 4);
  fill(model, 0.5f);
  Result<std::string> path =
      saveCheckpoint(dir.str(), model, stateAt(12), runConfig(), 2);
  ASSERT_TRUE(path.ok()) << path.message();
  EXPECT_EQ(*path, dir / "checkpoints/step-00000012");

  FoundCheckpoint found = take(findCheckpoint(dir.str()));
  EXPECT_EQ(found.path, *path);
  Checkpoint checkpoint = take(Checkpoint::open(*path));
  EXPECT_EQ(checkpoint.state.step, 12);
  EXPECT_EQ(checkpoint.state.samples, 48u);
  EXPECT_EQ(checkpoint.state.seed, 9u);
  EXPECT_EQ(checkpoint.state.artefactHash, 0xabcu);
  EXPECT_EQ(runOf(*path), dir.str());

  BigramModel other(1, 2, 4);
  ASSERT_TRUE(succeeds(restoreByName(*path, other, 0)));
  for (const char *name : {"w", "m.w", "v.w", "loss_sum"}) {
    const TensorView *a = model.find(name), *b = other.find(name);
    EXPECT_EQ(std::memcmp(a->data, b->data, a->bytes), 0) << name;
  }
  EXPECT_EQ(other.find("grad.w")->as<float>()[0], 0.0f);

  BigramModel wider(1, 2, 5);
  EXPECT_TRUE(failsWith(restoreByName(*path, wider, 0),
                        "'w' is F32[4x4], the artefact's is F32[5x5]"));
}

TEST(Checkpoint, OldOnes_AreRemoved) {
  TempDir dir;
  BigramModel model(1, 2, 4);
  for (int64_t step : {5, 10, 15, 20})
    ASSERT_TRUE(
        saveCheckpoint(dir.str(), model, stateAt(step), runConfig(), 2).ok());
  EXPECT_FALSE(fs::exists(dir / "checkpoints/step-00000010"));
  EXPECT_TRUE(fs::exists(dir / "checkpoints/step-00000015"));
  EXPECT_TRUE(fs::exists(dir / "checkpoints/step-00000020"));
  EXPECT_EQ(dir.read("checkpoints/latest"), "step-00000020\n");
  ASSERT_TRUE(
      saveCheckpoint(dir.str(), model, stateAt(25), runConfig(), 0).ok());
  EXPECT_TRUE(fs::exists(dir / "checkpoints/step-00000015"));
}

// After going back, the numbers of the abandoned future were once kept and the
// checkpoint just saved was removed.
TEST(Checkpoint, OneJustSaved_IsKept) {
  TempDir dir;
  BigramModel model(1, 2, 4);
  for (int64_t step : {2, 8, 10, 4})
    ASSERT_TRUE(
        saveCheckpoint(dir.str(), model, stateAt(step), runConfig(), 2).ok());
  EXPECT_EQ(dir.read("checkpoints/latest"), "step-00000004\n");
  EXPECT_TRUE(fs::exists(dir / "checkpoints/step-00000004/state.json"));
  ASSERT_TRUE(
      saveCheckpoint(dir.str(), model, stateAt(6), runConfig(), 1).ok());
  EXPECT_FALSE(fs::exists(dir / "checkpoints/step-00000004"));
  EXPECT_TRUE(fs::exists(dir / "checkpoints/step-00000006/state.json"));
}

TEST(Checkpoint, LeftoversOfKilledSaves_AreRemoved) {
  TempDir dir;
  BigramModel model(1, 2, 4);
  ASSERT_TRUE(
      saveCheckpoint(dir / "run", model, stateAt(4), runConfig(), 2).ok());
  ASSERT_TRUE(beginCheckpoint(dir / "run", 6).ok());
  ASSERT_TRUE(fs::exists(dir / "run/checkpoints/.tmp-step-00000006"));
  removeUnfinished(dir / "run");
  EXPECT_FALSE(fs::exists(dir / "run/checkpoints/.tmp-step-00000006"));
  EXPECT_TRUE(fs::exists(dir / "run/checkpoints/step-00000004/state.json"));
}

TEST(Checkpoint, ShortPaths_AreFound) {
  TempDir dir;
  BigramModel model(1, 2, 4);
  ASSERT_TRUE(
      saveCheckpoint(dir / "run", model, stateAt(4), runConfig(), 2).ok());
  std::string expected =
      fs::canonical(dir / "run/checkpoints/step-00000004").string();
  fs::path before = fs::current_path();
  for (const auto &[place, path] :
       {std::pair<const char *, const char *>{"run", "."},
        {"run", "./"},
        {"run", "checkpoints"},
        {"run", "checkpoints/step-00000004/"},
        {"run", "checkpoints/step-4"},
        {"run/checkpoints", "step-4"},
        {"run/checkpoints", ".."},
        {"run/checkpoints/step-00000004", "."},
        {".", "run"}}) {
    fs::current_path(dir / place);
    Result<FoundCheckpoint> found = findCheckpoint(path);
    fs::current_path(before);
    ASSERT_TRUE(found.ok()) << path << ": " << found.message();
    EXPECT_EQ(found->path, expected) << place << ", " << path;
  }
}

TEST(Checkpoint, Returning_SetsLaterOnesAside) {
  TempDir dir;
  BigramModel model(1, 2, 4);
  for (int round = 0; round < 2; ++round) {
    for (int64_t step : {2, 8, 10})
      ASSERT_TRUE(
          saveCheckpoint(dir.str(), model, stateAt(step), runConfig(), 0).ok());
    std::vector<std::string> moved =
        take(returnTo(dir / "checkpoints/step-00000002"));
    EXPECT_EQ(moved.size(), 2u);
    EXPECT_EQ(dir.read("checkpoints/latest"), "step-00000002\n");
  }
  for (const char *name : {"08", "10", "08-2", "10-2"})
    EXPECT_TRUE(fs::exists(
        dir / (std::string("checkpoints/abandoned-step-000000") + name)))
        << name;
  EXPECT_FALSE(fs::exists(dir / "checkpoints/step-00000008"));
  std::vector<std::string> again =
      take(returnTo(dir / "checkpoints/step-00000002"));
  EXPECT_TRUE(again.empty());
}

TEST(Checkpoint, OneOfTheSameStep_IsReplaced) {
  TempDir dir;
  BigramModel model(1, 2, 4);
  fill(model, 1);
  ASSERT_TRUE(
      saveCheckpoint(dir.str(), model, stateAt(5), runConfig(), 2).ok());
  fill(model, 2);
  ASSERT_TRUE(
      saveCheckpoint(dir.str(), model, stateAt(5), runConfig(), 2).ok());
  BigramModel other(1, 2, 4);
  ASSERT_TRUE(
      succeeds(restoreByName(dir / "checkpoints/step-00000005", other, 0)));
  EXPECT_EQ(other.weights()[0], 2.0f);
  for (const fs::directory_entry &entry :
       fs::directory_iterator(dir / "checkpoints"))
    EXPECT_NE(entry.path().filename().string()[0], '.');
}

// A write that breaks off must leave the previous checkpoint in force.
TEST(Checkpoint, FailedSave_ChangesNothing) {
  TempDir dir;
  BigramModel model(1, 2, 4);
  ASSERT_TRUE(
      saveCheckpoint(dir.str(), model, stateAt(5), runConfig(), 1).ok());
  // No file may grow past 100 bytes: what a full disk looks like.
  struct rlimit old;
  getrlimit(RLIMIT_FSIZE, &old);
  struct rlimit small = {100, old.rlim_max};
  std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  Result<std::string> path =
      saveCheckpoint(dir.str(), model, stateAt(7), runConfig(), 1);
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_TRUE(failsWith(path, "File too large"));
  EXPECT_EQ(dir.read("checkpoints/latest"), "step-00000005\n");
  EXPECT_TRUE(Checkpoint::open(dir / "checkpoints/step-00000005").ok());
  EXPECT_FALSE(fs::exists(dir / "checkpoints/.tmp-step-00000007"));
}

TEST(Checkpoint, Damage_IsFatal) {
  TempDir dir;
  BigramModel model(1, 2, 4);
  std::string folder = "checkpoints/step-00000003/";
  ASSERT_TRUE(
      saveCheckpoint(dir.str(), model, stateAt(3), runConfig(), 1).ok());
  for (const char *file : {"model.safetensors", "optimizer.safetensors",
                           "config.yaml", "state.json"}) {
    std::string good = dir.read(folder + file);
    std::string bad = good;
    bad[good.size() / 2] = char(bad[good.size() / 2] ^ 0x08);
    dir.write(folder + file, bad);
    Result<Checkpoint> opened = Checkpoint::open(dir / folder);
    EXPECT_FALSE(opened.ok()) << file;
    dir.write(folder + file, good.substr(0, good.size() / 2));
    EXPECT_FALSE(Checkpoint::open(dir / folder).ok()) << file;
    fs::remove(dir / (folder + file));
    EXPECT_FALSE(Checkpoint::open(dir / folder).ok()) << file;
    dir.write(folder + file, good);
    EXPECT_TRUE(Checkpoint::open(dir / folder).ok()) << file;
  }
  EXPECT_FALSE(findCheckpoint(dir / "nothing").ok());
  dir.write("checkpoints/latest", "../../etc\n");
  EXPECT_FALSE(findCheckpoint(dir.str()).ok());
}

TEST(Checkpoint, SeveralRuns_NewestOfTheSameProgramAndDataIsFound) {
  TempDir dir;
  BigramModel model(1, 2, 4);
  TrainState state = stateAt(3);
  ASSERT_TRUE(saveCheckpoint(dir / "a", model, state, runConfig(), 1).ok());
  state = stateAt(8);
  ASSERT_TRUE(saveCheckpoint(dir / "b", model, state, runConfig(), 1).ok());
  fs::last_write_time(dir / "a/checkpoints/latest",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  state.artefactHash = 1;
  ASSERT_TRUE(saveCheckpoint(dir / "c", model, state, runConfig(), 1).ok());
  dir.write("d/nothing", "");
  Result<FoundCheckpoint> found =
      findNewestCheckpoint(dir.str(), ofProgram(0xabc, 0xdef));
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->path, dir / "b/checkpoints/step-00000008");
  EXPECT_EQ(found->others, 1u);
  found = findNewestCheckpoint(dir.str(), ofProgram(0xabc, 0));
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->path.empty());
  EXPECT_EQ(found->others, 3u);
}

// Exceptions of the file system once aborted the process, and a folder that
// could not be read was taken for one without runs.
TEST(Checkpoint, UnreadableFolder_IsAnError) {
  TempDir dir;
  fs::create_symlink("loop", dir / "loop");
  std::string name(300, 'x');
  for (const std::string &path : {dir / "loop", dir / name}) {
    EXPECT_TRUE(failsWith(findCheckpoint(path), "cannot inspect '"));
    EXPECT_FALSE(RunDirectory::reopen(path).ok());
    EXPECT_FALSE(CsvLog::open(path, "step,x", 0).ok());
    EXPECT_TRUE(failsWith(findNewestCheckpoint(path, ofProgram(1, 2)),
                          "cannot list '"));
  }
  EXPECT_TRUE(findNewestCheckpoint(dir / "none", ofProgram(1, 2)).ok());
  EXPECT_TRUE(failsWith(findNewestCheckpoint(dir.str(), ofProgram(1, 2)),
                        "cannot inspect '"));
}

// Every key either may change on resume or is refused.
TEST(Checkpoint, EveryKey_IsComparedOnResume) {
  RunConfig saved;
  EXPECT_TRUE(compareForResume(saved, saved)->empty());
  RunConfig longer = saved;
  longer.train.steps = 2000;
  Result<std::vector<std::string>> changes = compareForResume(saved, longer);
  ASSERT_TRUE(changes.ok());
  EXPECT_EQ(*changes, std::vector<std::string>{"train.steps: 1000 -> 2000"});
  RunConfig reseeded = saved;
  reseeded.train.seed = 5;
  changes = compareForResume(saved, reseeded);
  EXPECT_EQ(messageOf(changes), "cannot resume: train.seed was 1 and is now 5");
  RunConfig lion = saved;
  lion.train.optimizer = "lion";
  changes = compareForResume(saved, lion);
  EXPECT_EQ(messageOf(changes),
            "cannot resume: train.optimizer was \"adamw\" and is now \"lion\" "
            "(--init-from begins a run with the weights alone)");
  for (const ConfigField &field : configSchema()) {
    RunConfig other = saved;
    if (auto *number = std::get_if<ConfigField::IntAccess>(&field.access))
      (*number)(other) += 1;
    else if (auto *real = std::get_if<ConfigField::FloatAccess>(&field.access))
      (*real)(other) += 0.25;
    else if (auto *flag = std::get_if<ConfigField::BoolAccess>(&field.access))
      (*flag)(other) = !(*flag)(other);
    else
      std::get<ConfigField::StringAccess>(field.access)(other) += "x";
    Result<std::vector<std::string>> result = compareForResume(saved, other);
    EXPECT_EQ(result.ok(), field.mayChange) << field.path();
    EXPECT_TRUE(!result.ok() || result->size() == 1) << field.path();
  }
}

// A new key must decide what it changes.
TEST(ConfigField, MayChange_OnlyWhatKeepsTheMeaningOfTheState) {
  std::vector<std::string> fixed;
  for (const ConfigField &field : configSchema()) {
    if (isModelKey(field))
      EXPECT_FALSE(field.mayChange) << field.path();
    else if (!field.mayChange)
      fixed.push_back(field.path());
  }
  EXPECT_EQ(fixed, (std::vector<std::string>{
                       "data.isolate_documents", "data.window", "data.targets",
                       "train.seq_len", "train.batch_size", "train.optimizer",
                       "train.seed"}));
}

// Such as one that was saved before there was the key.
TEST(Checkpoint, KeyIsNotInSavedConfig_DefaultIsNoChange) {
  const std::string whole = "\n" + printConfigYaml(RunConfig());
  for (const ConfigField &field : configSchema()) {
    const std::string header = "\n" + field.section + ":";
    size_t begin = whole.find(header + "\n");
    ASSERT_NE(begin, std::string::npos) << field.path();
    size_t at = whole.find("\n  " + field.key + ":", begin);
    ASSERT_NE(at, std::string::npos) << field.path();
    std::string text = whole;
    text.erase(at, text.find('\n', at + 1) - at);
    // No section is without keys.
    if (size_t next = begin + header.size() + 1; text[next] != ' ')
      text.erase(begin, header.size());
    RunConfig saved = take(parseConfig(text, "config.yaml"));
    std::vector<std::string> changes =
        take(compareForResume(saved, RunConfig()));
    EXPECT_TRUE(changes.empty()) << field.path();
  }
}

} // namespace
