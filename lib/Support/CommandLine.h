//===- CommandLine.h - parsing for the tools without LLVM -------*- C++ -*-===//
//
// CLI11 with this project's conventions: an unknown flag is an error with a
// suggestion, a wrong command line exits with code 2, and messages look like
// those of the compiler tools.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_SUPPORT_COMMANDLINE_H
#define NSA_SUPPORT_COMMANDLINE_H

#include "nsa/Support/Result.h"

#include <functional>
#include <optional>
#include <string>

namespace CLI {
class App;
} // namespace CLI

namespace nsa {

/// Exit code of an invalid command line.
constexpr int exitUsage = 2;

/// Parses `argv` into `app`. Returns the code to exit with when there is
/// nothing left to do: 0 after --help, exitUsage after an error, which has
/// been printed to stderr. A flag takes true or false and nothing else, whole
/// numbers are decimal.
std::optional<int> parseCommandLine(CLI::App &app, int argc,
                                    const char *const *argv);

/// Checks of the numbers that an option takes, for CLI::Option::check. They say
/// what is expected instead of printing the largest number that there is.
using NumberCheck = std::function<std::string(const std::string &)>;
NumberCheck atLeast(long long least);
NumberCheck between(long long least, long long most);

/// For real numbers, before a check of a range, which NaN passes.
std::string checkFinite(const std::string &text);

/// Prints "tool: error: message" to stderr and returns 1, the code of a
/// failure.
int reportError(const std::string &tool, const std::string &message);

/// Runs what a tool does and returns its exit code. An exception, such as that
/// memory is short, ends the tool as any other error does, and so does a file
/// that may not grow further.
int runTool(const std::string &tool, const std::function<int()> &body);

/// Writes what a tool has made to a file, whole or not at all, or to the
/// standard output for "-" or nothing.
Status writeOutput(const std::string &path, const std::string &contents);

/// The code to exit with after `code`: that of a failure, with a message, if
/// what was printed could not be written.
int finishOutput(const std::string &tool, int code);

/// A count with an optional suffix k, M or G (powers of 1000), such as 5M.
std::optional<unsigned long long> parseCount(const std::string &text);

} // namespace nsa

#endif // NSA_SUPPORT_COMMANDLINE_H
