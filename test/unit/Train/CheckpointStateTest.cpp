//===- CheckpointStateTest.cpp - what makes a checkpoint bad --------------===//

#include "lib/Support/Hash.h"
#include "lib/Support/Json.h"
#include "lib/Support/Safetensors.h"
#include "runtime/Train/Checkpoint.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"
#include "test/unit/Train/BigramModel.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <tuple>
#include <unistd.h>

using namespace nsa;
namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

const char *const state5 = "checkpoints/step-00000005/state.json";

class CheckpointState : public ::testing::Test {
protected:
  void SetUp() override {
    config.train.batchSize = config.train.microBatch = 4;
    ASSERT_TRUE(succeeds(save(5)));
  }

  Result<std::string> save(int64_t step) {
    TrainState state;
    state.step = step;
    state.samples = uint64_t(step) * 4;
    state.seed = 1;
    state.artefactHash = 0xabc;
    return saveCheckpoint(dir.str(), model, state, config, 1, &report);
  }

  Result<Checkpoint> open() {
    return Checkpoint::open(dir / "checkpoints/step-00000005");
  }

  /// Changes state.json, and its hash of itself if asked for.
  void change(const std::function<void(Json &)> &how, bool sealed) {
    Json json = Json::parse(dir.read(state5));
    how(json);
    if (sealed) {
      json.erase("state_xxh3");
      json["state_xxh3"] = toHex(hashBytes(jsonText(json)));
    }
    dir.write(state5, jsonText(json, 2));
  }

  TempDir dir;
  BigramModel model{1, 2, 4};
  RunConfig config;
  SaveReport report;
};

// A changed step once resumed elsewhere and ended with other weights.
TEST_F(CheckpointState, AnyChangedMember_IsRefused) {
  std::string good = dir.read(state5);
  Json all = Json::parse(good);
  for (const auto &[name, value] : all.items()) {
    change(
        [&, name = name](Json &json) {
          json[name] = json[name].is_number()
                           ? Json(json[name].get<int64_t>() + 1)
                           : Json("0123");
        },
        /*sealed=*/false);
    EXPECT_FALSE(open().ok()) << name;
    EXPECT_FALSE(readTrainState(dir / "checkpoints/step-00000005").ok())
        << name;
    change([&, name = name](Json &json) { json.erase(name); },
           /*sealed=*/false);
    EXPECT_FALSE(open().ok()) << name;
    dir.write(state5, good);
  }
  // A digit of a hash, which made auto begin a new run.
  size_t at = good.find("\"artefact_hash\": \"") + 20;
  good[at] = good[at] == '0' ? '1' : '0';
  dir.write(state5, good);
  Result<TrainState> state = readTrainState(dir / "checkpoints/step-00000005");
  EXPECT_TRUE(failsWith(state, "state.json' is damaged: its hash is "));
}

TEST_F(CheckpointState, NumbersThatDoNotAgree_AreNamed) {
  std::string good = dir.read(state5), name = "'" + dir / state5;
  for (const auto &[key, value, error] :
       {std::tuple("step", 6, "it says step 6, its folder is of step 5"),
        std::tuple("samples", 24, "it says 24 samples, 5 steps of 4 have 20"),
        std::tuple("seed", 7, "it says seed 7, config.yaml says 1")}) {
    change([&, key = key, value = value](Json &json) { json[key] = value; },
           /*sealed=*/true);
    EXPECT_EQ(messageOf(open()), name + "' is damaged: " + error);
    dir.write(state5, good);
  }
  fs::rename(dir / "checkpoints/step-00000005",
             dir / "checkpoints/step-00000007");
  EXPECT_FALSE(Checkpoint::open(dir / "checkpoints/step-00000007").ok());
}

// What older versions wrote is read, and what can be checked in it is.
TEST_F(CheckpointState, Format1_IsAcceptedAsNotSealed) {
  ASSERT_TRUE(open().ok());
  EXPECT_TRUE(open()->isSealed);
  auto makeOld = [](Json &json) {
    json["format"] = 1;
    json.erase("state_xxh3");
  };
  change(makeOld, /*sealed=*/false);
  Checkpoint opened = take(open());
  EXPECT_FALSE(opened.isSealed);
  change([](Json &json) { json["samples"] = 24; }, /*sealed=*/false);
  EXPECT_FALSE(open().ok());
  for (int format : {0, 2, 3}) {
    change([&](Json &json) { json["format"] = format; }, /*sealed=*/false);
    EXPECT_FALSE(open().ok()) << format;
  }
}

// The newest checkpoint was once the one with the NaN, and the last good one
// was removed for it.
TEST_F(CheckpointState, ValueNotFinite_IsNotSaved) {
  for (const auto &[tensor, value, found] :
       {std::tuple("w", NAN, "parameter 'w'[3] is nan"),
        std::tuple("m.w", -INFINITY, "state 'm.w'[3] is -inf"),
        std::tuple("v.w", INFINITY, "state 'v.w'[3] is inf")}) {
    model.set(tensor, 3, value);
    EXPECT_EQ(messageOf(save(6)), found);
    EXPECT_EQ(report.failure, SaveFailure::NotFinite);
    EXPECT_EQ(dir.read("checkpoints/latest"), "step-00000005\n");
    EXPECT_TRUE(open().ok());
    EXPECT_EQ(std::distance(fs::directory_iterator(dir / "checkpoints"), {}),
              2);
    model.set(tensor, 3, 0);
  }
  EXPECT_TRUE(save(6).ok());
}

