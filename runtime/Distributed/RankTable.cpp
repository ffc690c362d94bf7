//===- RankTable.cpp - what a rank knows of all ranks ---------------------===//

#include "runtime/Distributed/RankTable.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace nsa {

using wire::Kind;

/// "; " between parts, then "rank N".
static std::string &addRank(std::string &text, size_t rank) {
  return text += (text.empty() ? "rank " : "; rank ") + std::to_string(rank);
}

void RankTable::apply(const wire::Message &message) {
  if (message.rank >= ranks.size())
    return;
  State &state = ranks[message.rank];
  switch (message.kind) {
  case Kind::Joined:
    state.presence = State::Present;
    return;
  case Kind::Lost:
    state.presence = State::Lost;
    state.silentMilliseconds = 0;
    return;
  case Kind::Leave:
    state.presence = State::Left;
    state.silentMilliseconds = 0;
    return leave(message.text);
  case Kind::Progress:
    state.reduction = message.number;
    state.bytes = message.bytes;
    return;
  case Kind::Silent:
    state.silentMilliseconds = message.number;
    return;
  case Kind::Set:
    values[message.name] = message.text;
    return;
  case Kind::Exchange:
    if (!stopText.empty() && message.number == 0)
      return;
    state.lastExchange = message.name;
    state.entered.push_back(message);
    return collectExchanged();
  case Kind::Stop:
    if (ending().text.empty())
      stop(message.text);
    return;
  case Kind::Refused:
    (message.number ? mistake : lastRefusal) = message.name;
    return;
  case Kind::Challenge:
  case Kind::Hello:
  case Kind::Welcome:
  case Kind::Alive:
    return;
  }
}

/// Once all are there; this rank enters no other exchange before it has taken
/// what comes of it.
void RankTable::collectExchanged() {
  if (std::any_of(ranks.begin(), ranks.end(),
                  [](const State &state) { return state.entered.empty(); }))
    return;
  const std::string first = ranks[0].entered.front().name;
  std::vector<std::string> all;
  std::string difference;
  for (State &state : ranks) {
    wire::Message &entry = state.entered.front();
    if (entry.name != first)
      difference = "rank 0 is at '" + first + "', rank " +
                   std::to_string(entry.rank) + " at '" + entry.name + "'";
    all.push_back(std::move(entry.text));
    state.entered.pop_front();
  }
  if (difference.empty())
    exchanged.emplace(std::move(all));
  else
    exchanged.emplace(Error{"the ranks do not do the same: " + difference});
}

std::optional<Result<std::vector<std::string>>> RankTable::takeExchanged() {
  return std::exchange(exchanged, std::nullopt);
}

std::optional<std::string> RankTable::find(const std::string &key) const {
  auto found = values.find(key);
  return found == values.end() ? std::nullopt : std::optional(found->second);
}

void RankTable::leave(const std::string &why) {
  if (reason.empty())
    reason = why;
}

/// What ranks have entered comes to nothing; all may enter what follows.
void RankTable::stop(const std::string &why) {
  if (!stopText.empty())
    return;
  stopText = why;
  for (State &state : ranks)
    state.entered.clear();
}

Ending RankTable::ending(bool mayFollowStop) const {
  if (!mistake.empty())
    return {mistake, StoreFailure::Mistake};
  if (!stopText.empty() && !mayFollowStop)
    return {stopText, StoreFailure::Stop};
  return {lossText(), StoreFailure::Loss};
}

bool RankTable::areAllAlive() const {
  return std::all_of(ranks.begin(), ranks.end(), [](const State &state) {
    return state.presence == State::Present && !state.silentMilliseconds;
  });
}

/// Those that ended without a word are the cause; others may have left because
/// of them.
std::string RankTable::lossText() const {
  std::string lost, left;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const State &state = ranks[rank];
    if (state.presence == State::Lost)
      addRank(lost, rank) += " was lost after " + describe(state);
    if (state.presence == State::Left)
      addRank(left, rank) += " left after " + describe(state);
  }
  return !lost.empty() ? lost : !reason.empty() ? reason : left;
}

std::string RankTable::describe(const State &state) const {
  if (state.presence == State::Absent)
    return "nothing: it has not come";
  std::string text = "beginning no reduction";
  if (state.reduction)
    text = "beginning reduction " + std::to_string(state.reduction) + " (" +
           std::to_string(state.bytes) + " bytes)";
  if (!state.lastExchange.empty())
    text += " and '" + state.lastExchange + "'";
  if (uint64_t silent = state.silentMilliseconds)
    text += ", silent for " +
            std::to_string(std::lround(double(silent) / 1000)) + " s";
  return text;
}

std::string RankTable::status() const {
  std::string text = ending().text;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (ranks[rank].silentMilliseconds)
      addRank(text, rank) += " does not answer";
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (ranks[rank].presence != State::Lost)
      addRank(text, rank) += " was last seen " + describe(ranks[rank]);
  return text;
}

std::string RankTable::missingFrom(const std::string &exchange) const {
  auto isFrozen = [&](const State &state) {
    return state.silentMilliseconds && state.lastExchange != exchange;
  };
  bool isWaitedFor = std::any_of(ranks.begin(), ranks.end(), isFrozen);
  std::string text;
  bool isComplete = true;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const State &state = ranks[rank];
    isComplete &= state.presence != State::Absent;
    // One that answers may wait for one that does not, in a reduction.
    bool mayWait = isWaitedFor && state.presence == State::Present &&
                   !state.silentMilliseconds;
    if (state.lastExchange != exchange && !mayWait)
      addRank(text, rank) += " did not come, last seen " + describe(state);
  }
  if (text.empty())
    return status();
  if (!isComplete && !lastRefusal.empty())
    text += "; a connection was refused: " + lastRefusal;
  return text;
}

} // namespace nsa
