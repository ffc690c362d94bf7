//===- Runtime.h - loading and running artefacts ----------------*- C++ -*-===//
//
// A Program is an artefact made ready on this machine: its memory is
// allocated, its binary is loaded and its commands are resolved. Running an
// entry allocates nothing.
//
//     Result<Artifact> artifact = Artifact::open("model.nsax");
//     Result<Program> program = Program::create(*artifact, {});
//     Status status = program->run("init");
//     std::memcpy(program->findTensor("tokens")->data, tokens, bytes);
//     status = program->run("eval");
//     float loss = *program->findTensor("loss")->as<float>();
//
//===----------------------------------------------------------------------===//

#ifndef NSA_RUNTIME_RUNTIME_H
#define NSA_RUNTIME_RUNTIME_H

#include "nsa/Artifact/Artifact.h"
#include "nsa/Runtime/Communicator.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nsa {

/// How a program is made ready.
struct RuntimeOptions {
  /// Threads of the CPU target; 0 takes the processors that this process may
  /// use. The results do not depend on it.
  int threads = 0;
  /// OpenBLAS or, on a GPU, cuBLASLt: a file, or a folder to search. Empty:
  /// where the system's loader finds libopenblas.so.0 or libopenblas.so;
  /// libcublasLt.so.13, .12 or libcublasLt.so.
  std::string blasLibrary;
  /// Whether OpenBLAS may run kernels for older processors than this one; else
  /// that is an error, unless OPENBLAS_CORETYPE asks for them.
  bool allowSlowGemm = false;
  /// The seed of initial values. A tensor's values depend on the seed and its
  /// name alone.
  uint64_t seed = 0;
  /// After every command, fail if one of its float outputs has a NaN or an
  /// infinity. Only a launch may write -inf: the log-sum-exp of a row that sees
  /// nothing. Before every command, fail if it reads selected blocks that their
  /// token may not read, which it would ignore.
  bool checkFinite = false;
  /// Before every run, fill the arena, the workspace and the entry's outputs
  /// of the role output with 0xFF bytes, which are NaNs.
  bool poison = false;
  /// Measure every command; see Program::profile. On a GPU, commands then run
  /// one at a time.
  bool profile = false;
  /// The GPU to use, a number from 0.
  int device = 0;
  /// On a GPU, wait for each command and check its results (see checkFinite)
  /// instead of running all of them as a CUDA graph: what fails is named.
  bool noGraph = false;
  /// On the CPU, what averages gradients over ranks; null where there is one
  /// rank. It must outlive the program.
  Communicator *communicator = nullptr;
  /// On a GPU, the way to the other ranks, with which NCCL then averages
  /// gradients; null where there is one rank. It must outlive the program.
  ProcessGroup *ranks = nullptr;
  /// Whether the program has no memory of its own: each run has bindings for
  /// all tensors of its entry, and scratch memory.
  bool externalMemory = false;
  /// NCCL: a file, or a folder to search. Empty: where the system's loader
  /// finds libnccl.so.2.
  std::string ncclLibrary;
};

/// A named tensor of a program. `data` points to dense row-major elements that
/// the host reads and writes between runs, and is 64-byte aligned. Valid as
/// long as the program lives.
struct TensorView {
  std::string name;
  DataType type = DataType::F32;
  std::vector<uint64_t> shape;
  void *data = nullptr;
  uint64_t bytes = 0;
  TensorRole role = TensorRole::Input;
  /// Whether weight decay applies to it (parameters only).
  bool decay = false;
  /// What the optimizer calls a state that it keeps for parameters, such as m;
  /// empty for all other tensors.
  std::string state = {};
  /// Whether it is a weight that is not trained: a constant that starts as
  /// weights do, and may come from a checkpoint.
  bool frozen = false;
  /// Whether ranks keep a part of it each, in another tensor: `data` is where
  /// the whole is read to and written from, on the host.
  bool sharded = false;

  uint64_t elements() const { return bytes / elementBytes(type); }
  /// The elements as T, which must be what `type` says: it is not checked.
  template <typename T>
  T *as() const {
    return static_cast<T *>(data);
  }
};

