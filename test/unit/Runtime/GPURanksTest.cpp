//===- GPURanksTest.cpp - reductions over stand-ins for GPUs --------------===//

#include "lib/Support/Float16.h"
#include "nsa/Runtime/Runtime.h"
#include "test/unit/Expect.h"
#include "test/unit/FakeCUDA/FakeCUDA.h"
#include "test/unit/Runtime/ArtifactBuilder.h"
#include "test/unit/TempDir.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace nsa;

namespace {

constexpr std::chrono::milliseconds kTimeout{300};

/// Keys are files of a folder, and so is what is said of lost ranks.
class FileProcessGroup final : public ProcessGroup {
public:
  FileProcessGroup(const TempDir &folder, int rank)
      : folder(folder), own(rank) {}

  int rank() const override { return own; }
  int size() const override { return 2; }
  std::chrono::milliseconds timeout() const override { return kTimeout; }
  Status set(const std::string &key, const std::string &value) override {
    folder.write(key + ".new", value);
    std::filesystem::rename(folder / (key + ".new"), folder / key);
    return {};
  }
  Result<std::string> get(const std::string &key) override {
    while (!std::filesystem::exists(folder / key))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return folder.read(key);
  }
  void progress(uint64_t number, uint64_t bytes) override {
    last = std::to_string(number) + " " + std::to_string(bytes);
  }
  std::string peerFailure() override {
    return std::filesystem::exists(folder / "loss") ? folder.read("loss") : "";
  }
  std::string rankStatus() override { return "rank 1 is elsewhere"; }
  void abortRun() override { aborted = true; }
  bool hasAborted() const override { return aborted; }

  /// What was said of the last reduction.
  std::string last;

private:
  const TempDir &folder;
  int own;
  bool aborted = false;
};

/// update(x) gives out the means of x and of twice x.
std::string makeUpdate() {
  ArtifactBuilder b;
  b.target = "sm_90a";
  b.binary();
  unsigned x = b.tensor("x", DataType::F32, {16}, TensorRole::Input);
  unsigned first = b.tensor("first", DataType::F32, {16}, TensorRole::State);
  unsigned second = b.tensor("second", DataType::F32, {16}, TensorRole::State);
  unsigned mean = b.tensor("mean", DataType::F32, {16}, TensorRole::Output);
  unsigned other = b.tensor("other", DataType::F32, {16}, TensorRole::Output);
  unsigned add = b.kernel("add", "test_add", 1, {64, 64, 64}, 1);
  b.entry("update", {x}, {mean, other},
          {b.copy(b.of(x), b.of(first)), b.startReduction(b.of(first)),
           b.launch(add, {b.of(x), b.of(x), b.of(second)}),
           b.startReduction(b.of(second)), b.finishReduction(b.of(second)),
           b.finishReduction(b.of(first)), b.copy(b.of(first), b.of(mean)),
           b.copy(b.of(second), b.of(other))});
  return b.finish();
}

struct Rank {
  Rank(const TempDir &folder, int rank) : group(folder, rank) {
    options.blasLibrary = options.ncclLibrary = NSA_FAKE_CUDA;
    options.ranks = &group;
  }
  /// An error, or "".
  std::string load(const std::string &bytes = makeUpdate()) {
    Status status = create(bytes);
    return status ? "" : status.message();
  }
  Status create(const std::string &bytes) {
    Result<Artifact> artifact =
        Artifact::fromBytes(bytes.data(), bytes.size(), "test.nsax");
    if (!artifact)
      return Error{artifact.message()};
    Result<Program> made = Program::create(*artifact, options);
    if (!made)
      return Error{made.message()};
    program.emplace(std::move(*made));
    return {};
  }
  /// The means of `value` and of twice that, if all elements agree.
  Result<std::pair<float, float>> average(float value) {
    const TensorView *x = program->findTensor("x");
    std::fill_n(x->as<float>(), x->elements(), value);
    if (Status status = program->run("update"); !status)
      return Error{status.message()};
    const float *mean = program->findTensor("mean")->as<float>();
    const float *other = program->findTensor("other")->as<float>();
    for (uint64_t i = 1; i < x->elements(); ++i)
      if (mean[i] != mean[0] || other[i] != other[0])
        return Error{"elements differ"};
    return std::pair{mean[0], other[0]};
  }

  RuntimeOptions options;
  FileProcessGroup group;
  std::optional<Program> program;
};

/// Rank 1, a process of its own, which ends after some runs.
class OtherRank {
public:
  OtherRank(const TempDir &folder, int runs) : process(::fork()) {
    if (process != 0)
      return;
    Rank rank(folder, 1);
    bool isGood = rank.load().empty();
    for (int run = 0; run < runs && isGood; ++run)
      isGood = rank.average(float(10 * run + 3)).ok();
    ::_exit(isGood ? 0 : 1);
  }
  ~OtherRank() { EXPECT_EQ(wait(), 0); }

