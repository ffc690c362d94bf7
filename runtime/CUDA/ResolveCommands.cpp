//===- ResolveCommands.cpp - entries with addresses on a GPU --------------===//

#include "lib/Support/Text.h"
#include "nsa/Artifact/LaunchOverlap.h"
#include "runtime/CUDA/CUDAExecutableImpl.h"
#include "runtime/Core/Describe.h"
#include "runtime/Core/Parts.h"
#include "runtime/Core/Poison.h"

#include <algorithm>
#include <set>

using namespace nsa;
using namespace nsa::cuda;
using artifact::Slice;

Status CUDAExecutable::resolveEntries() {
  entries.reserve(source->entries()->size());
  for (const artifact::Entry *entry : *source->entries())
    if (Status status = resolve(*entry); !status)
      return Error{"entry " + quote(entry->name()->str()) + ": " +
                   status.message()};
  if (options.checkFinite) {
    uint64_t most = 0;
    for (const ReadyEntry &entry : entries)
      for (const std::vector<FloatOutput> &outputs : entry.results)
        for (const FloatOutput &output : outputs)
          most = std::max(most, output.slice.size());
    for (const ReadyEntry &entry : entries)
      for (const std::vector<SelectionInput> &inputs : entry.selections)
        for (const SelectionInput &input : inputs)
          most = std::max(most, input.slice.size());
    NSA_ASSIGN_OR_RETURN(checked, PageMemory::allocate(most));
  }
  return wait();
}

/// Notes which reductions are waited for with nothing computed in between.
static void markWaits(std::vector<Command> &commands) {
  FinishReduction *last = nullptr;
  for (Command &command : commands)
    if (auto *finish = std::get_if<FinishReduction>(&command)) {
      finish->first = last ? last->first : finish->number;
      finish->isLast = true;
      if (last)
        last->isLast = false;
      last = finish;
    } else if (std::holds_alternative<LaunchKernel>(command) ||
               std::holds_alternative<RunGemm>(command)) {
      last = nullptr;
    }
}

/// Whether the kernels of the entry wait for what comes before them.
static bool mayOverlap(const artifact::Artifact &program,
                       const artifact::Entry &entry) {
  if (!program.options())
    return false;
  return std::any_of(program.options()->begin(), program.options()->end(),
                     [&](const artifact::Option *option) {
                       return option->key()->string_view() ==
                                  artifact::overlappedEntryOption &&
                              option->value()->string_view() ==
                                  entry.name()->string_view();
                     });
}

/// Lets launches after launches begin early.
static void overlapLaunches(std::vector<Command> &commands) {
  for (size_t i = 1; i < commands.size(); ++i)
    if (auto *launch = std::get_if<LaunchKernel>(&commands[i]))
      launch->beginsEarly =
          std::holds_alternative<LaunchKernel>(commands[i - 1]);
}

Status CUDAExecutable::resolve(const artifact::Entry &entry) {
  ReadyEntry &ready = entries.emplace_back();
  ready.firstReduction = reductions ? reductions->count() : 0;
  for (const artifact::Command *command : *entry.commands()) {
    // Without memory there are no addresses before some are bound.
    if (!options.externalMemory) {
      Result<Command> resolved = resolve(*command);
      if (!resolved)
        return Error{describeCommand(source.root(), ready.commands.size(),
                                     *command, resolved.message())};
      const auto *copy = std::get_if<CopyMemory>(&*resolved);
      if (std::holds_alternative<InitializeTensor>(*resolved) ||
          (copy && copy->isUpload))
        ready.mayCapture = false;
      ready.commands.push_back(std::move(*resolved));
    }
    if (options.checkFinite) {
      ready.results.push_back(floatOutputs(source.root(), *command));
      ready.selections.push_back(
          selectionInputs(source.root(), entry, *command));
    }
  }
  if (!options.profile && !options.checkFinite &&
      mayOverlap(source.root(), entry))
    overlapLaunches(ready.commands);
  if (reductions) {
    ready.numReductions = reductions->count() - ready.firstReduction;
    markWaits(ready.commands);
  }
  size_t count = entry.commands()->size();
  ready.nanoseconds.resize(count);
  ready.lastRun.resize(count);
  while (options.profile && ready.events.size() <= count)
    NSA_RETURN_IF_ERROR(gpu->driver().check(
        gpu->driver().EventCreate(&ready.events.emplace_back(), 0),
        "cuEventCreate"));
  if (options.poison)
    ready.poisoned = slicesToPoison(source.root(), entry);
  return options.externalMemory
             ? Status()
             : prepareTransfers(entry, none, ready.transfers);
}

