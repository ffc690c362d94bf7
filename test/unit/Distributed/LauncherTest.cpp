//===- LauncherTest.cpp - starting ranks ----------------------------------===//

#include "runtime/Distributed/Launcher.h"

#include "runtime/Distributed/OutputWriter.h"
#include "test/unit/Expect.h"
#include "test/unit/TempDir.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <set>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace nsa;

namespace {

/// What a launch of a shell script gave.
struct Launched {
  int code = -1;
  std::string text;
};

Launched run(int ranks, const std::string &script, int maxRestarts = 0,
             double graceSeconds = 5) {
  LaunchOptions options;
  options.ranks = ranks;
  options.command = {"/bin/sh", "-c", script};
  options.maxRestarts = maxRestarts;
  options.graceSeconds = graceSeconds;
  options.resume = [](const std::string &directory) {
    return std::vector<std::string>{"/bin/sh", "-c", "echo again " + directory};
  };
  std::FILE *file = std::tmpfile();
  options.out = options.err = file;
  Result<int> code = launch(options);
  Launched launched;
  if (code)
    launched.code = *code;
  EXPECT_EQ(std::fseek(file, 0, SEEK_SET), 0);
  for (int c; (c = std::fgetc(file)) != EOF;)
    launched.text += char(c);
  std::fclose(file);
  return launched;
}

bool has(const Launched &launched, const std::string &text) {
  return launched.text.find(text) != std::string::npos;
}

TEST(Launcher, EveryRank_HasItsVariablesAndEveryLineItsRank) {
  Launched launched =
      run(3, "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE at "
             "$MASTER_ADDR; echo warning >&2; printf unfinished");
  EXPECT_EQ(launched.code, 0);
  for (const char *line : {"[0] 0 of 3, 0 of 3 at 127.0.0.1\n",
                           "[2] 2 of 3, 2 of 3 at 127.0.0.1\n", "[1] warning\n",
                           "[1] unfinished\n"})
    EXPECT_TRUE(has(launched, line)) << launched.text;
}

/// The words that follow "token " at the beginnings of what ranks printed.
std::set<std::string> tokensOf(const Launched &launched) {
  std::set<std::string> tokens;
  std::istringstream lines(launched.text);
  for (std::string line; std::getline(lines, line);)
    if (size_t at = line.find("] token "); at != std::string::npos)
      tokens.insert(line.substr(at + 8));
  return tokens;
}

TEST(Launcher, EveryStart_RanksShareANewTokenOf256Bits) {
  ::setenv("NSA_RENDEZVOUS_TOKEN", "of the environment", 1);
  std::string script = "echo token $NSA_RENDEZVOUS_TOKEN";
  std::set<std::string> first = tokensOf(run(2, script)),
                        second = tokensOf(run(2, script));
  ::unsetenv("NSA_RENDEZVOUS_TOKEN");
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_NE(*first.begin(), *second.begin());
  EXPECT_EQ(first.begin()->size(), 64u);
  EXPECT_EQ(first.begin()->find_first_not_of("0123456789abcdef"),
            std::string::npos);
}

// The time to find the ends of lines once grew with the square of their
// length.
TEST(Launcher, LineOf8MiB_IsPassedOnInPieces) {
  Launched launched =
      run(1, "head -c 8388608 /dev/zero | tr '\\0' x; echo end");
  EXPECT_EQ(launched.code, 0);
  EXPECT_EQ(std::count(launched.text.begin(), launched.text.end(), 'x'),
            8388608);
  EXPECT_TRUE(has(launched, "end\n"));
  EXPECT_GT(std::count(launched.text.begin(), launched.text.end(), '\n'), 7);
}

TEST(Launcher, Code_IsThatOfTheRankThatFailedOfItself) {
  EXPECT_EQ(run(2, "[ $RANK = 0 ] || exit 3; sleep 0.2; exit 5").code, 3);
  EXPECT_EQ(run(2, "[ $RANK = 0 ] && sleep 0.2 && exit 3; exit 5").code, 3);
  EXPECT_EQ(run(2, "exit 5").code, exitLostRank);
}

TEST(Launcher, KilledRank_IsNamedAndTheRestMayEnd) {
  Launched launched = run(2, "[ $RANK = 1 ] && kill -9 $$; sleep 0.1; exit 5");
  EXPECT_EQ(launched.code, exitLostRank);
  EXPECT_TRUE(has(launched, "rank 1 was killed by signal 9 (Killed)"))
      << launched.text;
}

TEST(Launcher, FrozenRank_IsKilledAfterAnotherHasFailed) {
  auto begin = std::chrono::steady_clock::now();
  Launched launched =
      run(2, "[ $RANK = 1 ] && kill -STOP $$; sleep 0.2; exit 5", 0, 0.5);
  EXPECT_EQ(launched.code, exitLostRank);
  EXPECT_TRUE(has(launched, "rank 1 was killed by the launcher"))
      << launched.text;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

// Rank 0 was once killed while it saved, since the others had ended already.
TEST(Launcher, RanksEndAsPlanned_OthersHaveTheirTime) {
  for (const char *code : {"3", "4"}) {
    Launched launched = run(2,
                            std::string("[ $RANK = 1 ] && exit ") + code +
                                "; sleep 0.8; echo saved; exit " + code,
                            0, 0.2);
    EXPECT_EQ(launched.code, code[0] - '0');
    EXPECT_TRUE(has(launched, "[0] saved")) << launched.text;
  }
}

TEST(Launcher, LostRanks_AreStartedAgainWhereTheRunIs) {
  std::string script =
      "[ $RANK = 0 ] && echo runs/a > /proc/self/fd/$NSA_LAUNCHER_FD; exit 5";
  Launched launched = run(2, script, 1);
  EXPECT_EQ(launched.code, 0);
  EXPECT_TRUE(has(launched, "restart 1 of 1")) << launched.text;
  EXPECT_TRUE(has(launched, "[1] again runs/a")) << launched.text;
  launched = run(2, "exit 1", 3);
  EXPECT_EQ(launched.code, 1);
  EXPECT_FALSE(has(launched, "restart")) << launched.text;
}

TEST(Launcher, Signals_GoToAllRanksAndNothingRestarts) {
  pid_t self = ::getpid(), sender = ::fork();
  if (sender == 0) {
    ::usleep(400000);
    ::kill(self, SIGTERM);
    ::_exit(0);
  }
  Launched launched = run(
      2, "trap 'echo stopped; exit 5' TERM; while :; do sleep 0.05; done", 3);
  ::waitpid(sender, nullptr, 0);
  EXPECT_EQ(launched.code, exitLostRank);
  EXPECT_TRUE(has(launched, "[0] stopped")) << launched.text;
  EXPECT_TRUE(has(launched, "[1] stopped")) << launched.text;
  EXPECT_FALSE(has(launched, "restart")) << launched.text;
}

// Some launchers send a signal twice: the second one once hid the code.
TEST(Launcher, SignalAfterTheRanks_ProcessEnds_CodeIsTheirs) {
  pid_t child = ::fork();
  if (child == 0) {
    LaunchOptions options;
    options.endsProcess = true;
    options.command = {"/bin/sh", "-c", "exit 4"};
    Result<int> code = launch(options);
    ::kill(::getpid(), SIGTERM);
    ::_exit(code ? *code : 99);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 4);
}

// A pager that paused once held up the launcher, its deadlines and the ranks.
TEST(Launcher, ReaderPauses_NothingWaits) {
  TempDir folder;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  LaunchOptions options;
  options.ranks = 2;
  options.graceSeconds = 0.3;
  options.command = {"/bin/sh", "-c",
                     "[ $RANK = 0 ] && kill -STOP $$; i=0; while [ $i -lt 9000 "
                     "]; do echo a line like many others; i=$((i+1)); done; "
                     "touch " +
                         (folder / "done") + "; exit 5"};
  options.out = options.err = ::fdopen(ends[1], "w");
  std::string text;
  bool hadEnded = false;
  std::thread reader([&] {
    for (int i = 0; i < 200 && !hadEnded; ++i) {
      ::usleep(50000);
      hadEnded = std::filesystem::exists(folder / "done");
    }
    char buffer[4096];
    for (ssize_t count; (count = ::read(ends[0], buffer, sizeof buffer)) > 0;)
      text.append(buffer, size_t(count));
  });
  Result<int> code = launch(options);
  std::fclose(options.out);
  reader.join();
  ::close(ends[0]);
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(*code, exitLostRank);
  EXPECT_TRUE(hadEnded);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 9002);
}

TEST(OutputWriter, NobodyReads_LinesAreDropped) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::FILE *file = ::fdopen(ends[1], "w");
  {
    OutputWriter writer(file, 1000);
    for (bool isFull = false; !isFull;) {
      writer.line("a line like many others");
      writer.drain([&] { return isFull = true; });
    }
    for (int i = 0; i < 100; ++i)
      writer.line("a line like many others");
    std::thread reader([&] {
      char buffer[4096];
      std::string text;
      while (text.find("left out") == std::string::npos) {
        ssize_t count = ::read(ends[0], buffer, sizeof buffer);
        if (count <= 0)
          break;
        text.append(buffer, size_t(count));
      }
      EXPECT_TRUE(contains(text, " lines left out here"));
    });
    reader.join();
  }
  std::fclose(file);
  ::close(ends[0]);
}

