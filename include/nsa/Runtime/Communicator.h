//===- Communicator.h - reductions over ranks -------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_COMMUNICATOR_H
#define NSA_RUNTIME_COMMUNICATOR_H

#include "nsa/Artifact/DataType.h"
#include "nsa/Support/Result.h"

#include <chrono>
#include <cstdint>
#include <string>

namespace nsa {

/// Publishes the status of a rank and reads that of the others, which
/// reductions themselves do not report. One thread uses it.
class ProcessGroup {
public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// How long a rank may keep the others waiting.
  virtual std::chrono::milliseconds timeout() const = 0;

  /// Leaves a key for the others, and waits for one.
  virtual Status set(const std::string &key, const std::string &value) = 0;
  virtual Result<std::string> get(const std::string &key) = 0;

  /// Tells the others that this rank begins reduction `number`: 1, 2, ...
  virtual void progress(uint64_t number, uint64_t bytes) = 0;

  /// Why nothing more can come of the run: the ranks that were lost. Empty
  /// while it can go on.
  virtual std::string peerFailure() = 0;

  /// Where every rank is, as far as that is known.
  virtual std::string rankStatus() = 0;

  /// Notes that this rank ends because of another one; whether it does.
  virtual void abortRun() = 0;
  virtual bool hasAborted() const = 0;
};

/// Two rows of each of `sequences` that ranks share, `bytes` bytes each at
/// `data`, which end with this rank's chunks.
struct SequenceRows {
  int64_t sequences = 0;
  void *data = nullptr;
  int64_t bytes = 0;
};

/// Reductions of memory of the host over the ranks of a run. Every rank starts
/// the same ones in the same order. One thread uses it.
class Communicator {
public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Begins what `kind` says for `count` elements, f32, bf16 or f16, and
  /// returns at once the number of the reduction: 1, 2, ... The memory belongs
  /// to the communicator until `wait` returns. The bits of means and sums are
  /// the same on all ranks and in every run with this number of ranks. Sums of
  /// 16-bit numbers are rounded once for each rank. The parts of ranks are of
  /// equal size, in their order. Of ranks that share sequences, `data` holds
  /// these.
  virtual uint64_t start(CollectiveKind kind, void *data, int64_t count,
                         DataType type, const SequenceRows &rows) = 0;

  /// Begins to replace elements by their means over all ranks.
  uint64_t startAverage(void *data, int64_t count, DataType type) {
    return start(CollectiveKind::AllReduce, data, count, type, {});
  }

  /// Waits for the end of a reduction that was started. An error says which
  /// reduction failed, how many bytes it has, and where the other ranks are.
  virtual Status wait(uint64_t number) = 0;
};

} // namespace nsa

#endif // NSA_RUNTIME_COMMUNICATOR_H
