//===- RankTable.h - what the store knows of the ranks ----------*- C++ -*-===//

#ifndef NSA_RUNTIME_DISTRIBUTED_RANKTABLE_H
#define NSA_RUNTIME_DISTRIBUTED_RANKTABLE_H

#include "runtime/Distributed/Store.h"

#include <optional>
#include <string>
#include <vector>

namespace nsa {

/// Why a client would wait in vain; without a text it would not.
struct Ending {
  std::string text;
  StoreFailure kind = StoreFailure::Loss;
};

/// What is known of a rank.
struct RankState {
  enum { Absent, Present, Left, Lost } presence = Absent;
  uint64_t reduction = 0;
  uint64_t bytes = 0;
  std::string lastExchange;
  /// When it last said something.
  std::chrono::steady_clock::time_point heard;

  /// How long it has said nothing, if that is unusual: ranks send heartbeats
  /// every second.
  std::optional<double> silence() const;
};

/// What is known of all ranks, and in words.
class RankTable {
public:
  explicit RankTable(int size) : ranks(size_t(size)) {}

  size_t size() const { return ranks.size(); }
  RankState &operator[](size_t rank) { return ranks[rank]; }

  /// Whether every rank has registered.
  bool isComplete() const;

  /// Whether every rank is there and shows that it lives.
  bool areAllAlive() const;

  /// A rank has left, at the end or for a reason; the first reason counts.
  void leave(size_t rank, const std::string &why);

  /// A rank has stopped the run, as planned, if it was not over.
  void stop(const std::string &why);

  /// A connection was refused before all ranks had registered: it may have been
  /// one of those that are missing.
  void noteRefusal(const std::string &why) { lastRefusal = why; }

  /// Why nothing more can come of this run, but for its end where it was
  /// stopped.
  Ending ending(bool mayFollowStop = false) const;

  /// Where every rank was last seen, what matters first.
  std::string status() const;

  /// Which ranks have not come to an exchange.
  std::string missingFrom(const std::string &exchange) const;

private:
  std::string lossText() const;
  std::string describe(size_t rank) const;

  std::vector<RankState> ranks;
  /// Why the first rank left that did not leave at the end.
  std::string reason;
  /// Why a rank has stopped the run.
  std::string stopText;
  std::string lastRefusal;
};

} // namespace nsa

#endif // NSA_RUNTIME_DISTRIBUTED_RANKTABLE_H
