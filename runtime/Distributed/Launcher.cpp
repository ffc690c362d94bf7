//===- Launcher.cpp - starts the ranks of a run on this machine -----------===//

#include "runtime/Distributed/Launcher.h"
#include "lib/Support/Random.h"
#include "runtime/Distributed/OutputWriter.h"
#include "runtime/Distributed/Socket.h"
#include "runtime/Distributed/Token.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace nsa {

using Clock = std::chrono::steady_clock;

namespace {

/// Signals that go to all ranks.
constexpr int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

/// The longest line of a rank that is kept together.
constexpr size_t longestLine = 1 << 20;

/// A pipe end that is read in whole lines.
struct LineReader {
  int fd = -1;
  /// The beginning of a line.
  std::string rest;

  /// Calls `line` with what has come. Closes at the end.
  void read(const std::function<void(const std::string &)> &line) {
    char buffer[1 << 14];
    ssize_t count = ::read(fd, buffer, sizeof buffer);
    if (count < 0 && (errno == EINTR || errno == EAGAIN))
      return;
    std::string_view more(buffer, size_t(std::max<ssize_t>(count, 0)));
    for (size_t end; (end = more.find('\n')) != std::string_view::npos;) {
      line(rest.append(more.substr(0, end)));
      rest.clear();
      more.remove_prefix(end + 1);
    }
    rest.append(more);
    if (rest.size() > longestLine) {
      line(rest);
      rest.clear();
    }
    if (count > 0)
      return;
    if (!rest.empty())
      line(rest);
    ::close(fd);
    fd = -1;
  }
};

struct Child {
  pid_t pid = -1;
  bool running = false;
  /// It did not end in time after another one had failed.
  bool isKilled = false;
  LineReader out, err;
};

/// Blocks signals, and hands them to a descriptor, while it lives.
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
    fd = ::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~SignalReader() {
    ::close(fd);
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

  /// The next signal, or 0.
  int next() const {
    signalfd_siginfo info;
    return ::read(fd, &info, sizeof info) == ssize_t(sizeof info)
               ? int(info.ssi_signo)
               : 0;
  }

  int fd;
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
  ~Attempt() { killAll(); }

  Status start(const std::vector<std::string> &command);
  /// Until the last rank has ended.
  void wait();

  /// The code of the whole: see `launch`.
  int code() const;
  bool wasStopped() const { return stopped; }
  const std::string &runDirectory() const { return directory; }

private:
  Status makeIdentity();
  Status startRank(int rank, const std::vector<std::string> &command,
                   const std::vector<std::string> &environment);
  std::vector<std::string> makeEnvironment(int rank, uint16_t port,
                                           int launcherPipe) const;
  void readOutput(std::vector<pollfd> &polled);
  void handleSignals();
  void reap();
  void noteEnd(int rank, int status);
  void killAll();

  const LaunchOptions &options;
  const SignalReader &signals;
  const Output &output;
  std::vector<Child> children;
  LineReader directoryPipe;
  std::string directory;
  /// What tells this start from others, and what only its ranks know.
  std::string run, token;
  /// Codes of ranks that failed, in the order of their ends.
  std::vector<int> failures;
  std::optional<Clock::time_point> killTime;
  /// A rank has failed, and the others have been given their time.
  bool isEnding = false;
  bool stopped = false;
};

} // namespace

//===----------------------------------------------------------------------===//
// Starting
//===----------------------------------------------------------------------===//

