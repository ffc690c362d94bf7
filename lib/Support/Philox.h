//===- Philox.h - counter-based random numbers ------------------*- C++ -*-===//
//
// Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011): the n-th number of a stream is a pure function of (key, n), so
// order, thread count and restarts do not change what is drawn.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_SUPPORT_PHILOX_H
#define NSA_SUPPORT_PHILOX_H

#include <array>
#include <cstdint>

namespace nsa {

/// The four 32-bit numbers of `counter` under the 64-bit `key`. `stream`
/// separates uses of one key.
inline std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter,
                                      uint64_t stream = 0) {
  std::array<uint32_t, 4> x = {uint32_t(counter), uint32_t(counter >> 32),
                               uint32_t(stream), uint32_t(stream >> 32)};
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t(0xD2511F53u) * x[0];
    uint64_t p1 = uint64_t(0xCD9E8D57u) * x[2];
    x = {uint32_t(p1 >> 32) ^ x[1] ^ k0, uint32_t(p1),
         uint32_t(p0 >> 32) ^ x[3] ^ k1, uint32_t(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return x;
}

/// A cursor over one stream. Its whole state is `position`.
class PhiloxStream {
public:
  explicit PhiloxStream(uint64_t key, uint64_t stream = 0,
                        uint64_t position = 0)
      : key(key), stream(stream), position(position) {}

  /// The next 64 bits.
  uint64_t next() {
    std::array<uint32_t, 4> x = philox(key, position++, stream);
    return uint64_t(x[1]) << 32 | x[0];
  }

  /// Uniform in [0, 1), 53 bits.
  double uniform() { return double(next() >> 11) * 0x1p-53; }

  /// Uniform in [0, bound), bound >= 1 (multiply-shift; bias below
  /// bound / 2^64).
  uint64_t below(uint64_t bound) {
    return uint64_t((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }

private:
  uint64_t key;
  uint64_t stream;
  uint64_t position;
};

} // namespace nsa

#endif // NSA_SUPPORT_PHILOX_H
