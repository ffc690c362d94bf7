//===- Launcher.cpp - starts the ranks of a run on this machine -----------===//

#include "runtime/Distributed/Launcher.h"
#include "lib/Support/Random.h"
#include "runtime/Distributed/OutputWriter.h"
#include "runtime/Distributed/Socket.h"
#include "runtime/Distributed/Token.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <future>
#include <optional>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nsa {

using Clock = std::chrono::steady_clock;

namespace {

/// Signals that go to all ranks.
constexpr int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

/// How often the launcher looks after its deadlines.
constexpr std::chrono::milliseconds lookEvery{100};

/// The longest line of a rank that is kept together.
constexpr size_t longestLine = 1 << 20;

struct Child {
  pid_t pid = -1;
  bool running = false;
  /// It did not end in time after another one had failed.
  bool isKilled = false;
  /// Until what it prints has been passed on.
  std::future<void> out, err;
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

  /// The next signal, or 0 if none comes in time.
  int next(std::chrono::nanoseconds wait = {}) const {
    timespec time = {0, long(wait.count())};
    return std::max(0, ::sigtimedwait(&mask, nullptr, &time));
  }

  sigset_t mask, old;
  bool keepsBlocked;
};

/// Where lines go.
struct Output {
  explicit Output(const LaunchOptions &options)
      : out(std::make_shared<OutputWriter>(options.out)),
        err(OutputWriter::isSame(options.out, options.err)
                ? out
                : std::make_shared<OutputWriter>(options.err)) {}

  /// Waits until all is written: for a second where a signal has stopped the
  /// run, else until one does.
  void drain(const SignalReader &signals, bool wasStopped) const {
    int left = wasStopped ? 10 : -1;
    auto givesUp = [&] {
      while (int signal = signals.next())
        if (signal != SIGCHLD && signal != SIGUSR1)
          left = 0;
      left -= left > 0;
      return left == 0;
    };
    out->drain(givesUp);
    err->drain(givesUp);
  }

  std::shared_ptr<OutputWriter> out, err;
};

/// One start of all ranks.
class Attempt {
public:
  Attempt(const LaunchOptions &options, const SignalReader &signals,
          const Output &output)
      : options(options), signals(signals), output(output) {}
  ~Attempt() {
    killAll();
    ::close(directoryPipe);
  }

  Status start(const std::vector<std::string> &command);
  /// Until the last rank has ended.
  void wait();

  /// The code of the whole: see `launch`.
  int code() const { return failure; }
  bool wasStopped() const { return stopped; }
  const std::string &runDirectory() const { return directory; }

private:
  Status startRank(int rank, const std::vector<std::string> &command,
                   int directoryEnd);
  void setVariables(int rank, int directoryEnd) const;
  void readDirectory();
  void handOn(int signal);
  void reap();
  void noteEnd(int rank, int status);
  void killAll();

  const LaunchOptions &options;
  const SignalReader &signals;
  const Output &output;
  std::vector<Child> children;
  /// Where rank 0 says where its run is.
  int directoryPipe = -1;
  std::string directory;
  /// Where the ranks meet, and what only they know.
  uint16_t port = 0;
  std::string token;
  /// The code of the first rank that failed of itself, or else of one that was
  /// lost.
  int failure = 0;
  std::optional<Clock::time_point> killTime;
  /// A rank has failed, and the others have been given their time.
  bool isEnding = false;
  bool stopped = false;
};

} // namespace

//===----------------------------------------------------------------------===//
// Starting
//===----------------------------------------------------------------------===//

/// Passes lines on, on a thread of their own, until the other end is closed.
static std::future<void> passOn(int fd, int rank,
                                const std::shared_ptr<OutputWriter> &to) {
  std::string prefix = "[" + std::to_string(rank) + "] ";
  return std::async(std::launch::async, [fd, to, prefix] {
    std::FILE *file = ::fdopen(fd, "r");
    std::string line;
    for (int c; (c = std::getc(file)) != EOF;) {
      if (c != '\n')
        line += char(c);
      if (c != '\n' && line.size() < longestLine)
        continue;
      to->line(prefix + line);
      line.clear();
    }
    if (!line.empty())
      to->line(prefix + line);
    std::fclose(file);
  });
}

/// In the process of a rank.
void Attempt::setVariables(int rank, int directoryEnd) const {
  for (const auto &[name, value] :
       {std::pair("RANK", std::to_string(rank)),
        {"WORLD_SIZE", std::to_string(options.ranks)},
        {"LOCAL_RANK", std::to_string(rank)},
        {"LOCAL_WORLD_SIZE", std::to_string(options.ranks)},
        {"MASTER_ADDR", "127.0.0.1"},
        {"MASTER_PORT", std::to_string(port)},
        {tokenVariable, token},
        {launcherVariable, std::to_string(directoryEnd)}})
    ::setenv(name, value.c_str(), /*replace=*/1);
  // The one descriptor that rank 0 gets besides its output.
  if (rank == 0)
    ::fcntl(directoryEnd, F_SETFD, 0);
  else
    ::unsetenv(launcherVariable);
  ::unsetenv("TORCHELASTIC_USE_AGENT_STORE");
}

static Status makePipe(int ends[2]) {
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return socketError("cannot make a pipe");
  return {};
}

