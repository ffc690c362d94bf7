//===- NamedTensorsTest.cpp - checkpoints of other programs ---------------===//

#include "runtime/Train/NamedTensors.h"
#include "runtime/Train/Checkpoint.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"

#include <algorithm>
#include <list>

using namespace nsa;

namespace {

/// Two parameters `a` of 6 and `b` of 10 elements and their moments: whole, or
/// one rank's part of them, in the buckets that are given.
class PartModel final : public TensorSet {
public:
  /// A bucket: parameters in the order of memory, each padded to 4 elements.
  using Buckets = std::vector<std::vector<std::string>>;

  explicit PartModel(int ranks = 0, int rank = 0, Buckets buckets = {})
      : ranks(ranks), buckets(std::move(buckets)) {
    add("a", 6, TensorRole::Parameter);
    add("b", 10, TensorRole::Parameter);
    uint64_t part = 0;
    for (const StateRange &range : rangesOf(rank))
      part = std::max(part, range.offset + range.count);
    for (std::string state : {"m", "v"}) {
      if (ranks > 0)
        // Padding at the end.
        add(state + ".others", part + 3, TensorRole::State, state);
      for (const char *parameter : {"a", "b"})
        if (ranks == 0)
          add(state + "." + parameter, sizeOf(parameter), TensorRole::State,
              state);
    }
    add("loss_sum", 1, TensorRole::State);
  }

  void addState(const std::string &name, float value) {
    add(name, 1, TensorRole::State);
    *find(name)->as<float>() = value;
  }

  /// Another name of a state of all parameters.
  void renameState(const std::string &before, const std::string &now) {
    for (TensorView &view : views)
      if (view.state == before) {
        view.state = now;
        view.name = now + view.name.substr(before.size());
      }
  }

  const std::vector<TensorView> &tensors() const override { return views; }
  int sharingRanks() const override { return ranks; }
  Result<std::vector<StateRange>> stateRanges(int rank) const override {
    return rangesOf(rank);
  }

  const TensorView *find(const std::string &name) const {
    for (const TensorView &view : views)
      if (view.name == name)
        return &view;
    return nullptr;
  }

  /// A value that no other element of any tensor has.
  static float valueOf(const std::string &parameter, char kind, uint64_t i) {
    return float(parameter == "a" ? 100 : 200) + float(i) +
           (kind == 'm'   ? 1000
            : kind == 'v' ? 2000
                          : 0);
  }

  /// Gives every parameter and moment, of this rank, its values.
  void fill(int rank) {
    for (const char *parameter : {"a", "b"})
      for (uint64_t i = 0; i < sizeOf(parameter); ++i)
        for (char kind : {'w', 'm', 'v'}) {
          std::string name =
              kind == 'w' ? parameter : std::string(1, kind) + "." + parameter;
          if (const TensorView *tensor = find(name))
            tensor->as<float>()[i] = valueOf(parameter, kind, i);
        }
    for (const StateRange &range : rangesOf(rank))
      for (uint64_t i = 0; i < range.count; ++i)
        find(range.tensor)->as<float>()[range.offset + i] =
            valueOf(range.parameter, range.tensor[0], range.first + i);
  }

private:
  static uint64_t sizeOf(const std::string &parameter) {
    return parameter == "a" ? 6 : 10;
  }

  void add(const std::string &name, uint64_t elements, TensorRole role,
           const std::string &state = "") {
    storage.emplace_back(elements, 0.0f);
    views.push_back({name,
                     DataType::F32,
                     {elements},
                     storage.back().data(),
                     elements * 4,
                     role,
                     false,
                     state});
  }

  std::vector<StateRange> rangesOf(int rank) const {
    std::vector<StateRange> ranges;
    uint64_t base = 0;
    for (const std::vector<std::string> &bucket : buckets) {
      uint64_t whole = 0;
      for (const std::string &name : bucket)
        whole += (sizeOf(name) + 3) / 4 * 4;
      uint64_t part = whole / uint64_t(ranks), at = 0;
      uint64_t begin = part * uint64_t(rank), end = begin + part;
      for (const std::string &name : bucket) {
        uint64_t from = std::max(begin, at);
        uint64_t to = std::min(end, at + sizeOf(name));
        for (const char *moment : {"m.others", "v.others"})
          if (from < to)
            ranges.push_back(
                {moment, base + from - begin, name, from - at, to - from});
        at += (sizeOf(name) + 3) / 4 * 4;
      }
      base += part;
    }
    return ranges;
  }

