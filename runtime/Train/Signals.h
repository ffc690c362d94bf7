//===- Signals.h - stopping and looking at a run ----------------*- C++ -*-===//

#ifndef NSA_RUNTIME_TRAIN_SIGNALS_H
#define NSA_RUNTIME_TRAIN_SIGNALS_H

#include <csignal>

namespace nsa {

/// While it lives, SIGINT, SIGTERM and, unless it was ignored, SIGHUP ask for a
/// graceful stop, SIGUSR1 asks for a state dump, and SIGPIPE is ignored: the
/// reader of the console may leave, train.log has all lines. A second SIGINT, a
/// second or more after the first, kills as usual; more SIGTERM do not, since
/// launchers send it again while a checkpoint is being saved. Scopes inside
/// another add nothing: what came before them still counts.
class SignalScope {
public:
  /// With an exit code other than 0, nothing is there to save yet: until a
  /// scope inside begins, a stop ends the process at once with that code.
  explicit SignalScope(int leaveWith = 0);
  ~SignalScope();
  SignalScope(const SignalScope &) = delete;
  SignalScope &operator=(const SignalScope &) = delete;

  /// The signal that asked to stop, or 0.
  int stopRequested() const;

  /// Whether a dump was asked for since the last call.
  bool takeDumpRequest();
};

} // namespace nsa

#endif // NSA_RUNTIME_TRAIN_SIGNALS_H
