//===- Process.h - finding and running programs -----------------*- C++ -*-===//

#ifndef NSA_SUPPORT_PROCESS_H
#define NSA_SUPPORT_PROCESS_H

#include "nsa/Support/Result.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace nsa {

/// The value of a variable of the environment, if it is set.
using Variables =
    std::function<std::optional<std::string>(const std::string &)>;

std::optional<std::string> readVariable(const std::string &name);

/// The file that this process runs.
std::string executablePath();

/// The program `name` in the first of `folders`, then of PATH, that has one;
/// empty if none has.
std::string findProgram(const std::string &name,
                        const std::vector<std::string> &folders,
                        const Variables &variables);

/// The ptxas of CUDA_HOME, of PATH or, without CUDA_HOME, of /usr/local/cuda;
/// empty if there is none.
std::string findPtxas(const Variables &variables);

/// The words of a command as a shell reads them.
std::string quoteCommand(const std::vector<std::string> &words);

/// Runs a program (a path, and its arguments), waits for it, and returns what
/// it printed; what it says on the standard error goes to that of this
/// process. An exit code other than 0, or a signal, is an error that names the
/// program and the number. It is stopped (SIGTERM) when this process ends.
Result<std::string> runProgram(const std::vector<std::string> &command);

} // namespace nsa

#endif // NSA_SUPPORT_PROCESS_H
