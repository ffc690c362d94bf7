//===- CUDAExecutableImpl.h - the state of a program on a GPU ---*- C++ -*-===//

#ifndef NSA_RUNTIME_CUDA_CUDAEXECUTABLEIMPL_H
#define NSA_RUNTIME_CUDA_CUDAEXECUTABLEIMPL_H

#include "runtime/CPU/FiniteCheck.h"
#include "runtime/CPU/Memory.h"
#include "runtime/CPU/SelectionCheck.h"
#include "runtime/CUDA/BlasLt.h"
#include "runtime/CUDA/Commands.h"
#include "runtime/CUDA/Reductions.h"
#include "runtime/CUDA/Transfers.h"
#include "runtime/Core/Executable.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace nsa::cuda {

class CUDAExecutable : public Executable {
public:
  CUDAExecutable(const Artifact &artifact, const RuntimeOptions &options)
      : source(artifact), options(options) {
    this->options.checkFinite |= options.noGraph;
  }
  ~CUDAExecutable() override;

  /// The part of the construction that can fail.
  Status load();

  void *segment(unsigned index) const override { return memory->mirror(index); }
  Status bind(unsigned entry, const Bindings &bindings) override;
  Status waitFor(uint64_t stream) override;
  Status release(uint64_t stream) override;
  RunResult start(unsigned entry) override;
  RunResult finish(unsigned entry) override;
  bool canEnqueue() const override {
    return options.externalMemory && !options.checkFinite && !options.poison &&
           !options.profile;
  }
  RunResult enqueue(unsigned entry, uint64_t stream) override;
  Status upload(const artifact::Slice &slice) override;
  Status download(const artifact::Slice &slice) override;
  Status pinHost() override;
  uint64_t allocatedBytes() const override { return memory->bytes(); }
  uint64_t deviceBytesInUse() const override {
    CurrentGPU current(*gpu);
    return gpu->usedBytes();
  }
  uint64_t connectionBytes() const override { return connectedBytes; }
  Result<std::optional<GPUPeaks>> measureGPU() override;
  int threads() const override { return 1; }
  std::string gpuName() const override { return gpu->description(); }
  std::string gemmLibrary() const override {
    return blas ? blas->description() : "";
  }
  std::string reductionLibrary() const override {
    return reductions ? reductions->description() : "";
  }
  double waitedSeconds() const override {
    return reductions ? reductions->waitedSeconds() : 0;
  }
  const std::vector<uint64_t> &nanoseconds(unsigned entry) const override {
    return entries[entry].nanoseconds;
  }
  const std::vector<CommandSpan> &lastRun(unsigned entry) const override {
    return entries[entry].lastRun;
  }

private:
  struct ReadyEntry {
    /// The bindings that the addresses of the commands come from.
    Bindings bindings;
    std::vector<Command> commands;
    /// Where the commands have addresses of bound memory.
    std::vector<Relocation> relocations;
    /// What each command writes; filled only if results are checked.
    std::vector<std::vector<FloatOutput>> results;
    /// What each command reads of the kind; filled likewise.
    std::vector<std::vector<SelectionInput>> selections;
    std::vector<uint64_t> nanoseconds;
    std::vector<CommandSpan> lastRun;
    /// Before each command and after the last; none unless measured.
    std::vector<Event> events;
    Transfers transfers;
    std::vector<artifact::Slice> poisoned;
    /// The commands as a graph, after some runs; null if some of them need
    /// the host.
    GraphExec graph = nullptr;
    bool mayCapture = true;
    /// Runs with the same addresses.
    unsigned runs = 0;
    /// Of the program's reductions, those of this entry.
    unsigned firstReduction = 0, numReductions = 0;
  };

  int rank() const { return options.ranks ? options.ranks->rank() : 0; }
  Status loadKernels();
  Status loadBlas();
  Status openReductions();
  Status connectRanks();

  // ResolveCommands.cpp
  Status resolveEntries();
  Status resolve(const artifact::Entry &entry);
  Status prepareTransfers(const artifact::Entry &entry,
                          const Bindings &bindings, Transfers &transfers);
  Status resolveBound(const artifact::Entry &entry, const Bindings &bindings,
                      ReadyEntry &ready);
  Result<std::vector<Command>> rebind(const artifact::Entry &entry,
                                      const ReadyEntry &ready);
  std::vector<Relocation> findRelocations(const artifact::Entry &entry,
                                          const Bindings &bindings,
                                          std::vector<Command> &commands) const;
  Status relocate(const artifact::Entry &entry, const Bindings &bindings,
                  ReadyEntry &ready) const;
  /// Where a slice lies while the entry that is resolved or runs has these
  /// bindings.
  DevicePtr address(const artifact::Slice &slice) const {
    if (std::optional<char *> elsewhere = bound->find(slice))
      return reinterpret_cast<DevicePtr>(*elsewhere);
    return memory->address(slice);
  }
  Result<Command> resolve(const artifact::Command &command);
  Result<Command> resolve(const artifact::Launch &launch) const;
  Result<Command> resolve(const artifact::Gemm &gemm);
  MatmulMemory memoryOf(const artifact::Gemm &gemm) const;
  Result<Command> resolve(const artifact::Fill &fill) const;
  Result<Command> resolve(const artifact::Initialize &initialize) const;
  Result<Command> resolve(const artifact::Copy &copy) const;
  Result<Command> resolve(const artifact::CollectiveStart &start);
  Command resolve(const artifact::CollectiveDone &done);

  // RunCommands.cpp
  Status order(Event &event, Stream before, Stream after);
  RunResult startBound(ReadyEntry &entry);
  Status poison(const ReadyEntry &entry);
  Status initialize(const InitializeTensor &command);
  Status issue(const Command &command, Stream stream);
  RunResult runCommands(ReadyEntry &entry);
  Status mark(const ReadyEntry &entry, size_t event);
  Status readTimes(ReadyEntry &entry, uint64_t start);
  Result<std::optional<CommandSpan>>
  readReduction(const ReadyEntry &entry, size_t command, uint64_t start);
  Status capture(ReadyEntry &entry);
  Status synchronize();
  Status wait();
  Status download(const artifact::Slice &slice, void *data);
  Status checkSelections(const std::vector<SelectionInput> &inputs);
  Result<std::optional<NonFinite>>
  findNonFinite(size_t command, const std::vector<FloatOutput> &outputs);

  Artifact source;
  RuntimeOptions options;
  std::unique_ptr<GPU> gpu;
  std::unique_ptr<DeviceMemory> memory;
  Module code = nullptr;
  std::vector<Function> kernels;
  std::unique_ptr<BlasLt> blas;
  /// Null where there is one rank.
  std::unique_ptr<Reductions> reductions;
  /// What came into use while the ranks connected.
  uint64_t connectedBytes = 0;
  /// While an entry is resolved, those that have not ended.
  std::vector<std::pair<artifact::Slice, unsigned>> running;
  std::vector<ReadyEntry> entries;
  const Bindings none;
  const Bindings *bound = &none;
  /// Between a caller's stream and that of the program; made when needed.
  Event given = nullptr, done = nullptr;
  /// Whether the caller's stream records a graph, which what is started now
  /// belongs to.
  bool isRecorded = false;
  /// Whether streams of callers may have commands.
  bool hasEnqueued = false;
  /// Where results are checked.
  PageMemory checked;
  /// When the last command that was measured ended.
  uint64_t measuredUntil = 0;
};

} // namespace nsa::cuda

#endif // NSA_RUNTIME_CUDA_CUDAEXECUTABLEIMPL_H
