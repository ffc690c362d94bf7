//===- ResolveCommands.cpp - entries with addresses on a GPU --------------===//

#include "lib/Support/Text.h"
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
    Result<PageMemory> buffer = PageMemory::allocate(most);
    if (!buffer)
      return buffer.takeError();
    checked = std::move(*buffer);
  }
  return wait();
}

/// Notes which ends of reductions are the first and the last.
static void markWaits(std::vector<Command> &commands) {
  FinishReduction *last = nullptr;
  for (Command &command : commands)
    if (auto *finish = std::get_if<FinishReduction>(&command)) {
      finish->isFirst = !last;
      last = finish;
    }
  if (last)
    last->isLast = true;
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
      if (std::holds_alternative<InitializeTensor>(*resolved))
        ready.mayCapture = false;
      ready.commands.push_back(std::move(*resolved));
    }
    if (options.checkFinite) {
      ready.results.push_back(floatOutputs(source.root(), *command));
      ready.selections.push_back(
          selectionInputs(source.root(), entry, *command));
    }
  }
  if (reductions) {
    ready.numReductions = reductions->count() - ready.firstReduction;
    markWaits(ready.commands);
  }
  size_t count = entry.commands()->size();
  ready.nanoseconds.resize(count);
  ready.lastRun.resize(count);
  while (options.profile && ready.events.size() <= count)
    if (Status status = gpu->driver().check(
            gpu->driver().EventCreate(&ready.events.emplace_back(), 0),
            "cuEventCreate");
        !status)
      return status;
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

/// The commands of an entry with the addresses that follow from other bindings;
/// products are those that were planned, if they were.
Result<std::vector<Command>>
CUDAExecutable::rebind(const artifact::Entry &entry, const ReadyEntry &ready) {
  std::vector<Command> commands;
  commands.reserve(entry.commands()->size());
  for (unsigned i = 0; i < entry.commands()->size(); ++i) {
    const artifact::Command &command = *entry.commands()->Get(i);
    bool isPlanned = command.action_as_Gemm() && i < ready.commands.size();
    Result<Command> resolved =
        isPlanned ? Result<Command>(ready.commands[i]) : resolve(command);
    if (!resolved)
      return Error{
          describeCommand(source.root(), i, command, resolved.message())};
    commands.push_back(std::move(*resolved));
  }
  for (unsigned i = 0; i < commands.size(); ++i)
    if (const auto *planned = std::get_if<RunGemm>(&commands[i])) {
      const auto &gemm = *entry.commands()->Get(i)->action_as_Gemm();
      blas->setOperands(planned->plan, address(*gemm.lhs()),
                        address(*gemm.rhs()), address(*gemm.out()));
    }
  return commands;
}

Status CUDAExecutable::bind(unsigned index, const Bindings &bindings) {
  ReadyEntry &entry = entries[index];
  if (entry.bindings == bindings)
    return {};
  if (reductions)
    return Error{"a program of several ranks runs on its own memory only"};
  CurrentGPU current(*gpu);
  const artifact::Entry &described = *source->entries()->Get(index);
  Transfers transfers;
  bool isSameSet = entry.bindings.coversSame(bindings);
  if (!isSameSet) {
    if (Status status =
            bindings.check(source.root(), described, options.externalMemory);
        !status)
      return status;
    if (Status status = prepareTransfers(described, bindings, transfers);
        !status)
      return status;
    // Copies of earlier runs may be on their way.
    if (Status status = wait(); !status)
      return status;
  }
  bound = &bindings;
  Result<std::vector<Command>> commands = rebind(described, entry);
  bound = &none;
  if (!commands)
    return commands.takeError();
  if (!isSameSet)
    entry.transfers = std::move(transfers);
  entry.commands = std::move(*commands);
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
  if (Status status = checkGrid(kernel); !status)
    return Error{status.message()};
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
  Result<std::vector<TensorMap>> maps =
      encodeTensorMaps(gpu->driver(), kernel, command.arguments);
  if (!maps)
    return maps.takeError();
  command.maps = std::move(*maps);
  return Command(std::move(command));
}

Result<Command> CUDAExecutable::resolve(const artifact::Gemm &gemm) {
  if (gemm.lhs_type() != gemm.rhs_type())
    return Error{std::string("a product of ") + typeName(gemm.lhs_type()) +
                 " and " + typeName(gemm.rhs_type()) +
                 " has no counterpart in cuBLASLt"};
  Result<unsigned> plan = blas->plan(
      {int64_t(gemm.m()), int64_t(gemm.n()), int64_t(gemm.k()),
       gemm.transpose_lhs(), gemm.transpose_rhs(), gemm.lhs_type(),
       gemm.out_type(), gemm.beta(), address(*gemm.lhs()), address(*gemm.rhs()),
       address(*gemm.out()), gemm.workspace() ? address(*gemm.workspace()) : 0,
       gemm.workspace() ? gemm.workspace()->size() : 0});
  if (!plan)
    return plan.takeError();
  return Command(RunGemm{*plan});
}

Result<Command> CUDAExecutable::resolve(const artifact::Fill &fill) const {
  return makeFill(fill.type(), fill.value(), address(*fill.out()),
                  fill.out()->size());
}

Result<Command> CUDAExecutable::resolve(const artifact::Copy &copy) const {
  CopyBytes bytes = bytesOf(copy, options.ranks ? options.ranks->rank() : 0);
  return Command(CopyMemory{address(*copy.source()) + bytes.sourceOffset,
                            address(*copy.out()) + bytes.outOffset,
                            bytes.count});
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
  const Slice &slice = *start.memory();
  Result<unsigned> number =
      reductions->add(start.kind(), address(slice), slice.size(), start.type(),
                      options.profile);
  if (!number)
    return number.takeError();
  running.emplace_back(slice, *number);
  return Command(StartReduction{*number});
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
  return FinishReduction{number, false, false};
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