Status CUDAExecutable::prepareTransfers(const artifact::Entry &entry,
                                        const Bindings &bindings,
                                        Transfers &transfers) {
  std::set<uint32_t> inputs(entry.inputs()->begin(), entry.inputs()->end());
  std::vector<Slice> in, out;
  auto add = [&](std::vector<Slice> &list, const Slice &slice) {
    if (!bindings.find(slice))
      list.push_back(slice);
  };
  for (uint32_t input : inputs)
    add(in, *source->tensors()->Get(input)->slice());
  for (uint32_t output : *entry.outputs()) {
    const artifact::Tensor &tensor = *source->tensors()->Get(output);
    if (tensor.role() == TensorRole::Output)
      add(out, *tensor.slice());
  }
  return transfers.prepare(*gpu, *memory, in, out);
}

/// The commands of an entry with the addresses that follow from the bindings of
/// now; matmuls are those that were planned, if they were.
Result<std::vector<Command>>
CUDAExecutable::rebind(const artifact::Entry &entry, const ReadyEntry &ready) {
  std::vector<Command> commands;
  commands.reserve(entry.commands()->size());
  for (unsigned i = 0; i < entry.commands()->size(); ++i) {
    const artifact::Command &command = *entry.commands()->Get(i);
    const artifact::Gemm *gemm = command.action_as_Gemm();
    if (gemm && i < ready.commands.size()) {
      unsigned plan = std::get<RunGemm>(ready.commands[i]).plan;
      commands.emplace_back(RunGemm{plan, memoryOf(*gemm)});
      continue;
    }
    Result<Command> resolved = resolve(command);
    if (!resolved)
      return Error{
          describeCommand(source.root(), i, command, resolved.message())};
    commands.push_back(std::move(*resolved));
  }
  return commands;
}

namespace {
/// An address in a command, and the slice that begins there.
struct Operand {
  DevicePtr *address;
  const Slice *slice;
};
} // namespace

static std::vector<Operand> operandsOf(const artifact::Artifact &root,
                                       const artifact::Command &described,
                                       Command &command) {
  std::vector<Operand> operands;
  if (auto *launch = std::get_if<LaunchKernel>(&command)) {
    const artifact::Launch &own = *described.action_as_Launch();
    bool takesExtents = root.kernels()->Get(own.kernel())->takes_extents();
    for (unsigned i = 0; i < launch->arguments.size(); ++i)
      if (const Slice *slice = own.operands()->Get(i);
          !takesExtents || slice->size() != 0)
        operands.push_back({&launch->arguments[i], slice});
  } else if (auto *gemm = std::get_if<RunGemm>(&command)) {
    const artifact::Gemm &own = *described.action_as_Gemm();
    MatmulMemory &memory = gemm->memory;
    operands = {{&memory.lhs, own.lhs()},
                {&memory.rhs, own.rhs()},
                {&memory.out, own.out()}};
    if (own.workspace())
      operands.push_back({&memory.workspace, own.workspace()});
    if (own.addend())
      operands.push_back({&memory.addend, own.addend()});
  } else if (auto *fill = std::get_if<FillMemory>(&command)) {
    operands = {{&fill->out, described.action_as_Fill()->out()}};
  } else if (auto *copy = std::get_if<CopyMemory>(&command)) {
    const artifact::Copy &own = *described.action_as_Copy();
    operands = {{&copy->source, own.source()}, {&copy->out, own.out()}};
  }
  return operands;
}

std::vector<Relocation>
CUDAExecutable::findRelocations(const artifact::Entry &entry,
                                const Bindings &bindings,
                                std::vector<Command> &commands) const {
  std::vector<Relocation> found;
  for (unsigned i = 0; i < commands.size(); ++i)
    for (const Operand &operand :
         operandsOf(source.root(), *entry.commands()->Get(i), commands[i]))
      if (std::optional<Bindings::Place> place =
              bindings.locate(*operand.slice))
        found.push_back({operand.address, place->range, place->offset});
  return found;
}

