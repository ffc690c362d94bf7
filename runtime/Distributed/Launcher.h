//===- Launcher.h - starts the ranks of a run on this machine ---*- C++ -*-===//

#ifndef NSA_RUNTIME_DISTRIBUTED_LAUNCHER_H
#define NSA_RUNTIME_DISTRIBUTED_LAUNCHER_H

#include "nsa/Support/Result.h"

#include <string>
#include <vector>

namespace nsa {

/// Exit codes of a run that ended as planned: see nsa-train --help.
constexpr int exitNonFinite = 3, exitInterrupted = 4;

/// Exit code of a rank whose run ended because another rank was lost or did not
/// come in time.
constexpr int exitLostRank = 5;

struct LaunchOptions {
  /// Ranks to start.
  int ranks = 1;
  /// The program and its arguments.
  std::vector<std::string> command;
  /// How long ranks may go on after one has failed, before they are killed.
  double graceSeconds = 3;
  /// The process ends with what `launch` returns: signals that come afterwards
  /// stay blocked, so that one sent twice does not hide the code.
  bool endsProcess = false;
};

/// Starts the ranks with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
/// MASTER_ADDR, MASTER_PORT and a token of this start (see Token.h), and hands
/// SIGINT, SIGTERM, SIGHUP (as SIGTERM) and SIGUSR1 on to all, unless they are
/// ignored. Once a rank has failed, which is said on the standard error, the
/// others have `graceSeconds` to end; exitNonFinite and exitInterrupted are no
/// failures, and the others may take their time. Returns 0 if all ranks did,
/// else the first code that is not exitLostRank; a rank that a signal killed
/// counts as lost.
///
/// One call at a time; it waits for its own children only.
Result<int> launch(const LaunchOptions &options);

} // namespace nsa

#endif // NSA_RUNTIME_DISTRIBUTED_LAUNCHER_H