  int wait() {
    int status = 0;
    if (process > 0)
      ::waitpid(process, &status, 0);
    process = 0;
    return status;
  }

private:
  pid_t process;
};

/// As often as the other rank of most tests does.
void loadAndRunTwice(Rank &rank) {
  ASSERT_EQ(rank.load(), "");
  for (int run = 0; run < 2; ++run)
    ASSERT_TRUE(rank.average(1).ok());
}

/// Runs checks in a process of their own.
pid_t startProcess(const std::function<void()> &checks) {
  pid_t process = ::fork();
  if (process == 0) {
    checks();
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure());
  }
  return process;
}

void expectPassed(pid_t process) {
  int status = 0;
  ::waitpid(process, &status, 0);
  EXPECT_EQ(status, 0);
}

/// Where a rank was given up, its GPU never finishes.
void inProcess(const std::function<void()> &checks) {
  expectPassed(startProcess(checks));
}

/// With a rank whose two runs were all of the other one's.
void afterTheOtherRankEnded(
    const std::function<void(const TempDir &, Rank &)> &checks) {
  inProcess([&] {
    TempDir folder;
    OtherRank other(folder, 2);
    Rank rank(folder, 0);
    ASSERT_NO_FATAL_FAILURE(loadAndRunTwice(rank));
    checks(folder, rank);
  });
}

/// Lets a check say what is wrong with each of two ranks of one group.
void onTwoRanks(
    const std::function<std::string(const TempDir &, int rank)> &check) {
  TempDir folder;
  pid_t other = startProcess([&] { EXPECT_EQ(check(folder, 1), ""); });
  EXPECT_EQ(check(folder, 0), "");
  expectPassed(other);
}

TEST(GPURanksTest, Means_AreOfAllRanks) {
  TempDir folder;
  OtherRank other(folder, 4);
  Rank rank(folder, 0);
  ASSERT_EQ(rank.load(), "");
  EXPECT_EQ(rank.program->reductionLibrary(), "NCCL 2.27.3");
  // One command after the other at first, then as a graph.
  for (int run = 0; run < 4; ++run) {
    auto means = take(rank.average(float(10 * run + 1)));
    EXPECT_EQ(means.first, float(10 * run + 2));
    EXPECT_EQ(means.second, float(20 * run + 4));
    EXPECT_EQ(rank.group.last, std::to_string(2 * run + 2) + " 64");
  }
  EXPECT_FALSE(rank.group.hasAborted());
}

TEST(GPURanksTest, Means_AreOfBF16Too) {
  ArtifactBuilder b;
  b.target = "sm_90a";
  unsigned x = b.tensor("x", DataType::BF16, {32}, TensorRole::Input);
  unsigned sum = b.tensor("sum", DataType::BF16, {32}, TensorRole::State);
  unsigned mean = b.tensor("mean", DataType::BF16, {32}, TensorRole::Output);
  b.entry("update", {x}, {mean},
          {b.copy(b.of(x), b.of(sum)),
           b.startReduction(b.of(sum), DataType::BF16),
           b.finishReduction(b.of(sum)), b.copy(b.of(sum), b.of(mean))});
  std::string bytes = b.finish();
  onTwoRanks([&](const TempDir &folder, int number) -> std::string {
    Rank rank(folder, number);
    EXPECT_EQ(rank.load(bytes), "");
    const TensorView *x = rank.program->findTensor("x");
    std::fill_n(x->as<uint16_t>(), 32, floatToBF16(float(2 * number + 1)));
    EXPECT_TRUE(rank.program->run("update").ok());
    EXPECT_EQ(bf16ToFloat(rank.program->findTensor("mean")->as<uint16_t>()[31]),
              2);
    return "";
  });
}