/// Gives commands the addresses of bindings of the same tensors.
Status CUDAExecutable::relocate(const artifact::Entry &entry,
                                const Bindings &bindings,
                                ReadyEntry &ready) const {
  for (const Relocation &relocation : ready.relocations)
    *relocation.address =
        reinterpret_cast<DevicePtr>(bindings.address(relocation.range)) +
        relocation.offset;
  for (unsigned i = 0; i < ready.commands.size(); ++i) {
    auto *launch = std::get_if<LaunchKernel>(&ready.commands[i]);
    if (!launch || launch->maps.empty())
      continue;
    const artifact::Command &described = *entry.commands()->Get(i);
    const artifact::Kernel &kernel =
        *source->kernels()->Get(described.action_as_Launch()->kernel());
    if (Status status = encodeTensorMaps(gpu->driver(), kernel,
                                         launch->arguments, launch->maps);
        !status)
      return Error{
          describeCommand(source.root(), i, described, status.message())};
  }
  return {};
}

/// Resolves the commands for bindings of other tensors than before.
Status CUDAExecutable::resolveBound(const artifact::Entry &entry,
                                    const Bindings &bindings,
                                    ReadyEntry &ready) {
  NSA_RETURN_IF_ERROR(
      bindings.check(source.root(), entry, options.externalMemory));
  Transfers transfers;
  NSA_RETURN_IF_ERROR(prepareTransfers(entry, bindings, transfers));
  // Copies of earlier runs may be on their way.
  NSA_RETURN_IF_ERROR(wait());
  bound = &bindings;
  Result<std::vector<Command>> commands = rebind(entry, ready);
  bound = &none;
  if (!commands)
    return commands.takeError();
  ready.transfers = std::move(transfers);
  ready.commands = std::move(*commands);
  ready.relocations = findRelocations(entry, bindings, ready.commands);
  return {};
}

Status CUDAExecutable::bind(unsigned index, const Bindings &bindings) {
  ReadyEntry &entry = entries[index];
  if (entry.bindings == bindings)
    return {};
  if (reductions)
    return Error{"a program of several ranks runs on its own memory only"};
  CurrentGPU current(*gpu);
  const artifact::Entry &described = *source->entries()->Get(index);
  if (!entry.bindings.coversSame(bindings)) {
    if (Status status = resolveBound(described, bindings, entry); !status)
      return status;
  } else if (Status status = relocate(described, bindings, entry); !status) {
    // Existing bindings stay.
    (void)relocate(described, entry.bindings, entry);
    return status;
  }
  entry.bindings = bindings;
  if (entry.graph)
    gpu->driver().GraphExecDestroy(entry.graph);
  entry.graph = nullptr;
  entry.runs = 0;
  return {};
}

/// Extents of a call can make a grid too large, or empty.
static Status checkGrid(const artifact::Kernel &kernel) {
  constexpr uint32_t most = 65535;
  for (uint32_t extent : {kernel.grid_y(), kernel.grid_z()})
    if (extent > most)
      return Error{"needs " + std::to_string(extent) +
                   " programs along an axis of its grid, more than the " +
                   std::to_string(most) + " that CUDA has"};
  return {};
}

Result<Command> CUDAExecutable::resolve(const artifact::Launch &launch) const {
  const artifact::Kernel &kernel = *source->kernels()->Get(launch.kernel());
  NSA_RETURN_IF_ERROR(checkGrid(kernel));
  LaunchKernel command;
  command.function = kernels[launch.kernel()];
  command.grid = {kernel.grid_x(), kernel.grid_y(), kernel.grid_z()};
  if (command.grid[0] == 0 || command.grid[1] == 0 || command.grid[2] == 0)
    return Command(PassOver{});
  command.threads = kernel.threads();
  command.sharedBytes = kernel.shared_bytes();
  bool takesExtents = kernel.takes_extents();
  for (const Slice *slice : *launch.operands())
    command.arguments.push_back(
        takesExtents && slice->size() == 0 ? memory->empty() : address(*slice));
  if (takesExtents)
    command.extents.assign(source->extents()->values()->begin(),
                           source->extents()->values()->end());
  command.maps.resize(kernel.tensor_maps() ? kernel.tensor_maps()->size() : 0);
  NSA_RETURN_IF_ERROR(
      encodeTensorMaps(gpu->driver(), kernel, command.arguments, command.maps));
  return Command(std::move(command));
}

