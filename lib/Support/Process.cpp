//===- Process.cpp - finding and running programs -------------------------===//

#include "lib/Support/Process.h"
#include "lib/Support/Text.h"

#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace nsa;

std::optional<std::string> nsa::readVariable(const std::string &name) {
  const char *value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

std::string nsa::executablePath() {
  std::error_code code;
  return std::filesystem::read_symlink("/proc/self/exe", code).string();
}

static bool isProgram(const std::string &path) {
  std::error_code code;
  return std::filesystem::is_regular_file(path, code) &&
         ::access(path.c_str(), X_OK) == 0;
}

std::string nsa::findProgram(const std::string &name,
                             const std::vector<std::string> &folders,
                             const Variables &variables) {
  std::vector<std::string> all = folders;
  std::istringstream path(variables("PATH").value_or(""));
  for (std::string folder; std::getline(path, folder, ':');)
    all.push_back(folder.empty() ? "." : folder);
  for (const std::string &folder : all)
    if (std::string file = folder + "/" + name; isProgram(file))
      return file;
  return "";
}

std::string nsa::findPtxas(const Variables &variables) {
  std::optional<std::string> home = variables("CUDA_HOME");
  std::vector<std::string> folders;
  if (home)
    folders.push_back(*home + "/bin");
  std::string found = findProgram("ptxas", folders, variables);
  const std::string usual = "/usr/local/cuda/bin/ptxas";
  return found.empty() && !home && isProgram(usual) ? usual : found;
}

std::string nsa::quoteCommand(const std::vector<std::string> &words) {
  std::string text;
  for (const std::string &word : words) {
    bool isPlain = !word.empty();
    for (char c : word)
      isPlain &= std::isalnum(static_cast<unsigned char>(c)) ||
                 std::strchr("-_./=:,+@%", c);
    std::string quoted = isPlain ? word : "'";
    for (size_t i = 0; !isPlain && i < word.size(); ++i)
      quoted += word[i] == '\'' ? std::string("'\\''") : word.substr(i, 1);
    text += (text.empty() ? "" : " ") + quoted + (isPlain ? "" : "'");
  }
  return text;
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

namespace {
/// Both ends of a pipe, closed on destruction and by exec.
struct Pipe {
  Pipe() {
    if (::pipe2(ends, O_CLOEXEC) != 0)
      ends[0] = ends[1] = -1;
  }
  ~Pipe() {
    closeEnd(0);
    closeEnd(1);
  }
  Pipe(const Pipe &) = delete;
  Pipe &operator=(const Pipe &) = delete;

  void closeEnd(int end) {
    if (ends[end] >= 0)
      ::close(ends[end]);
    ends[end] = -1;
  }

  /// All that comes until the other end is closed.
  std::string readAll() const {
    std::string text;
    char block[65536];
    for (;;) {
      ssize_t got = ::read(ends[0], block, sizeof block);
      if (got > 0)
        text.append(block, size_t(got));
      else if (got == 0 || errno != EINTR)
        return text;
    }
  }

  int ends[2];
};
} // namespace

/// In the child, where only calls that signal handlers may use are allowed.
[[noreturn]] static void becomeProgram(char *const *arguments, pid_t parent,
                                       int output, int failure) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() == parent && ::dup2(output, STDOUT_FILENO) >= 0)
    ::execv(arguments[0], arguments);
  int error = errno;
  (void)!::write(failure, &error, sizeof error);
  ::_exit(127);
}

static Error systemFailure(const std::string &what, int error) {
  return Error{what + ": " + std::strerror(error)};
}

Result<std::string> nsa::runProgram(const std::vector<std::string> &command) {
  const std::string &name = command.front();
  Pipe output, failure;
  if (output.ends[0] < 0 || failure.ends[0] < 0)
    return systemFailure("cannot make a pipe", errno);
  std::vector<char *> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string &word : command)
    arguments.push_back(const_cast<char *>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0)
    return systemFailure("cannot start " + quote(name), errno);
  if (pid == 0)
    becomeProgram(arguments.data(), parent, output.ends[1], failure.ends[1]);
  output.closeEnd(1);
  failure.closeEnd(1);
  std::string text = output.readAll(), why = failure.readAll();
  int state = 0;
  while (::waitpid(pid, &state, 0) < 0 && errno == EINTR) {
  }
  if (why.size() == sizeof(int)) {
    int error = 0;
    std::memcpy(&error, why.data(), sizeof error);
    return systemFailure("cannot start " + quote(name), error);
  }
  if (WIFSIGNALED(state))
    return Error{quote(name) + " was ended by signal " +
                 std::to_string(WTERMSIG(state)) + " (" +
                 ::strsignal(WTERMSIG(state)) + ")"};
  if (int code = WEXITSTATUS(state); code != 0)
    return Error{quote(name) + " ended with code " + std::to_string(code)};
  return text;
}