  int ranks;
  Buckets buckets;
  std::list<std::vector<float>> storage;
  std::vector<TensorView> views;
};

/// Saves a checkpoint of all ranks with the values of PartModel::fill.
std::string saveFilled(const TempDir &dir, int ranks,
                       const PartModel::Buckets &buckets) {
  TrainState state;
  state.step = 1;
  if (ranks > 0)
    EXPECT_TRUE(beginCheckpoint(dir.str(), 1));
  for (int rank = 0; rank < ranks; ++rank) {
    PartModel model(ranks, rank, buckets);
    model.fill(rank);
    EXPECT_TRUE(saveShare(dir.str(), 1, model, rank));
  }
  PartModel first(ranks, 0, buckets);
  first.fill(0);
  Result<std::string> path =
      saveCheckpoint(dir.str(), first, state, RunConfig(), 1);
  EXPECT_TRUE(path.ok()) << path.message();
  return path ? *path : "";
}

PartModel::Buckets together() { return {{"a", "b"}}; }
PartModel::Buckets apart() { return {{"b"}, {"a"}}; }

// From one to N ranks, N to one, N to M, and to other buckets.
TEST(NamedTensors, RestoreByName_OtherRanksAndBuckets_EveryMomentIsFound) {
  struct Layout {
    int ranks;
    PartModel::Buckets buckets;
  };
  const Layout layouts[] = {
      {0, {}}, {2, together()}, {2, apart()}, {4, together()}, {4, apart()}};
  for (const Layout &saved : layouts)
    for (const Layout &now : layouts) {
      TempDir dir;
      std::string folder = saveFilled(dir, saved.ranks, saved.buckets);
      for (int rank = 0; rank < std::max(now.ranks, 1); ++rank) {
        SCOPED_TRACE(std::to_string(saved.ranks) + " to " +
                     std::to_string(now.ranks) + ", rank " +
                     std::to_string(rank));
        PartModel expected(now.ranks, rank, now.buckets);
        PartModel model(now.ranks, rank, now.buckets);
        expected.fill(rank);
        std::vector<std::string> notes =
            take(restoreByName(folder, model, rank));
        EXPECT_TRUE(notes.empty());
        for (const TensorView &tensor : expected.tensors())
          EXPECT_TRUE(std::equal(tensor.as<float>(),
                                 tensor.as<float>() + tensor.elements(),
                                 model.find(tensor.name)->as<float>()))
              << tensor.name;
      }
    }
}

TEST(NamedTensors, RestoreByName_StateDiffers_InitialOrDroppedAndSaid) {
  TempDir dir;
  PartModel saved, model;
  saved.addState("loss_scale", 1024);
  model.addState("skipped_updates", 0);
  TrainState state;
  state.step = 1;
  std::string folder =
      take(saveCheckpoint(dir.str(), saved, state, RunConfig(), 1));
  std::vector<std::string> notes = take(restoreByName(folder, model, 0));
  EXPECT_EQ(notes,
            (std::vector<std::string>{
                "the checkpoint has no 'skipped_updates': it begins anew",
                "'loss_scale' of the checkpoint is dropped: the artefact has "
                "none"}));
}

// The names are those of all checkpoints so far: files on disk have them.
TEST(NamedTensors, RestoreByName_FilesWithTheFirstNames_EveryStateIsFound) {
  TempDir dir;
  PartModel filled;
  filled.fill(0);
  auto dataOf = [&](const char *name) { return filled.find(name)->data; };
  for (bool isShared : {false, true}) {
    std::string folder =
        isShared ? saveFilled(dir, 2, together()) : saveFilled(dir, 0, {});
    float sum = 0, halves[2][2][8] = {};
    std::vector<SafeTensor> whole = {{"loss_sum", "F32", {1}, &sum, 4}};
    if (!isShared)
      for (const char *name : {"m.a", "m.b", "v.a", "v.b"}) {
        uint64_t elements = filled.find(name)->elements();
        whole.push_back({name, "F32", {elements}, dataOf(name), elements * 4});
      }
    ASSERT_TRUE(writeSafetensors(folder + "/optimizer.safetensors", whole,
                                 {{"format", "pt"}}));
    // Rank 0 has all of `a` and the first two elements of `b`.
    for (int rank : {0, 1}) {
      if (!isShared)
        continue;
      for (uint64_t i = 0; i < 8; ++i)
        for (int kind : {0, 1}) {
          const char *parameter = rank == 0 && i < 6 ? "a" : "b";
          halves[rank][kind][i] = PartModel::valueOf(
              parameter, "mv"[kind], rank == 0 ? (i < 6 ? i : i - 6) : i + 2);
        }
      std::string ranges =
          rank == 0 ? R"([["m.others",0,"a",0,6],["m.others",6,"b",0,2],)"
                      R"(["v.others",0,"a",0,6],["v.others",6,"b",0,2]])"
                    : R"([["m.others",0,"b",2,8],["v.others",0,"b",2,8]])";
      ASSERT_TRUE(writeSafetensors(
          folder + "/optimizer_rank" + std::to_string(rank) + ".safetensors",
          {{"m.others", "F32", {8}, halves[rank][0], 32},
           {"v.others", "F32", {8}, halves[rank][1], 32}},
          {{"format", "pt"}, {"moment_ranges", ranges}}));
    }
    PartModel model;
    ASSERT_TRUE(succeeds(restoreByName(folder, model, 0)));
    for (const TensorView &tensor : filled.tensors())
      EXPECT_TRUE(std::equal(tensor.as<float>(),
                             tensor.as<float>() + tensor.elements(),
                             model.find(tensor.name)->as<float>()))
          << tensor.name << (isShared ? " of ranks" : "");
  }
}

TEST(NamedTensors, RestoreByName_AnotherOptimizer_IsRefused) {
  TempDir dir;
  std::string folder = saveFilled(dir, 0, {});
  PartModel model;
  model.renameState("m", "ema");
  EXPECT_TRUE(failsWith(restoreByName(folder, model, 0),
                        "has no element 0 of the state 'ema.a'"));
}

TEST(NamedTensors, RestoreByName_ShareOfAnOlderVersion_IsOfItsProgramAlone) {
  TempDir dir;
  std::string folder = saveFilled(dir, 2, together());
  std::string file = folder + "/optimizer_rank1.safetensors";
  float zeros[8] = {};
  ASSERT_TRUE(writeSafetensors(file,
                               {{"m.others", "F32", {8}, zeros, 32},
                                {"v.others", "F32", {8}, zeros, 32}},
                               {{"format", "pt"}}));
  PartModel model(2, 1, together());
  EXPECT_TRUE(
      succeeds(restoreByName(folder, model, 1, /*isSameProgram=*/true)));
  EXPECT_EQ(messageOf(restoreByName(folder, model, 1)),
            "'" + file +
                "' does not say whose states it has: only the artefact that "
                "saved it can go on from it");
}

TEST(NamedTensors, RestoreByName_RangesAreDamaged_IsRefused) {
  TempDir dir;
  std::string folder = saveFilled(dir, 2, together());
  std::string file = folder + "/optimizer_rank1.safetensors";
  float zeros[8] = {};
  struct Case {
    const char *ranges;
    const char *error;
  };
  for (const Case &damage :
       {Case{"[[\"m.others\",-1,\"a\",0,6]]", "damaged ranges"},
        Case{"[[\"m.others\",0,\"a\"]]", "damaged ranges"},
        Case{"[[\"m.others\",4,\"a\",0,6]]", "has no elements 4 to 10"},
        Case{"[[\"m.x\",0,\"a\",0,6]]", "has no elements 0 to 6 of 'm.x'"},
        Case{"[[\"m.others\",18446744073709551615,\"a\",0,6]]",
             "has no elements"},
        Case{"[]", "has no element"}}) {
    ASSERT_TRUE(writeSafetensors(file, {{"m.others", "F32", {8}, zeros, 32}},
                                 {{"moment_ranges", damage.ranges}}));
    PartModel model;
    EXPECT_TRUE(failsWith(restoreByName(folder, model, 0), damage.error));
  }
}

TEST(NamedTensors, ParameterDifferences_ManyNames_SomeAreNamed) {
  ParameterDifferences none, found;
  EXPECT_TRUE(none.none());
  found.missing = {"x", "y"};
  for (int i = 0; i < 10; ++i)
    found.extra.push_back("p" + std::to_string(i));
  found.different = {"'w' is F32[4], the artefact's is F32[5]"};
  EXPECT_FALSE(found.none());
  EXPECT_EQ(found.describe(),
            "it lacks 'x', 'y'; the artefact has no 'p0', 'p1', 'p2', 'p3', "
            "'p4', 'p5', 'p6', 'p7' and 2 more; 'w' is F32[4], the artefact's "
            "is F32[5]");
}

} // namespace