// A rank takes its part of the means, and gives it to the others.
TEST(GPURanksTest, Parts_AreThoseOfTheRank) {
  ArtifactBuilder b;
  b.target = "sm_90a";
  b.ranks = 2;
  unsigned x = b.tensor("x", DataType::F32, {32}, TensorRole::Input);
  unsigned sum = b.tensor("sum", DataType::F32, {32}, TensorRole::State);
  unsigned part = b.tensor("part", DataType::F32, {16}, TensorRole::Output);
  unsigned all = b.tensor("all", DataType::F32, {32}, TensorRole::Output);
  b.entry(
      "update", {x}, {part, all},
      {b.copy(b.of(x), b.of(sum)),
       b.startReduction(b.of(sum), DataType::F32,
                        CollectiveKind::ReduceScatter),
       b.finishReduction(b.of(sum)),
       b.copy(b.of(sum), b.of(part), artifact::CopyPart::Source),
       b.copy(b.of(part), b.of(all), artifact::CopyPart::Out),
       b.startReduction(b.of(all), DataType::F32, CollectiveKind::AllGather),
       b.finishReduction(b.of(all))});
  std::string bytes = b.finish();
  // Element i of rank r is i + 2 r, the mean is i + 1.
  onTwoRanks([&](const TempDir &folder, int number) -> std::string {
    Rank rank(folder, number);
    if (std::string message = rank.load(bytes); !message.empty())
      return message;
    float *x = rank.program->findTensor("x")->as<float>();
    for (int i = 0; i < 32; ++i)
      x[i] = float(i + 2 * number);
    if (Status status = rank.program->run("update"); !status)
      return status.message();
    const float *part = rank.program->findTensor("part")->as<float>();
    const float *all = rank.program->findTensor("all")->as<float>();
    for (int i = 0; i < 32; ++i)
      if (all[i] != float(i + 1))
        return "element " + std::to_string(i) + " is " + std::to_string(all[i]);
    for (int i = 0; i < 16; ++i)
      if (part[i] != float(16 * number + i + 1))
        return "the part begins with " + std::to_string(part[0]);
    return "";
  });
}

/// Of two sequences of 16 elements, element i of sequence s being 100 s + i,
/// those of a rank's chunks.
std::vector<float> chunksOf(int rank) {
  std::vector<float> values;
  for (int i = 0; i < 16; ++i) {
    int chunk = i / 4 % 2 ? 3 - rank : rank;
    values.push_back(float(100 * (i / 8) + 4 * chunk + i % 4));
  }
  return values;
}

/// Gathers x and a copy as one group, and sums the latter. Rows of six
/// elements end with chunks of four.
std::string makeSequences() {
  ArtifactBuilder b;
  b.target = "sm_90a";
  b.sequenceRanks = 2;
  unsigned x = b.tensor("x", DataType::F32, {4, 6}, TensorRole::Input);
  unsigned all = b.tensor("all", DataType::F32, {2, 16}, TensorRole::Output);
  unsigned sums = b.tensor("sums", DataType::F32, {4, 6}, TensorRole::Output);
  unsigned copy = b.tensor("copy", DataType::F32, {4, 6}, TensorRole::State);
  unsigned copies =
      b.tensor("copies", DataType::F32, {2, 16}, TensorRole::Output);
  constexpr auto gather = CollectiveKind::GatherSequence;
  auto start = [&](CollectiveKind kind, unsigned tensor, unsigned chunks,
                   bool grouped) {
    artifact::Slice rows = b.of(chunks);
    return b.startReduction(b.of(tensor), DataType::F32, kind, 2, &rows,
                            grouped);
  };
  b.entry("update", {x}, {all, copies, sums},
          {b.copy(b.of(x), b.of(copy)), start(gather, all, x, true),
           start(gather, copies, copy, false), b.finishReduction(b.of(copies)),
           b.finishReduction(b.of(all)), b.fill(b.of(sums), 7),
           start(CollectiveKind::ReduceScatterSequence, copies, sums, false),
           b.finishReduction(b.of(copies))});
  return b.finish();
}

// A rank gives its two chunks of each sequence, and takes those of the sums,
// which leave the sequences, and the rest of rows, as they are.
TEST(GPURanksTest, Chunks_AreThoseOfTheRank) {
  std::string bytes = makeSequences();
  onTwoRanks([&](const TempDir &folder, int number) -> std::string {
    Rank rank(folder, number);
    if (std::string message = rank.load(bytes); !message.empty())
      return message;
    std::vector<float> chunks = chunksOf(number);
    float *x = rank.program->findTensor("x")->as<float>();
    for (int i = 0; i < 24; ++i)
      x[i] = i % 6 < 2 ? -1 : chunks[size_t(i / 6 * 4 + i % 6 - 2)];
    // One command after the other, and as a graph.
    for (int time = 0; time < 3; ++time)
      if (Status status = rank.program->run("update"); !status)
        return status.message();
    // Two gathers are one reduction.
    EXPECT_EQ(rank.group.last, "6 128");
    const float *all = rank.program->findTensor("all")->as<float>();
    const float *copies = rank.program->findTensor("copies")->as<float>();
    for (int i = 0; i < 32; ++i) {
      float value = float(100 * (i / 16) + i % 16);
      if (all[i] != value || copies[i] != value)
        return "element " + std::to_string(i) + " is " +
               std::to_string(all[i]) + " and " + std::to_string(copies[i]);
    }
    const float *sums = rank.program->findTensor("sums")->as<float>();
    for (int i = 0; i < 24; ++i)
      if (sums[i] != (i % 6 < 2 ? 7 : 2 * x[i]))
        return "sum " + std::to_string(i) + " is " + std::to_string(sums[i]);
    return "";
  });
}

