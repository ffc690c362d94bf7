//===- RankTable.cpp - what the store knows of the ranks ------------------===//

#include "runtime/Distributed/RankTable.h"

#include <algorithm>
#include <cmath>

namespace nsa {

using Clock = std::chrono::steady_clock;

std::optional<double> RankState::silence() const {
  std::chrono::duration<double> since = Clock::now() - heard;
  bool isUnusual = presence == Present && since.count() > 1.8;
  return isUnusual ? std::optional<double>(since.count()) : std::nullopt;
}

/// "; " between parts, then "rank N".
static void beginRank(std::string &text, size_t rank) {
  text += (text.empty() ? "rank " : "; rank ") + std::to_string(rank);
}

bool RankTable::isComplete() const {
  return std::none_of(ranks.begin(), ranks.end(), [](const RankState &state) {
    return state.presence == RankState::Absent;
  });
}

bool RankTable::areAllAlive() const {
  return std::all_of(ranks.begin(), ranks.end(), [](const RankState &state) {
    return state.presence == RankState::Present && !state.silence();
  });
}

void RankTable::leave(size_t rank, const std::string &why) {
  ranks[rank].presence = RankState::Left;
  if (reason.empty())
    reason = why;
}

void RankTable::stop(const std::string &why) {
  if (ending().text.empty())
    stopText = why;
}

Ending RankTable::ending(bool mayFollowStop) const {
  if (!stopText.empty() && !mayFollowStop)
    return {stopText, StoreFailure::Stop};
  return {lossText(), StoreFailure::Loss};
}

/// Those that ended without a word are the cause; others may have left because
/// of them.
std::string RankTable::lossText() const {
  auto list = [&](auto presence, const char *what) {
    std::string text;
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      if (ranks[rank].presence == presence) {
        beginRank(text, rank);
        text += what + describe(rank);
      }
    return text;
  };
  std::string text = list(RankState::Lost, " was lost after ");
  if (text.empty())
    text = reason;
  return text.empty() ? list(RankState::Left, " left after ") : text;
}

std::string RankTable::describe(size_t rank) const {
  const RankState &state = ranks[rank];
  if (state.presence == RankState::Absent)
    return "nothing: it has not come";
  std::string text = state.reduction
                         ? "beginning reduction " +
                               std::to_string(state.reduction) + " (" +
                               std::to_string(state.bytes) + " bytes)"
                         : "beginning no reduction";
  if (!state.lastExchange.empty())
    text += " and '" + state.lastExchange + "'";
  if (std::optional<double> seconds = state.silence())
    text += ", silent for " + std::to_string(std::lround(*seconds)) + " s";
  return text;
}

std::string RankTable::status() const {
  std::string text = ending().text;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (ranks[rank].silence()) {
      beginRank(text, rank);
      text += " does not answer";
    }
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (ranks[rank].presence != RankState::Lost) {
      beginRank(text, rank);
      text += " was last seen " + describe(rank);
    }
  return text;
}

std::string RankTable::missingFrom(const std::string &exchange) const {
  std::string text;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (ranks[rank].lastExchange != exchange) {
      beginRank(text, rank);
      text += " did not come, last seen " + describe(rank);
    }
  if (text.empty())
    return status();
  if (!isComplete() && !lastRefusal.empty())
    text += "; a connection was refused: " + lastRefusal;
  return text;
}

} // namespace nsa
