//===- Launcher.cpp - starts the ranks of a run on this machine -----------===//

#include "runtime/Distributed/Launcher.h"
#include "lib/Support/Random.h"
#include "runtime/Distributed/Socket.h"
#include "runtime/Distributed/Token.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nsa {

using Clock = std::chrono::steady_clock;

namespace {

/// Signals that go to all ranks.
constexpr int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

/// How often the launcher looks after its deadline.
constexpr timespec lookEvery = {0, 100000000};

struct Child {
  pid_t pid = -1;
  bool running = true;
  /// It did not end in time after another one had failed.
  bool isKilled = false;
};

/// Blocks signals while it lives, so that they wait until they are asked for.
class SignalReader {
public:
  explicit SignalReader(bool keepsBlocked) : keepsBlocked(keepsBlocked) {
    sigemptyset(&mask);
    for (int signal : forwarded)
      if (!isIgnored(signal))
        sigaddset(&mask, signal);
    // Inherited as ignored, it would hide how children end.
    ::signal(SIGCHLD, SIG_DFL);
    sigaddset(&mask, SIGCHLD);
    // A reader of the errors that has gone is no reason to end.
    sigaddset(&mask, SIGPIPE);
    sigprocmask(SIG_BLOCK, &mask, &old);
  }
  ~SignalReader() {
    if (!keepsBlocked)
      sigprocmask(SIG_SETMASK, &old, nullptr);
  }

  /// Whether who started this process wants a signal to have no effect, as
  /// nohup does. Blocked, it would arrive nevertheless.
  static bool isIgnored(int signal) {
    struct sigaction action;
    return ::sigaction(signal, nullptr, &action) == 0 &&
           action.sa_handler == SIG_IGN;
  }

  sigset_t mask, old;
  bool keepsBlocked;
};

class Launch {
public:
  Launch(const LaunchOptions &options, const SignalReader &signals)
      : options(options), signals(signals) {}
  ~Launch() { killAll(); }

  Status start();
  /// Until the last rank has ended. Returns the code of the whole.
  int wait();

private:
  [[noreturn]] void runRank(int rank, pid_t parent,
                            char *const *arguments) const;
  void handOn(int signal) const;
  void reap();
  void noteEnd(size_t rank, int status);
  void killAll() const;

  const LaunchOptions &options;
  const SignalReader &signals;
  std::vector<Child> children;
  /// Where the ranks meet, and what only they know.
  uint16_t port = 0;
  std::string token;
  /// The code of the first rank that failed of itself, or else of one that was
  /// lost.
  int failure = 0;
  /// A rank has failed, and the others have been given their time.
  std::optional<Clock::time_point> killTime;
};

} // namespace

/// In the process of a rank.
void Launch::runRank(int rank, pid_t parent, char *const *arguments) const {
  // A group of its own: a terminal's Ctrl-C comes from here alone, once.
  ::setpgid(0, 0);
  // Which a terminal may take for a job in the background.
  ::signal(SIGTTOU, SIG_IGN);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent)
    ::_exit(1);
  sigprocmask(SIG_SETMASK, &signals.old, nullptr);
  for (const auto &[name, value] :
       {std::pair("RANK", std::to_string(rank)),
        {"WORLD_SIZE", std::to_string(options.ranks)},
        {"LOCAL_RANK", std::to_string(rank)},
        {"LOCAL_WORLD_SIZE", std::to_string(options.ranks)},
        {"MASTER_ADDR", "127.0.0.1"},
        {"MASTER_PORT", std::to_string(port)},
        {tokenVariable, token}})
    ::setenv(name, value.c_str(), /*replace=*/1);
  ::unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  ::execv(arguments[0], arguments);
  ::_exit(127);
}

Status Launch::start() {
  NSA_ASSIGN_OR_RETURN(token, randomHex(/*count=*/32));
  NSA_ASSIGN_OR_RETURN(port, findFreePort());
  std::vector<char *> arguments;
  arguments.reserve(options.command.size() + 1);
  for (const std::string &text : options.command)
    arguments.push_back(const_cast<char *>(text.c_str()));
  arguments.push_back(nullptr);
  pid_t parent = ::getpid();
  for (int rank = 0; rank < options.ranks; ++rank) {
    pid_t pid = ::fork();
    if (pid < 0)
      return socketError("cannot start a rank");
    if (pid == 0)
      runRank(rank, parent, arguments.data());
    children.push_back({pid});
  }
  return {};
}

int Launch::wait() {
  auto isRunning = [](const Child &child) { return child.running; };
  while (std::any_of(children.begin(), children.end(), isRunning)) {
    if (int signal = ::sigtimedwait(&signals.mask, nullptr, &lookEvery);
        signal > 0 && signal != SIGCHLD && signal != SIGPIPE)
      handOn(signal);
    reap();
    if (killTime && Clock::now() >= *killTime) {
      for (Child &child : children)
        child.isKilled = child.running;
      killAll();
      killTime = Clock::time_point::max();
    }
  }
  return failure;
}

void Launch::handOn(int signal) const {
  // A terminal that has gone is a reason to stop like any other.
  for (const Child &child : children)
    if (child.running)
      ::kill(child.pid, signal == SIGHUP ? SIGTERM : signal);
}

void Launch::reap() {
  for (size_t rank = 0; rank < children.size(); ++rank) {
    Child &child = children[rank];
    int status = 0;
    if (!child.running || ::waitpid(child.pid, &status, WNOHANG) != child.pid)
      continue;
    child.running = false;
    noteEnd(rank, status);
  }
}

void Launch::noteEnd(size_t rank, int status) {
  bool killed = WIFSIGNALED(status);
  int code = killed ? exitLostRank : WEXITSTATUS(status);
  if (code == 0)
    return;
  std::string how =
      children[rank].isKilled
          ? "was killed by the launcher: it had not ended after the others"
      : killed ? std::string("was killed by signal ") +
                     std::to_string(WTERMSIG(status)) + " (" +
                     strsignal(WTERMSIG(status)) + ")"
               : "exited with code " + std::to_string(code);
  std::fprintf(stderr, "nsa-train: rank %zu %s\n", rank, how.c_str());
  if (failure == 0 || failure == exitLostRank)
    failure = code;
  // Ranks that end as planned leave together, once rank 0 has saved.
  if (code == exitNonFinite || code == exitInterrupted || killTime)
    return;
  killTime =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(options.graceSeconds));
}

void Launch::killAll() const {
  for (const Child &child : children)
    if (child.running)
      ::kill(child.pid, SIGKILL);
}

Result<int> launch(const LaunchOptions &options) {
  SignalReader signals(options.endsProcess);
  Launch ranks(options, signals);
  NSA_RETURN_IF_ERROR(ranks.start());
  return ranks.wait();
}

} // namespace nsa
