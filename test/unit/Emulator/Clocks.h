//===- Clocks.h - what happened before what ---------------------*- C++ -*-===//
//
// Every warp has a clock, and knows from barriers up to which time of another
// warp all accesses lie before its own next one. Threads that arrive and wait
// without the others of their warp (mbarriers) are known one by one. The copy
// engine and asynchronous products are no threads: what they write or read is
// before an access only for those who have waited, or know from those.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_EMULATOR_CLOCKS_H
#define NSA_TEST_UNIT_EMULATOR_CLOCKS_H

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <vector>

namespace nsa::emulator {

/// Warps of the largest block. Behind them are numbers of the mbarriers that
/// copies complete on, each with a clock of its own, its phases; and behind
/// those the products of each warp, whose clock are their groups.
constexpr unsigned kMaxWarps = 32, kMaxCopyBarriers = 32;
constexpr unsigned kFirstProduct = kMaxWarps + kMaxCopyBarriers;
constexpr unsigned kAgents = kFirstProduct + kMaxWarps;

/// A thread at a time: clock, warp, lane and two flags. 0 is nobody.
using Stamp = uint32_t;
/// The value is still on its way (cp.async); it is undefined.
constexpr Stamp kInFlight = 1, kPoison = 2;
constexpr unsigned kClockShift = 14;
constexpr uint32_t kMaxClock = (uint32_t(1) << (32 - kClockShift)) - 1;

inline Stamp makeStamp(uint32_t clock, unsigned agent, unsigned lane) {
  return clock << kClockShift | agent << 7 | lane << 2;
}
inline uint32_t clockOf(Stamp stamp) { return stamp >> kClockShift; }
inline unsigned agentOf(Stamp stamp) { return stamp >> 7 & 0x7f; }
/// No thread if none did it.
inline unsigned threadOf(Stamp stamp) { return stamp >> 2 & 0xfff; }
inline bool isProduct(Stamp stamp) { return agentOf(stamp) >= kFirstProduct; }
inline bool isCopy(Stamp stamp) {
  return agentOf(stamp) >= kMaxWarps && !isProduct(stamp);
}

/// What each warp of a block knows of the others' clocks.
class Clocks {
public:
  Clocks() { reset(); }

  void reset() {
    for (Times &times : seen) {
      times.agents.fill(1);
      times.threads.clear();
    }
    clock.fill(1);
    single.clear();
    random = 1;
  }

  uint32_t now(unsigned warp) const { return clock[warp]; }

  struct Times {
    /// All that happened at an earlier time of the warp is known.
    std::array<uint32_t, kAgents> agents = {};
    /// So is what these threads did until then.
    std::vector<Stamp> threads;

    bool includes(Stamp stamp) const {
      return clockOf(stamp) < agents[agentOf(stamp)] ||
             std::any_of(
                 threads.begin(), threads.end(),
                 [&](Stamp last) {
                   return threadOf(last) == threadOf(stamp) &&
                          clockOf(stamp) <= clockOf(last);
                 });
    }
    void add(const Times &other);
    void add(Stamp last);
  };

  /// Whether what `stamp` says happened before anything that this thread does
  /// from now on.
  bool isBefore(Stamp stamp, unsigned warp, unsigned lane) const {
    return clockOf(stamp) < seen[warp].agents[agentOf(stamp)] ||
           threadOf(stamp) == (warp << 5 | lane) ||
           isKnownOtherwise(stamp, warp, lane);
  }

  /// All threads of a warp have met.
  void tick(unsigned warp) {
    for (auto own = single.lower_bound(warp << 5);
         own != single.end() && own->first >> 5 == warp;
         own = single.erase(own))
      seen[warp].add(own->second);
    seen[warp].agents[warp] = ++clock[warp];
  }

  /// All threads of `warp` meet; adds what they know and did to `times`.
  void release(unsigned warp, Times &times) {
    tick(warp);
    times.add(seen[warp]);
  }
  /// The same, but the threads do not meet.
  void releaseEach(unsigned warp, Times &times) {
    times.add(seen[warp]);
    for (auto own = single.lower_bound(warp << 5);
         own != single.end() && own->first >> 5 == warp; ++own)
      times.add(own->second);
    times.agents[warp] = ++clock[warp];
  }
  void releaseOne(unsigned warp, unsigned lane, Times &times) {
    times.add(seen[warp]);
    auto own = single.find(warp << 5 | lane);
    if (own != single.end())
      times.add(own->second);
    times.add(makeStamp(clock[warp]++, warp, lane));
  }

  void acquire(unsigned warp, const Times &times) { seen[warp].add(times); }
  void acquireOne(unsigned warp, unsigned lane, const Times &times) {
    single[warp << 5 | lane].add(times);
  }

  /// Who reads for a product of this group.
  static Stamp productOf(unsigned warp, unsigned lane, uint64_t group) {
    return makeStamp(uint32_t(group) + 1, kFirstProduct + warp, lane);
  }
  /// All lanes have waited for all but groups from `group` on.
  void awaitProducts(unsigned warp, uint64_t group) {
    uint32_t &known = seen[warp].agents[kFirstProduct + warp];
    known = std::max(known, uint32_t(group) + 1);
  }

  /// Three of four times true.
  bool toss() const {
    random = random * 1664525 + 1013904223;
    return random >> 30 != 0;
  }

private:
  bool isKnownOtherwise(Stamp stamp, unsigned warp, unsigned lane) const {
    if (!seen[warp].threads.empty() && seen[warp].includes(stamp))
      return true;
    if (single.empty())
      return false;
    auto own = single.find(warp << 5 | lane);
    return own != single.end() && own->second.includes(stamp);
  }

  std::array<Times, kMaxWarps> seen;
  std::array<uint32_t, kMaxWarps> clock;
  /// What single threads know beyond their warp.
  std::map<unsigned, Times> single;
  mutable uint32_t random = 1;
};

inline void Clocks::Times::add(const Times &other) {
  for (unsigned i = 0; i < kAgents; ++i)
    agents[i] = std::max(agents[i], other.agents[i]);
  for (Stamp last : other.threads)
    add(last);
}

inline void Clocks::Times::add(Stamp last) {
  std::erase_if(threads, [&](Stamp known) {
    return clockOf(known) < agents[agentOf(known)] ||
           (threadOf(known) == threadOf(last) &&
            clockOf(known) <= clockOf(last));
  });
  if (!includes(last))
    threads.push_back(last);
}

} // namespace nsa::emulator

#endif // NSA_TEST_UNIT_EMULATOR_CLOCKS_H