std::vector<std::string> Attempt::makeEnvironment(int rank, uint16_t port,
                                                  int launcherPipe) const {
  std::vector<std::pair<std::string, std::string>> own = {
      {"RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(options.ranks)},
      {"LOCAL_RANK", std::to_string(rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(options.ranks)},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(port)},
      {runVariable, run},
      {tokenVariable, token}};
  if (launcherPipe >= 0)
    own.emplace_back(launcherVariable, std::to_string(launcherPipe));
  std::vector<std::string> all;
  for (char **variable = environ; *variable; ++variable) {
    std::string text = *variable;
    std::string name = text.substr(0, text.find('='));
    bool isOwn = std::any_of(own.begin(), own.end(), [&](const auto &entry) {
      return entry.first == name;
    });
    if (!isOwn && name != launcherVariable &&
        name != "TORCHELASTIC_USE_AGENT_STORE")
      all.push_back(text);
  }
  for (const auto &[name, value] : own)
    all.push_back(name + "=" + value);
  return all;
}

static std::vector<char *> pointersTo(const std::vector<std::string> &texts) {
  std::vector<char *> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string &text : texts)
    pointers.push_back(const_cast<char *>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

static Status makePipe(int ends[2]) {
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return socketError("cannot make a pipe");
  return {};
}

Status Attempt::startRank(int rank, const std::vector<std::string> &command,
                          const std::vector<std::string> &environment) {
  int out[2], err[2];
  NSA_RETURN_IF_ERROR(makePipe(out));
  NSA_RETURN_IF_ERROR(makePipe(err));
  std::vector<char *> arguments = pointersTo(command);
  std::vector<char *> variables = pointersTo(environment);
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
    ::execve(arguments[0], arguments.data(), variables.data());
    ::_exit(127);
  }
  ::close(out[1]);
  ::close(err[1]);
  Child &child = children.emplace_back();
  child.pid = pid;
  child.running = pid > 0;
  child.out.fd = out[0];
  child.err.fd = err[0];
  return pid > 0 ? Status() : socketError("cannot start a rank");
}

/// Makes the name and the token of this start.
Status Attempt::makeIdentity() {
  Result<std::string> name = randomHex(8), secret = makeToken();
  if (!name || !secret)
    return name ? secret.takeError() : name.takeError();
  run = *name;
  token = *secret;
  return {};
}

Status Attempt::start(const std::vector<std::string> &command) {
  NSA_RETURN_IF_ERROR(makeIdentity());
  NSA_ASSIGN_OR_RETURN(uint16_t port, findFreePort());
  int ends[2];
  NSA_RETURN_IF_ERROR(makePipe(ends));
  directoryPipe.fd = ends[0];
  // The one descriptor that a rank gets besides its output.
  ::fcntl(ends[1], F_SETFD, 0);
  Status started;
  for (int rank = 0; rank < options.ranks && started; ++rank) {
    started = startRank(rank, command,
                        makeEnvironment(rank, port, rank == 0 ? ends[1] : -1));
    if (rank == 0)
      ::close(ends[1]);
  }
  return started;
}

//===----------------------------------------------------------------------===//
// Waiting
//===----------------------------------------------------------------------===//

void Attempt::wait() {
  while (true) {
    std::vector<pollfd> polled = {{signals.fd, POLLIN, 0},
                                  {directoryPipe.fd, POLLIN, 0}};
    bool open = false, running = false;
    for (const Child &child : children) {
      polled.push_back({child.out.fd, POLLIN, 0});
      polled.push_back({child.err.fd, POLLIN, 0});
      open = open || child.out.fd >= 0 || child.err.fd >= 0;
      running = running || child.running;
    }
    if (!open && !running)
      return;
    ::poll(polled.data(), polled.size(), 100);
    handleSignals();
    readOutput(polled);
    reap();
    if (killTime && Clock::now() >= *killTime) {
      killTime.reset();
      for (Child &child : children)
        child.isKilled = child.running;
      killAll();
    }
  }
}

void Attempt::readOutput(std::vector<pollfd> &polled) {
  if (polled[1].revents)
    directoryPipe.read([&](const std::string &line) { directory = line; });
  for (size_t rank = 0; rank < children.size(); ++rank) {
    std::string prefix = "[" + std::to_string(rank) + "] ";
    auto print = [&](OutputWriter &to) {
      return
          [&prefix, &to](const std::string &line) { to.line(prefix + line); };
    };
    if (polled[2 + 2 * rank].revents)
      children[rank].out.read(print(*output.out));
    if (polled[3 + 2 * rank].revents)
      children[rank].err.read(print(*output.err));
  }
}

void Attempt::handleSignals() {
  while (int signal = signals.next()) {
    if (signal == SIGCHLD)
      continue;
    stopped = stopped || signal != SIGUSR1;
    // A terminal that has gone is a reason to stop like any other.
    int handedOn = signal == SIGHUP ? SIGTERM : signal;
    for (const Child &child : children)
      if (child.running)
        ::kill(child.pid, handedOn);
  }
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
  failures.push_back(code);
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

int Attempt::code() const {
  for (int code : failures)
    if (code != exitLostRank)
      return code;
  return failures.empty() ? 0 : exitLostRank;
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
