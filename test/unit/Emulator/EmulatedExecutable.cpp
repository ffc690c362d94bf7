//===- EmulatedExecutable.cpp - programs for a GPU without one ------------===//
//
// A test that links this runs artefacts of GPU targets on the emulator: it
// takes the place of the one in runtime/CUDA.
//
//===----------------------------------------------------------------------===//

#include "nsa/Artifact/TensorMap.h"
#include "runtime/CPU/Commands.h"
#include "runtime/CPU/Memory.h"
#include "runtime/CUDA/CUDAExecutable.h"
#include "runtime/Core/Poison.h"
#include "test/unit/Emulator/EmulatedModule.h"
#include "test/unit/Emulator/Emulator.h"

#include <cstring>

using namespace nsa;
using namespace nsa::emulator;
using artifact::Slice;

namespace {

class EmulatedExecutable : public Executable {
public:
  EmulatedExecutable(const Artifact &artifact, const RuntimeOptions &options)
      : source(artifact), options(options) {}

  Status load();

  void *segment(unsigned index) const override {
    return segments[index].data();
  }
  Status bind(unsigned, const Bindings &bindings) override {
    return bindings == Bindings() ? Status()
                                  : Error{"the emulator has its own memory"};
  }
  RunResult start(unsigned entry) override;
  RunResult finish(unsigned) override { return {}; }
  Status upload(const Slice &) override { return {}; }
  Status download(const Slice &) override { return {}; }
  uint64_t allocatedBytes() const override { return 0; }
  int threads() const override { return 1; }
  std::string gemmLibrary() const override { return ""; }
  const std::vector<uint64_t> &nanoseconds(unsigned entry) const override {
    return times[entry];
  }
  const std::vector<CommandSpan> &lastRun(unsigned entry) const override {
    return spans[entry];
  }

private:
  char *address(const Slice &slice) const {
    return segments[slice.segment()].data() + slice.offset();
  }
  Status runCommand(const artifact::Command &command);
  Status launch(const artifact::Launch &launch);
  Status multiply(const artifact::Gemm &gemm);
  Status runOnPool(const Action &action);

  Artifact source;
  RuntimeOptions options;
  std::vector<PageMemory> segments;
  std::unique_ptr<Emulator> kernels;
  std::optional<Blas> blas;
  std::unique_ptr<ThreadPool> pool;
  std::vector<char> workspace;
  std::vector<std::vector<uint64_t>> times;
  std::vector<std::vector<CommandSpan>> spans;
};

} // namespace