/// An entry point. `inputs` and `outputs` index Program::tensors.
struct EntryInfo {
  std::string name;
  std::vector<unsigned> inputs;
  std::vector<unsigned> outputs;
  /// Its position in Program::entries.
  unsigned index = 0;
  /// Number of commands in its list.
  size_t commands = 0;
};

/// Memory of the caller's that takes a tensor's place: dense row-major elements
/// of its type, on the program's device. On a GPU the address is a multiple of
/// `gpuArrayAlignment`, on the CPU of the size of an element.
struct Binding {
  /// Position in Program::tensors.
  unsigned tensor = 0;
  void *data = nullptr;
};

/// What kernels of a GPU expect of the address of an array, in bytes.
constexpr uint64_t gpuArrayAlignment = 256;

/// What one command did in all runs so far.
struct CommandProfile {
  /// The command in words, such as "launch @window_attention".
  std::string command;
  /// Its source location, such as "model.mlir:12:8".
  std::string location;
  uint64_t nanoseconds = 0;
  /// Floating-point operations of one run.
  uint64_t flops = 0;
  /// Bytes of all operands: what one run reads and writes, each once.
  uint64_t bytes = 0;
  /// Whether some of them are bf16 or f16.
  bool hasHalf = false;
  /// Whether it begins a reduction over GPUs, which runs beside the commands
  /// that follow, and whether it waits for the end of one.
  bool startsReduction = false, endsReduction = false;
};

/// When a command ran, in nanoseconds of the steady clock.
struct CommandSpan {
  uint64_t start = 0;
  uint64_t nanoseconds = 0;
};

/// Peak rates of a GPU, as measured.
struct GPUPeaks {
  /// Such as "NVIDIA H100 80GB HBM3, CUDA 12.8".
  std::string name;
  /// Bytes per second that a copy on the GPU reads and writes, both counted.
  double copy = 0;
  /// Floating-point operations per second of cuBLASLt's matmuls of f32 and of
  /// bf16.
  double flops = 0, halfFlops = 0;
};

/// Memory of a program on its device.
struct MemoryUse {
  /// Bytes of each segment: what the compiler planned.
  std::vector<std::pair<std::string, uint64_t>> planned;
  /// Bytes that the program has allocated.
  uint64_t allocated = 0;
  /// Bytes of a GPU that came into use since the program got a context there,
  /// for whatever reason; 0 on the CPU.
  uint64_t inUse = 0;
  /// Of these, what came into use while GPUs were connected; 0 for one rank.
  uint64_t connections = 0;

  uint64_t plannedBytes() const;
};

class Executable;

/// A loaded program. Movable; one thread at a time may use it.
class Program {
public:
  /// Checks that this machine can run the artefact and makes it ready. Fails
  /// when the target or a processor feature is missing, when the program has
  /// gemms and OpenBLAS is not found, and when memory runs out. Errors start
  /// with the artefact's name.
  static Result<Program> create(const Artifact &artifact,
                                const RuntimeOptions &options = {});

  Program(Program &&) noexcept;
  Program &operator=(Program &&) noexcept;
  ~Program();

  /// What the program was made of. Valid as long as the program, as all that
  /// follows.
  const Artifact &artifact() const { return source; }
  /// Every named tensor and every entry, in the order of the artefact.
  const std::vector<TensorView> &tensors() const { return tensorList; }
  const std::vector<EntryInfo> &entries() const { return entryList; }

  /// The tensor or entry of this name, or null.
  const TensorView *findTensor(std::string_view name) const;
  const EntryInfo *findEntry(std::string_view name) const;

  /// The same, or an error that suggests a name.
  Result<TensorView> tensor(std::string_view name) const;
  Result<const EntryInfo *> entry(std::string_view name) const;

  /// Runs an entry's commands in order and waits for the end. Memory outside
  /// the arena and workspace keeps its contents from run to run; an input is
  /// what its tensor holds now. Fails on an unknown entry and when checkFinite
  /// finds something.
  Status run(std::string_view entryName);

  /// The same for an entry of this program.
  Status run(const EntryInfo &entry);