// Such a file may come from elsewhere.
TEST_F(CheckpointState, ValueNotFinite_IsNotRead) {
  std::string file = "checkpoints/step-00000005/optimizer.safetensors";
  std::string bytes = dir.read(file);
  uint32_t nan = 0x7FC00000;
  std::memcpy(&bytes[bytes.size() - 4], &nan, 4);
  dir.write(file, bytes);
  change(
      [&](Json &json) {
        json["xxh3"]["optimizer.safetensors"] = toHex(hashBytes(bytes));
      },
      /*sealed=*/true);
  Result<Checkpoint> opened = open();
  EXPECT_TRUE(failsWith(
      opened, "optimizer.safetensors' has a value that is not finite: "
              "'target_fraction_sum'[0] is nan"));
}

// Old checkpoints once stayed, without a word, where they could not be removed.
TEST_F(CheckpointState, OldCheckpointStays_IsReported) {
  std::string deep = dir / "checkpoints/step-00000005";
  for (int i = 0; i < 20; ++i)
    deep += "/x";
  fs::create_directories(deep);
  // Each level of it takes a descriptor.
  struct rlimit old;
  getrlimit(RLIMIT_NOFILE, &old);
  int free = ::dup(0);
  ::close(free);
  struct rlimit few = {rlim_t(free) + 5, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  Result<std::string> saved = save(6);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  ASSERT_TRUE(saved.ok()) << saved.message();
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_EQ(report.warnings[0].find("cannot remove '" +
                                    dir / "checkpoints/step-00000005': "),
            0u)
      << report.warnings[0];
}

TEST_F(CheckpointState, FilesOfDeadProcesses_AreRemoved) {
  pid_t dead = ::fork();
  if (dead == 0)
    ::_exit(0);
  ::waitpid(dead, nullptr, 0);
  std::string random = ".0123456789abcdef";
  std::string gone = ".tmp." + std::to_string(dead) + random;
  std::string older = ".tmp." + std::to_string(dead);
  std::string mine = ".tmp." + std::to_string(::getpid()) + random;
  for (const char *folder : {"", "checkpoints/"})
    for (const std::string &name : {"a" + gone, "a" + older, "a" + mine,
                                    std::string("a.tmp.x"), "a" + gone + "x"})
      dir.write(folder + name, "");
  EXPECT_TRUE(removeUnfinished(dir.str()).empty());
  for (const char *folder : {"", "checkpoints/"}) {
    EXPECT_FALSE(fs::exists(dir / folder + "a" + gone));
    EXPECT_FALSE(fs::exists(dir / folder + "a" + older));
    for (const std::string &name :
         {"a" + mine, std::string("a.tmp.x"), "a" + gone + "x"})
      EXPECT_TRUE(fs::exists(dir / folder + name)) << name;
  }
  EXPECT_TRUE(open().ok());
}

TEST_F(CheckpointState, Size_IsThatOfTheTensors) {
  // w, m.w and v.w of 4x4, and two scalars.
  EXPECT_EQ(checkpointSize(model).bytes, 3u * 64 + 8);
  EXPECT_EQ(checkpointSize(model).largestFile, 2u * 64 + 8);
  model.sharing = 4;
  EXPECT_EQ(checkpointSize(model).bytes, 64u + 4 * 128 + 8);
  EXPECT_EQ(checkpointSize(model).largestFile, 128u);
}

template <typename Bits>
std::string findIn(const char *dtype, size_t count, size_t index, Bits value) {
  std::vector<Bits> data(count);
  data[index] = value;
  return findNonFinite(
      {"t", dtype, {count}, data.data(), count * sizeof(Bits)});
}

TEST(Safetensors, FindNonFinite_AllTypes_NamesTheElement) {
  EXPECT_EQ(findIn<uint32_t>("F32", 9000, 8191, 0x7F800001), "[8191] is nan");
  EXPECT_EQ(findIn<uint32_t>("F32", 9000, 8192, 0xFF800000), "[8192] is -inf");
  EXPECT_EQ(findIn<uint32_t>("F32", 9000, 0, 0x7F7FFFFF), "");
  EXPECT_EQ(findIn<uint16_t>("BF16", 9, 8, 0x7F80), "[8] is inf");
  EXPECT_EQ(findIn<uint16_t>("BF16", 9, 8, 0xFFC0), "[8] is nan");
  EXPECT_EQ(findIn<uint16_t>("BF16", 9, 8, 0x7C00), "");
  EXPECT_EQ(findIn<uint16_t>("F16", 9, 8, 0x7C00), "[8] is inf");
  EXPECT_EQ(findIn<uint16_t>("F16", 9, 8, 0xFE00), "[8] is nan");
  EXPECT_EQ(findIn<uint64_t>("F64", 9, 8, 0x7FF0000000000000), "[8] is inf");
  EXPECT_EQ(findIn<uint32_t>("I32", 9, 8, 0x7F800001), "");
  EXPECT_EQ(findNonFinite({"t", "F32", {0}, nullptr, 0}), "");
}

} // namespace
