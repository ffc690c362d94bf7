//===- RankTable.h - what a rank knows of all ranks -------------*- C++ -*-===//

#ifndef NSA_RUNTIME_DISTRIBUTED_RANKTABLE_H
#define NSA_RUNTIME_DISTRIBUTED_RANKTABLE_H

#include "nsa/Support/Result.h"
#include "runtime/Distributed/Wire.h"

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace nsa {

/// Why something failed at the store: because a rank was lost or did not come
/// in time, by a mistake that another start would repeat, or because a rank has
/// stopped the run.
enum class StoreFailure { Loss, Mistake, Stop };

/// Why waiting is futile; empty if it is not.
struct Ending {
  std::string text;
  StoreFailure kind = StoreFailure::Loss;
};

/// What the store has told, in the order in which it tells all ranks.
class RankTable {
public:
  explicit RankTable(int size) : ranks(size_t(size)) {}

  void apply(const wire::Message &message);

  /// What all ranks gave to the exchange that this one has entered, once: by
  /// rank. Nothing while some have not come.
  std::optional<Result<std::vector<std::string>>> takeExchanged();

  /// The value of a key, if there is one.
  std::optional<std::string> find(const std::string &key) const;

  /// A rank has left, or the store has; the first reason counts.
  void leave(const std::string &why);

  /// A rank has stopped the run; the first reason counts.
  void stop(const std::string &why);
  const std::string &stopReason() const { return stopText; }

  /// Why nothing more can come of this run, but for its end where it was
  /// stopped.
  Ending ending(bool mayFollowStop = false) const;

  /// Whether every rank has come and sends heartbeats.
  bool areAllAlive() const;

  /// The last known status of every rank, the most relevant first.
  std::string status() const;

  /// Which ranks have not come to an exchange.
  std::string missingFrom(const std::string &exchange) const;

private:
  struct State {
    enum { Absent, Present, Left, Lost } presence = Absent;
    uint64_t reduction = 0, bytes = 0;
    /// How long it has said nothing, if that is unusual.
    uint64_t silentMilliseconds = 0;
    /// Exchanges that it has entered: the last one, and those that others have
    /// not.
    std::string lastExchange;
    std::deque<wire::Message> entered;
  };

  void collectExchanged();
  std::string lossText() const;
  std::string describe(const State &state) const;

  std::vector<State> ranks;
  std::map<std::string, std::string> values;
  std::optional<Result<std::vector<std::string>>> exchanged;
  /// Why the first rank left that did not leave at the end, why a rank has
  /// stopped the run, and a mistake because of which there will be no run.
  std::string reason, stopText, mistake;
  /// Of a connection that may have been one of the ranks that are missing.
  std::string lastRefusal;
};

} // namespace nsa

#endif // NSA_RUNTIME_DISTRIBUTED_RANKTABLE_H
