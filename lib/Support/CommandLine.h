//===- CommandLine.h - parsing for the tools without LLVM -------*- C++ -*-===//
//
// CLI11 with this project's manners: an unknown flag is an error with a
// suggestion, a wrong command line exits with code 2, and messages look like
// those of the compiler tools.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_SUPPORT_COMMANDLINE_H
#define NSA_SUPPORT_COMMANDLINE_H

#include <functional>
#include <optional>
#include <string>

namespace CLI {
class App;
} // namespace CLI

namespace nsa {

/// Exit code of a command line that makes no sense.
constexpr int exitUsage = 2;

/// Parses `argv` into `app`. Returns the code to exit with when there is
/// nothing left to do: 0 after --help, exitUsage after an error, which has
/// been printed to stderr.
std::optional<int> parseCommandLine(CLI::App &app, int argc,
                                    const char *const *argv);

/// Checks of the numbers that an option takes, for CLI::Option::check. They say
/// what is expected instead of printing the largest number that there is.
using NumberCheck = std::function<std::string(const std::string &)>;
NumberCheck atLeast(long long least);
NumberCheck between(long long least, long long most);

/// Prints "tool: error: message" to stderr and returns 1, the code of a
/// failure.
int reportError(const std::string &tool, const std::string &message);

/// A count with an optional suffix k, M or G (powers of 1000), such as 5M.
std::optional<unsigned long long> parseCount(const std::string &text);

} // namespace nsa

#endif // NSA_SUPPORT_COMMANDLINE_H