// Under nohup a run on several ranks was once stopped by a closed terminal.
TEST(Launcher, IgnoredSignal_StaysIgnored) {
  auto old = ::signal(SIGHUP, SIG_IGN);
  pid_t self = ::getpid();
  Launched launched = run(2,
                          "[ $RANK = 0 ] && kill -HUP " + std::to_string(self) +
                              " && sleep 0.3 && exit 5; sleep 0.3; exit 5",
                          1);
  ::signal(SIGHUP, old);
  EXPECT_TRUE(has(launched, "restart 1 of 1")) << launched.text;
}

TEST(Launcher, ClosedTerminal_StopsAllRanks) {
  // The tests may have been started by nohup.
  auto before = ::signal(SIGHUP, SIG_DFL);
  pid_t self = ::getpid();
  Launched launched =
      run(2,
          "trap 'echo stopped; exit 4' TERM; sleep 0.3; [ $RANK = 0 ] && kill "
          "-HUP " +
              std::to_string(self) + "; while :; do sleep 0.05; done",
          1);
  EXPECT_EQ(launched.code, exitInterrupted);
  EXPECT_TRUE(has(launched, "[0] stopped")) << launched.text;
  EXPECT_TRUE(has(launched, "[1] stopped")) << launched.text;
  ::signal(SIGHUP, before);
}

} // namespace
