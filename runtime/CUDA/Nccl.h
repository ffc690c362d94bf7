//===- Nccl.h - NCCL, opened at run time ------------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CUDA_NCCL_H
#define NSA_RUNTIME_CUDA_NCCL_H

#include "nsa/Runtime/Communicator.h"
#include "runtime/CUDA/Driver.h"

#include <memory>
#include <string>
#include <vector>

namespace nsa::cuda {

/// `count` elements at `data`, f32, bf16 or f16, of all parts; of ranks that
/// share sequences, those of so many `sequences`, of which two rows each at
/// `rows`, of `rowBytes` bytes, end with this rank's chunks.
struct Collective {
  CollectiveKind kind;
  DevicePtr data;
  uint64_t count;
  DataType type;
  uint64_t sequences;
  DevicePtr rows;
  uint64_t rowBytes;

  uint64_t bytes() const { return count * elementBytes(type); }
};

/// The ranks of a run, connected. Declares the few functions of libnccl.so.2
/// that are used, so that nothing of NCCL is needed to build this.
class Nccl {
public:
  /// Opens the library: a file, a folder that holds libnccl.so.2, or, when
  /// empty, where the system's loader finds it.
  static Result<std::unique_ptr<Nccl>> open(const std::string &library);

  /// Ends the connection, if there is one.
  ~Nccl();

  /// A name for the run, which one rank makes and gives to all.
  Result<std::string> makeId();

  /// Connects to all ranks of the run `id`, each with a GPU of its own, the
  /// calling thread's current one, and to the `sequenceRanks` that share
  /// sequences. Waits for them without a time-out.
  Status connect(const std::string &id, int rank, int size, int sequenceRanks);

  /// Puts collectives on the stream, together. Means have the same bits on all
  /// ranks; the number of ranks divides the elements where each has a part.
  Status run(const std::vector<Collective> &group, Stream stream);

  /// Asynchronous errors, such as a lost connection.
  Status health();

  /// "NCCL 2.27.3".
  const std::string &description() const { return name; }

private:
  struct Functions;

  Nccl();
  Status check(int result, const char *call) const;
  int run(const Collective &collective, Stream stream);
  int runOnSequences(const Collective &collective, Stream stream);

  std::unique_ptr<Functions> functions;
  void *communicator = nullptr;
  /// Of the ranks that share sequences, in their order and in the opposite one:
  /// the first half of a sequence has a chunk of each in their order, the
  /// second half in the opposite one.
  void *sharers[2] = {nullptr, nullptr};
  int rank = 0, size = 1, sequenceRanks = 1;
  std::string name;
};

} // namespace nsa::cuda

#endif // NSA_RUNTIME_CUDA_NCCL_H
