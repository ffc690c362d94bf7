//===- Communicator.h - reductions over ranks -------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_COMMUNICATOR_H
#define NSA_RUNTIME_COMMUNICATOR_H

#include "nsa/Support/Result.h"

#include <cstdint>

namespace nsa {

/// Reductions of memory of the host over the ranks of a run. Every rank starts
/// the same ones in the same order. One thread uses it.
class Communicator {
public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Begins to replace `count` floats by their means over all ranks, and
  /// returns at once the number of the reduction: 1, 2, ... The data belongs to
  /// the communicator until `wait` returns. The bits of the means are the same
  /// on all ranks and in every run with this number of ranks.
  virtual uint64_t startAverage(float *data, int64_t count) = 0;

  /// Waits for the end of a reduction that was started. An error says which
  /// reduction failed, how many bytes it has, and where the other ranks are.
  virtual Status wait(uint64_t number) = 0;
};

} // namespace nsa

#endif // NSA_RUNTIME_COMMUNICATOR_H