Result<Command> CUDAExecutable::resolve(const artifact::Gemm &gemm) {
  if (gemm.lhs_type() != gemm.rhs_type())
    return Error{std::string("a matmul of ") + typeName(gemm.lhs_type()) +
                 " and " + typeName(gemm.rhs_type()) +
                 " has no counterpart in cuBLASLt"};
  NSA_ASSIGN_OR_RETURN(
      unsigned plan,
      blas->plan({int64_t(gemm.m()), int64_t(gemm.n()), int64_t(gemm.k()),
                  gemm.transpose_lhs(), gemm.transpose_rhs(), gemm.lhs_type(),
                  gemm.out_type(), gemm.beta(),
                  gemm.workspace() ? gemm.workspace()->size() : 0, gemm.alpha(),
                  int32_t(gemm.batch())}));
  return Command(RunGemm{plan, memoryOf(gemm)});
}

MatmulMemory CUDAExecutable::memoryOf(const artifact::Gemm &gemm) const {
  return {address(*gemm.lhs()), address(*gemm.rhs()), address(*gemm.out()),
          gemm.workspace() ? address(*gemm.workspace()) : 0,
          gemm.addend() ? address(*gemm.addend()) : 0};
}

Result<Command> CUDAExecutable::resolve(const artifact::Fill &fill) const {
  return makeFill(fill.type(), fill.value(), address(*fill.out()),
                  fill.out()->size());
}

Result<Command> CUDAExecutable::resolve(const artifact::Copy &copy) const {
  const Slice &from = *copy.source();
  bool isUpload = source->segments()->Get(from.segment())->kind() ==
                  artifact::SegmentKind::Host;
  return Command(CopyMemory{
      isUpload ? reinterpret_cast<DevicePtr>(memory->mirror(from))
               : address(from),
      address(*copy.out()), rangesOf(source.root(), copy, rank()), isUpload});
}

Result<Command>
CUDAExecutable::resolve(const artifact::Initialize &initialize) const {
  const artifact::Tensor &tensor = *source->tensors()->Get(initialize.tensor());
  return Command(InitializeTensor{&tensor});
}

Result<Command>
CUDAExecutable::resolve(const artifact::CollectiveStart &start) {
  if (!reductions)
    return Command(PassOver{});
  const Slice &slice = *start.memory(), *rows = start.rows();
  NSA_ASSIGN_OR_RETURN(
      unsigned number,
      reductions->add({start.kind(), address(slice),
                       slice.size() / elementBytes(start.type()), start.type(),
                       start.sequences(), rows ? address(*rows) : 0,
                       rows ? rows->size() / (2 * start.sequences()) : 0},
                      start.grouped(), options.profile));
  running.emplace_back(slice, number);
  return start.grouped() ? Command(PassOver{})
                         : Command(StartReduction{number});
}

/// The reader has checked that every reduction ends once.
Command CUDAExecutable::resolve(const artifact::CollectiveDone &done) {
  if (!reductions)
    return PassOver{};
  auto isSame = [&](const auto &entry) {
    return address(entry.first) == address(*done.memory());
  };
  auto found = std::find_if(running.begin(), running.end(), isSame);
  unsigned number = found->second;
  running.erase(found);
  return FinishReduction{number, number, false};
}

Result<Command> CUDAExecutable::resolve(const artifact::Command &command) {
  if (const auto *launch = command.action_as_Launch())
    return resolve(*launch);
  if (const auto *gemm = command.action_as_Gemm())
    return resolve(*gemm);
  if (const auto *fill = command.action_as_Fill())
    return resolve(*fill);
  if (const auto *copy = command.action_as_Copy())
    return resolve(*copy);
  if (const auto *start = command.action_as_CollectiveStart())
    return resolve(*start);
  if (const auto *done = command.action_as_CollectiveDone())
    return resolve(*done);
  return resolve(*command.action_as_Initialize());
}