Status EmulatedExecutable::load() {
  if (options.checkFinite || options.profile)
    return Error{"the emulator neither checks for NaNs nor measures"};
  for (const artifact::Segment *segment : *source->segments()) {
    Result<PageMemory> memory = PageMemory::allocate(segment->size());
    if (!memory)
      return memory.takeError();
    segments.push_back(std::move(*memory));
  }
  for (const artifact::Binary *binary : *source->binaries())
    if (binary->format()->string_view() == kEmulatedFormat) {
      Result<std::unique_ptr<Emulator>> parsed = Emulator::parse(
          std::string(binary->data()->begin(), binary->data()->end()));
      if (!parsed)
        return parsed.takeError();
      kernels = std::move(*parsed);
    }
  if (!kernels && source->kernels()->size() > 0)
    return Error{"has no kernels for the emulator"};
  for (const artifact::Entry *entry : *source->entries()) {
    times.emplace_back(entry->commands()->size());
    spans.emplace_back(entry->commands()->size());
    for (const artifact::Command *command : *entry->commands())
      if (command->action_as_Gemm() && !blas) {
        Result<Blas> opened = Blas::open(options.blasLibrary);
        if (!opened)
          return opened.takeError();
        blas = std::move(*opened);
      }
  }
  Result<std::unique_ptr<ThreadPool>> started = ThreadPool::create(1);
  if (!started)
    return started.takeError();
  pool = std::move(*started);
  return {};
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

RunResult EmulatedExecutable::start(unsigned index) {
  const artifact::Entry &entry = *source->entries()->Get(index);
  if (options.poison)
    for (const Slice &slice : slicesToPoison(source.root(), entry))
      std::memset(address(slice), 0xFF, slice.size());
  for (unsigned i = 0; i < entry.commands()->size(); ++i)
    if (Status status = runCommand(*entry.commands()->Get(i)); !status)
      return RunFailure{i, status.message()};
  return {};
}

Status EmulatedExecutable::runOnPool(const Action &action) {
  pool->execute([&] { runAction(action, blas ? &*blas : nullptr, *pool); });
  return {};
}

/// The extents of the call and what follows from them, as the runtime for GPUs
/// has it.
static LaunchSizes sizesOf(const artifact::Artifact &root,
                           const artifact::Kernel &kernel) {
  LaunchSizes sizes;
  if (!kernel.takes_extents())
    return sizes;
  sizes.extents.assign(root.extents()->values()->begin(),
                       root.extents()->values()->end());
  if (!kernel.tensor_maps())
    return sizes;
  for (const artifact::TensorMap *map : *kernel.tensor_maps()) {
    LaunchSizes::Map &own = sizes.maps.emplace_back();
    own.extents.assign(map->extents()->begin(), map->extents()->end());
    own.strides.assign(map->strides()->begin(), map->strides()->end());
    if (isEmptyTensorMap(own.extents)) {
      own.extents.assign(own.extents.size(), 1);
      own.strides.assign(own.strides.size(), int64_t(tensorMapAlignment));
    }
  }
  return sizes;
}

Status EmulatedExecutable::launch(const artifact::Launch &launch) {
  const artifact::Kernel &kernel = *source->kernels()->Get(launch.kernel());
  // Stand for a tensor without elements.
  alignas(64) char zeros[64] = {};
  std::vector<Argument> arguments;
  for (const Slice *slice : *launch.operands()) {
    bool isEmpty = kernel.takes_extents() && slice->size() == 0;
    bool isOutput = arguments.size() >= kernel.arguments() - kernel.outputs();
    if (isEmpty)
      arguments.push_back({zeros, sizeof zeros, /*isOutput=*/false});
    else
      arguments.push_back({address(*slice), slice->size(), isOutput});
  }
  return kernels->launch(kernel.symbol()->str(),
                         {kernel.grid_x(), kernel.grid_y(), kernel.grid_z()},
                         arguments, sizesOf(source.root(), kernel));
}

/// The plan for a GPU has no room for the processor's fp32 copies.
Status EmulatedExecutable::multiply(const artifact::Gemm &gemm) {
  GemmCommand command =
      resolveGemm(gemm, [&](const Slice &slice) { return address(slice); });
  GemmWorkspace needs =
      gemmWorkspace(command.m, command.n, command.k, command.lhsType,
                    command.rhsType, command.outType, gemm.batch());
  workspace.resize(needs.bytes + 64);
  auto start = reinterpret_cast<uintptr_t>(workspace.data());
  command.workspace = workspace.data() + (64 - start % 64);
  return runOnPool(command);
}

Status EmulatedExecutable::runCommand(const artifact::Command &command) {
  if (const auto *action = command.action_as_Launch())
    return launch(*action);
  if (const auto *gemm = command.action_as_Gemm())
    return multiply(*gemm);
  if (const auto *fill = command.action_as_Fill())
    return runOnPool(
        FillCommand{fill->type(), fill->value(), address(*fill->out()),
                    int64_t(fill->out()->size() / elementBytes(fill->type()))});
  if (const auto *copy = command.action_as_Copy())
    return runOnPool(CopyCommand{address(*copy->source()),
                                 address(*copy->out()),
                                 {{0, 0, copy->out()->size()}}});
  if (command.action_as_CollectiveStart() || command.action_as_CollectiveDone())
    return {};
  const artifact::Tensor &tensor =
      *source->tensors()->Get(command.action_as_Initialize()->tensor());
  return runOnPool(InitializeCommand{
      &tensor, address(*tensor.slice()),
      int64_t(tensor.slice()->size() / elementBytes(tensor.type())),
      options.seed});
}

Result<std::unique_ptr<Executable>>
nsa::createCUDAExecutable(const Artifact &artifact,
                          const RuntimeOptions &options) {
  auto executable = std::make_unique<EmulatedExecutable>(artifact, options);
  if (Status status = executable->load(); !status)
    return Error{status.message()};
  return std::unique_ptr<Executable>(std::move(executable));
}
