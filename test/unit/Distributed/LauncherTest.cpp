//===- LauncherTest.cpp - starting ranks ----------------------------------===//

#include "runtime/Distributed/Launcher.h"

#include "test/unit/Expect.h"

#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <set>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

using namespace nsa;

namespace {

/// What a launch of a shell script gave.
struct Launched {
  int code = -1;
  std::string text;
};

Launched run(int ranks, const std::string &script, double graceSeconds = 5) {
  LaunchOptions options;
  options.ranks = ranks;
  options.command = {"/bin/sh", "-c", script};
  options.graceSeconds = graceSeconds;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Result<int> code = launch(options);
  Launched launched;
  if (code)
    launched.code = *code;
  launched.text = testing::internal::GetCapturedStdout() +
                  testing::internal::GetCapturedStderr();
  return launched;
}

bool has(const Launched &launched, const std::string &text) {
  return launched.text.find(text) != std::string::npos;
}

TEST(Launcher, EveryRank_HasItsVariables) {
  Launched launched =
      run(3, "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE at "
             "$MASTER_ADDR");
  EXPECT_EQ(launched.code, 0);
  for (const char *line :
       {"0 of 3, 0 of 3 at 127.0.0.1\n", "2 of 3, 2 of 3 at 127.0.0.1\n"})
    EXPECT_TRUE(has(launched, line)) << launched.text;
}

/// The words that follow "token " at the beginnings of what ranks printed.
std::set<std::string> tokensOf(const Launched &launched) {
  std::set<std::string> tokens;
  std::istringstream lines(launched.text);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind("token ", 0) == 0)
      tokens.insert(line.substr(6));
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
      run(2, "[ $RANK = 1 ] && kill -STOP $$; sleep 0.2; exit 5", 0.5);
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
                            0.2);
    EXPECT_EQ(launched.code, code[0] - '0');
    EXPECT_TRUE(has(launched, "saved")) << launched.text;
  }
}

TEST(Launcher, Signals_GoToAllRanks) {
  pid_t self = ::getpid(), sender = ::fork();
  if (sender == 0) {
    ::usleep(400000);
    ::kill(self, SIGTERM);
    ::_exit(0);
  }
  Launched launched = run(
      2,
      "trap 'echo stopped $RANK; exit 4' TERM; while :; do sleep 0.05; done");
  ::waitpid(sender, nullptr, 0);
  EXPECT_EQ(launched.code, exitInterrupted);
  EXPECT_TRUE(has(launched, "stopped 0")) << launched.text;
  EXPECT_TRUE(has(launched, "stopped 1")) << launched.text;
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

TEST(Launcher, ReaderOfErrorsIsGone_RanksMayEnd) {
  pid_t child = ::fork();
  if (child == 0) {
    int ends[2];
    (void)!::pipe(ends);
    ::close(ends[0]);
    ::dup2(ends[1], STDERR_FILENO);
    LaunchOptions options;
    options.ranks = 2;
    options.endsProcess = true;
    options.command = {"/bin/sh", "-c",
                       "[ $RANK = 0 ] && exit 5; sleep 0.3; exit 4"};
    Result<int> code = launch(options);
    ::_exit(code ? *code : 99);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 4);
}

// Under nohup a run on several ranks was once stopped by a closed terminal.
TEST(Launcher, IgnoredSignal_StaysIgnored) {
  auto old = ::signal(SIGHUP, SIG_IGN);
  pid_t self = ::getpid();
  Launched launched = run(2, "[ $RANK = 0 ] && kill -HUP " +
                                 std::to_string(self) + "; sleep 0.3; exit 3");
  ::signal(SIGHUP, old);
  EXPECT_EQ(launched.code, 3) << launched.text;
}

TEST(Launcher, ClosedTerminal_StopsAllRanks) {
  // The tests may have been started by nohup.
  auto before = ::signal(SIGHUP, SIG_DFL);
  pid_t self = ::getpid();
  Launched launched = run(
      2, "trap 'echo stopped $RANK; exit 4' TERM; sleep 0.3; [ $RANK = 0 ] && "
         "kill -HUP " +
             std::to_string(self) + "; while :; do sleep 0.05; done");
  EXPECT_EQ(launched.code, exitInterrupted);
  EXPECT_TRUE(has(launched, "stopped 0")) << launched.text;
  EXPECT_TRUE(has(launched, "stopped 1")) << launched.text;
  ::signal(SIGHUP, before);
}

} // namespace
