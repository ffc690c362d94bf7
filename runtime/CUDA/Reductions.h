//===- Reductions.h - averages over the GPUs of a run -----------*- C++ -*-===//

#ifndef NSA_RUNTIME_CUDA_REDUCTIONS_H
#define NSA_RUNTIME_CUDA_REDUCTIONS_H

#include "nsa/Runtime/Communicator.h"
#include "runtime/CUDA/GPU.h"
#include "runtime/CUDA/Nccl.h"

#include <chrono>
#include <vector>

namespace nsa::cuda {

/// The reductions of a program over the ranks of its run. They run on a stream
/// of their own beside the program's commands, in the order of their starts,
/// and can be part of a CUDA graph. Since a reduction waits for all ranks, the
/// host watches for time-outs: see `wait`.
class Reductions {
public:
  /// `gpu` and `group` outlive it. `library` is NCCL: see Nccl::open.
  static Result<std::unique_ptr<Reductions>>
  open(const GPU &gpu, ProcessGroup &group, const std::string &library);
  ~Reductions();

  /// A reduction or another collective, or one more of the last one, if that
  /// is said to be `grouped` with the next; returns its number: 0, 1, ... With
  /// `measure`, `measured` says when it ran.
  Result<unsigned> add(const Collective &collective, bool grouped,
                       bool measure);
  unsigned count() const { return unsigned(reductions.size()); }

  /// After all `add`: connects the ranks, of which `sequenceRanks` share each
  /// sequence, and runs every reduction once, with whatever is in memory, so
  /// that nothing is set up later.
  Status connect(int sequenceRanks);

  /// Before a run of `count` reductions from number `first` on is put on the
  /// program's stream, and after it has been waited for.
  void beginRun(unsigned first, unsigned count);
  Status endRun();

  /// Whether what is put on streams becomes part of a graph.
  void setCapturing(bool captures) { capturing = captures; }

  /// Begins a reduction of what the program's stream has computed so far, and
  /// lets that stream wait for it. The time from the end of number `first` to
  /// the last one counts as waiting.
  Status start(unsigned number);
  Status finish(unsigned number, unsigned first, bool isLast);

  /// Waits for the program's stream. An error says which reduction did not end,
  /// how many bytes it has and where the other ranks are; after that nothing on
  /// the GPU may be waited for.
  Status wait();
  bool hasFailed() const { return group->hasAborted(); }

  /// Seconds that the program's stream has waited for reductions so far.
  double waitedSeconds() const { return waited; }

  /// Milliseconds from `origin`, an event of the program's stream, to the
  /// beginning of a measured reduction, and to its end.
  Result<std::pair<double, double>> measured(unsigned number, Event origin);

  const std::string &description() const { return nccl->description(); }

private:
  struct Reduction {
    std::vector<Collective> group;
    uint64_t bytes = 0;
    /// The data is complete, the reduction begins, and it has ended.
    Event ready = nullptr, begun = nullptr, done = nullptr;
    /// Around what the program's stream waits for together, of the first one.
    Event waitBegin = nullptr, waitEnd = nullptr;
  };
  struct Run {
    unsigned first = 0, count = 0;
  };
  /// What the GPU tells the host: the last reduction that has begun, and the
  /// last that has ended, numbered from 1.
  struct Progress {
    volatile uint32_t begun, ended;
  };

  Reductions(const GPU &gpu, ProcessGroup &group) : gpu(&gpu), group(&group) {}
  Status makeStream();
  Result<Event> makeEvent(bool timed);
  Status shareNumbers();
  Result<std::string> shareId();
  Status tell(volatile uint32_t &word, uint32_t value);
  Status warmUp();
  std::string findFailure(std::chrono::nanoseconds sinceProgress);
  Status fail(const std::string &why);
  void report(uint32_t begun);

  const GPU *gpu;
  ProcessGroup *group;
  std::unique_ptr<Nccl> nccl;
  Stream stream = nullptr;
  std::vector<Reduction> reductions;
  /// Whether the last one is grouped with the next that is added.
  bool isOpen = false;
  /// 0, 1, 2, ... on the GPU, for `tell`.
  DevicePtr numbers = 0;
  PinnedMemory words;
  Progress *progress = nullptr;
  bool capturing = false;
  double waited = 0;
  /// The reductions of the last run that is on the stream, and how many ended
  /// in all runs before.
  Run run;
  uint64_t total = 0;
  /// All that are on the stream.
  std::vector<Run> runs;
};

} // namespace nsa::cuda

#endif // NSA_RUNTIME_CUDA_REDUCTIONS_H