TEST(GPURanksTest, Profiles_SayWhenReductionsRan) {
  TempDir folder;
  OtherRank other(folder, 2);
  Rank rank(folder, 0);
  rank.options.profile = true;
  ASSERT_NO_FATAL_FAILURE(loadAndRunTwice(rank));
  const EntryInfo &update = **rank.program->entry("update");
  std::vector<CommandProfile> commands = rank.program->profile(update);
  for (size_t i = 0; i < commands.size(); ++i) {
    EXPECT_EQ(commands[i].startsReduction, i == 1 || i == 3) << i;
    EXPECT_EQ(commands[i].endsReduction, i == 4 || i == 5) << i;
  }
}

TEST(GPURanksTest, LaunchBetweenWaits_IsNotWaitedFor) {
  ArtifactBuilder b;
  b.target = "sm_90a";
  b.binary();
  unsigned x = b.tensor("x", DataType::F32, {16}, TensorRole::Input);
  unsigned sum = b.tensor("sum", DataType::F32, {16}, TensorRole::State);
  unsigned add = b.kernel("add", "test_add", 1, {64, 64, 64}, 1);
  b.entry("update", {x}, {},
          {b.startReduction(b.of(x)), b.finishReduction(b.of(x)),
           b.launch(add, {b.of(x), b.of(x), b.of(sum)}),
           b.startReduction(b.of(x)), b.finishReduction(b.of(x))});
  std::string program = b.finish();
  onTwoRanks([&](const TempDir &folder, int rank) -> std::string {
    Rank own(folder, rank);
    if (std::string error = own.load(program); !error.empty())
      return error;
    if (Status status = own.program->run("update"); !status)
      return status.message();
    // A launch of the fake takes 1 ms.
    double waited = own.program->waitedSeconds();
    return waited < 5e-4 ? "" : std::to_string(waited);
  });
}

// The last reduction of a run was once taken for that of the next one too.
TEST(GPURanksTest, NoReduction_IsSaidToHaveBegunBeforeItHas) {
  TempDir folder;
  OtherRank other(folder, 3);
  Rank rank(folder, 0);
  ASSERT_NO_FATAL_FAILURE(loadAndRunTwice(rank));
  struct Slow {
    FileProcessGroup &group;
    std::chrono::steady_clock::time_point end;
    std::string last;
  } slow{rank.group,
         std::chrono::steady_clock::now() + std::chrono::milliseconds(350), ""};
  fakeCUDAEnqueue(
      [](void *argument) {
        auto &slow = *static_cast<Slow *>(argument);
        slow.last = slow.group.last;
        return std::chrono::steady_clock::now() >= slow.end;
      },
      &slow);
  ASSERT_TRUE(rank.average(1).ok());
  EXPECT_EQ(slow.last, "4 64");
  EXPECT_EQ(rank.group.last, "6 64");
}

TEST(GPURanksTest, RankMissing_TimesOut) {
  afterTheOtherRankEnded([](const TempDir &, Rank &rank) {
    auto begin = std::chrono::steady_clock::now();
    std::string message = rank.average(1).message();
    EXPECT_TRUE(
        contains(message, "rank 0 in reduction 5 of 64 bytes: time-out after"));
    EXPECT_TRUE(contains(message, "[rank 1 is elsewhere]"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin,
              std::chrono::seconds(5));
    EXPECT_TRUE(rank.group.hasAborted());
  });
}

TEST(GPURanksTest, LostRank_IsWaitedForNoLonger) {
  afterTheOtherRankEnded([](const TempDir &folder, Rank &rank) {
    folder.write("loss", "rank 1 was lost");
    std::string message = rank.average(1).message();
    EXPECT_TRUE(contains(message, "in reduction 5 of 64 bytes: "));
  });
}

// Ranks agree while a step runs, and its reductions were once waited for until
// they timed out as well.
TEST(GPURanksTest, AbortedRun_IsWaitedForNoLonger) {
  afterTheOtherRankEnded([](const TempDir &, Rank &rank) {
    rank.group.abortRun();
    EXPECT_TRUE(contains(rank.average(1).message(), "the run was ended"));
  });
}

TEST(GPURanksTest, RanksDoNotConnect_TimesOut) {
  inProcess([] {
    TempDir folder;
    folder.write("loss", "rank 1 was lost");
    Rank rank(folder, 0);
    EXPECT_EQ(rank.load(), "test.nsax: rank 0: rank 1 was lost");
    EXPECT_TRUE(rank.group.hasAborted());
  });
}

TEST(GPURanksTest, MissingLibrary_IsNamed) {
  TempDir folder;
  Rank rank(folder, 0);
  rank.options.ncclLibrary = folder / "libnccl.so.2";
  std::string message = rank.load();
  EXPECT_TRUE(contains(message, "NCCL"));
  EXPECT_TRUE(contains(message, folder / "libnccl.so.2"));
}

} // namespace