  /// `run` in two parts. `start` hands the commands to the device, with what
  /// the inputs hold now, and returns; more entries may be started after it.
  /// `finish` waits for all of them and brings the outputs of this one back, in
  /// one copy as far as they lie together. An error of a started entry may show
  /// there. On the CPU, `start` runs the commands.
  Status start(const EntryInfo &entry);
  Status finish(const EntryInfo &entry);

  /// Lets runs of the entry read and write `bindings` instead of the tensors'
  /// own memory, without a copy, until other bindings, or none, are given.
  /// Memory that is written overlaps no other. On a GPU, what was started
  /// before goes on with what was bound then.
  /// With RuntimeOptions::externalMemory all tensors of the entry are bound,
  /// and `scratch` has `scratchBytes()` bytes that are the run's alone.
  Status bind(const EntryInfo &entry, const std::vector<Binding> &bindings,
              void *scratch = nullptr);

  /// What an entry needs for intermediate values, at any address.
  uint64_t scratchBytes() const;

  /// On a GPU: what is started from now on waits for what was put on `stream`,
  /// a CUstream, before; and what is put on `stream` from now on waits for what
  /// was started. 0 is the default stream. Nothing to do on the CPU.
  Status waitFor(uint64_t stream);
  Status release(uint64_t stream);

  /// Puts the commands of an entry on `stream`, a CUstream, and returns: they
  /// run after what is there, and what comes after them finds the outputs.
  /// For programs without memory of their own on a GPU whose runs are neither
  /// checked, measured nor filled with NaNs, which `canEnqueue` says.
  bool canEnqueue() const;
  Status enqueue(const EntryInfo &entry, uint64_t stream);

  /// Whether the error of the last entry that was started was a NaN or an
  /// infinity that checkFinite found.
  bool foundNonFinite() const { return nonFinite; }

  /// Brings a tensor's elements on the device up to date with what the host has
  /// written to its `data`, or the other way round. `run` does so for the
  /// inputs of an entry and for its outputs of the role output; parameters,
  /// gradients and states move only here. Nothing to do on the CPU.
  Status toDevice(const TensorView &tensor) const;
  Status toHost(const TensorView &tensor) const;

  /// On a GPU, locks the host's copies of parameters and states in memory, so
  /// that toHost runs at the speed of the bus. Nothing to do on the CPU.
  Status pinHost();

  /// What was planned, what is allocated, and what of a GPU is in use now.
  MemoryUse memory() const;

  /// Measures the program's GPU, which takes 256 MiB of its memory meanwhile;
  /// nothing on the CPU.
  Result<std::optional<GPUPeaks>> measureGPU() const;

  /// Threads that run kernels.
  int threads() const;

  /// The GPU and its driver, "NVIDIA H100 80GB HBM3, CUDA 12.8"; empty on the
  /// CPU.
  std::string gpu() const;

  /// What computes matmuls, with the processor that its kernels are
  /// for: "OpenBLAS (SkylakeX)". Empty if the program has none.
  std::string gemmLibrary() const;

  /// What reduces over the GPUs of several ranks: "NCCL 2.27.3". Empty on the
  /// CPU and for one rank.
  std::string reductionLibrary() const;

  /// Seconds that the GPU has waited for reductions over ranks so far: their
  /// ends in what finished runs had left to compute, and other ranks.
  double waitedSeconds() const;

  /// One element per command of the entry, times summed over all runs. The
  /// times are 0 unless RuntimeOptions::profile was set.
  std::vector<CommandProfile> profile(const EntryInfo &entry) const;

  /// One element per command of the entry, of its last run. Zeros unless
  /// RuntimeOptions::profile was set.
  const std::vector<CommandSpan> &lastRun(const EntryInfo &entry) const;

private:
  Program(Artifact artifact, std::unique_ptr<Executable> executable);
  const artifact::Slice &sliceOf(const TensorView &tensor) const;
  /// Fails if the entry has no memory.
  Status checkMemory(const EntryInfo &entry) const;

  Artifact source;
  std::unique_ptr<Executable> executable;
  std::vector<TensorView> tensorList;
  std::vector<EntryInfo> entryList;
  /// With external memory, the entries that have not been bound.
  std::vector<bool> unbound;
  bool nonFinite = false;
};

} // namespace nsa

#endif // NSA_RUNTIME_RUNTIME_H