Status Attempt::startRank(int rank, const std::vector<std::string> &command,
                          int directoryEnd) {
  int out[2], err[2];
  NSA_RETURN_IF_ERROR(makePipe(out));
  NSA_RETURN_IF_ERROR(makePipe(err));
  std::vector<char *> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string &text : command)
    arguments.push_back(const_cast<char *>(text.c_str()));
  arguments.push_back(nullptr);
  pid_t parent = ::getpid();
  pid_t pid = ::fork();
  if (pid == 0) {
    // A group of its own: a terminal's Ctrl-C comes from here alone, once.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent)
      ::_exit(1);
    sigprocmask(SIG_SETMASK, &signals.old, nullptr);
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    setVariables(rank, directoryEnd);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(out[1]);
  ::close(err[1]);
  children.push_back({pid, pid > 0, false, passOn(out[0], rank, output.out),
                      passOn(err[0], rank, output.err)});
  return pid > 0 ? Status() : socketError("cannot start a rank");
}

Status Attempt::start(const std::vector<std::string> &command) {
  NSA_ASSIGN_OR_RETURN(token, randomHex(/*count=*/32));
  NSA_ASSIGN_OR_RETURN(port, findFreePort());
  int ends[2];
  NSA_RETURN_IF_ERROR(makePipe(ends));
  directoryPipe = ends[0];
  ::fcntl(directoryPipe, F_SETFL, O_NONBLOCK);
  Status started;
  for (int rank = 0; rank < options.ranks && started; ++rank)
    started = startRank(rank, command, ends[1]);
  ::close(ends[1]);
  return started;
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

void Attempt::wait() {
  auto isRunning = [](const Child &child) { return child.running; };
  while (std::any_of(children.begin(), children.end(), isRunning)) {
    if (int signal = signals.next(lookEvery))
      handOn(signal);
    reap();
    if (killTime && Clock::now() >= *killTime) {
      killTime.reset();
      for (Child &child : children)
        child.isKilled = child.running;
      killAll();
    }
  }
  for (const Child &child : children) {
    child.out.wait();
    child.err.wait();
  }
  readDirectory();
}

/// What rank 0 wrote, which is one line.
void Attempt::readDirectory() {
  char text[PATH_MAX + 1];
  ssize_t count = ::read(directoryPipe, text, sizeof text);
  if (count > 0)
    directory.assign(text, size_t(count) - 1);
}

void Attempt::handOn(int signal) {
  if (signal == SIGCHLD)
    return;
  stopped = stopped || signal != SIGUSR1;
  // A terminal that has gone is a reason to stop like any other.
  int handedOn = signal == SIGHUP ? SIGTERM : signal;
  for (const Child &child : children)
    if (child.running)
      ::kill(child.pid, handedOn);
}

void Attempt::reap() {
  for (size_t rank = 0; rank < children.size(); ++rank) {
    Child &child = children[rank];
    int status = 0;
    if (!child.running || ::waitpid(child.pid, &status, WNOHANG) != child.pid)
      continue;
    child.running = false;
    noteEnd(int(rank), status);
  }
}

void Attempt::noteEnd(int rank, int status) {
  // Its last lines come first, unless a process that it has started lives on.
  for (std::future<void> *lines :
       {&children[size_t(rank)].out, &children[size_t(rank)].err})
    lines->wait_for(lookEvery);
  bool killed = WIFSIGNALED(status);
  int code = killed ? exitLostRank : WEXITSTATUS(status);
  if (code == 0)
    return;
  std::string how =
      children[size_t(rank)].isKilled
          ? "was killed by the launcher: it had not ended after the others"
      : killed ? std::string("was killed by signal ") +
                     std::to_string(WTERMSIG(status)) + " (" +
                     strsignal(WTERMSIG(status)) + ")"
               : "exited with code " + std::to_string(code);
  output.err->line("nsa-train: rank " + std::to_string(rank) + " " + how);
  if (failure == 0 || failure == exitLostRank)
    failure = code;
  // Ranks that end as planned leave together, once rank 0 has saved.
  if (code == exitNonFinite || code == exitInterrupted || isEnding)
    return;
  isEnding = true;
  killTime =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(options.graceSeconds));
}

void Attempt::killAll() {
  for (const Child &child : children)
    if (child.running)
      ::kill(child.pid, SIGKILL);
}

/// Starts all ranks, and again while restarts are left.
static Result<int> launchAll(const LaunchOptions &options,
                             const SignalReader &signals,
                             const Output &output) {
  std::string directory;
  for (int restarts = 0;; ++restarts) {
    Attempt attempt(options, signals, output);
    NSA_RETURN_IF_ERROR(attempt.start(
        directory.empty() ? options.command : options.resume(directory)));
    attempt.wait();
    if (!attempt.runDirectory().empty())
      directory = attempt.runDirectory();
    int code = attempt.code();
    if (code != exitLostRank || attempt.wasStopped() ||
        restarts == options.maxRestarts) {
      output.drain(signals, attempt.wasStopped());
      return code;
    }
    output.err->line("nsa-train: restart " + std::to_string(restarts + 1) +
                     " of " + std::to_string(options.maxRestarts));
  }
}

Result<int> launch(const LaunchOptions &options) {
  SignalReader signals(options.endsProcess);
  Output output(options);
  return launchAll(options, signals, output);
}

} // namespace nsa
