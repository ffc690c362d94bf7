//===- MachinePeaks.h - what this processor can do at best ------*- C++ -*-===//

#ifndef NSA_RUNTIME_CPU_MACHINEPEAKS_H
#define NSA_RUNTIME_CPU_MACHINEPEAKS_H

namespace nsa {

/// Peak rates of a number of threads together.
struct MachinePeaks {
  int threads = 1;
  /// fp32 multiply-adds in vectors of 256 bits, two operations each, per
  /// second; 0 on a processor without them.
  double flops = 0;
  /// The same in vectors of 512 bits.
  double wideFlops = 0;
  /// Bytes per second that memcpy reads and writes, both counted, between
  /// buffers that no cache of one core holds.
  double copy = 0;

  /// Merges another measurement of as many threads: the faster values.
  void raiseTo(const MachinePeaks &other);
};

/// Measures for about a second; the best of several rounds, so that other work
/// on the machine shows as little as possible.
MachinePeaks measurePeaks(int threads);

} // namespace nsa

#endif // NSA_RUNTIME_CPU_MACHINEPEAKS_H
