//===- RTEntry.cpp - entries and the lifetimes of their buffers -----------===//

#include "dialects/RT/RTOps.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace nsa::rt;

SmallVector<CommandOpInterface> nsa::rt::getCommands(EntryOp entry) {
  return llvm::to_vector(entry.getBody().getOps<CommandOpInterface>());
}

SmallVector<Lifetime> nsa::rt::getLifetimes(EntryOp entry) {
  llvm::SmallMapVector<Value, Lifetime, 16> lifetimes;
  for (auto [number, command] : llvm::enumerate(getCommands(entry))) {
    SmallVector<Value> touched;
    command.getReads(touched);
    command.getWrites(touched);
    for (Value value : touched) {
      Value root = getMemoryRoot(value);
      auto buffer = root.getDefiningOp<BufferOp>();
      if (!buffer)
        continue;
      unsigned at = number;
      auto inserted = lifetimes.insert({root, Lifetime{buffer, at, at}});
      inserted.first->second.last = at;
    }
  }
  return llvm::map_to_vector(lifetimes,
                             [](auto &entry) { return entry.second; });
}

bool nsa::rt::conflict(CommandOpInterface a, CommandOpInterface b) {
  auto overlap = [](Value value, Value other) {
    return getMemoryRegion(value).overlaps(getMemoryRegion(other)) ||
           shareTensors(value, other);
  };
  for (auto [writer, other] : {std::pair(a, b), std::pair(b, a)}) {
    SmallVector<Value> written, touched;
    writer.getWrites(written);
    other.getReads(touched);
    other.getWrites(touched);
    for (Value value : written)
      if (llvm::any_of(touched, [&](Value use) { return overlap(value, use); }))
        return true;
  }
  return false;
}

//===----------------------------------------------------------------------===//
// Verification
//===----------------------------------------------------------------------===//

static LogicalResult verifyTensors(EntryOp entry,
                                   SymbolTableCollection &symbols,
                                   ArrayAttr names, TensorRole role) {
  for (Attribute attribute : names) {
    auto name = cast<FlatSymbolRefAttr>(attribute);
    auto tensor = symbols.lookupNearestSymbolFrom<TensorOp>(entry, name);
    if (!tensor)
      return entry.emitOpError("names ") << name << ", which is not a tensor";
    if (tensor.getRole() != role)
      return entry.emitOpError("lists tensor ")
             << name << " as " << stringifyTensorRole(role)
             << ", but its role is " << stringifyTensorRole(tensor.getRole());
  }
  return success();
}

LogicalResult EntryOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (failed(verifyTensors(*this, symbols, getInputs(), TensorRole::Input)))
    return failure();
  return verifyTensors(*this, symbols, getOutputs(), TensorRole::Output);
}

namespace {
/// The commands that touch one buffer: what they write and what they read.
struct BufferUses {
  struct Use {
    unsigned command;
    MemoryRegion region;
  };
  SmallVector<Use, 2> writes, reads;

  bool isWritten(const MemoryRegion &region) const {
    return cover(
        llvm::map_to_vector(writes, [](const Use &use) { return use.region; }),
        region);
  }
  /// The last use of something in the region.
  static std::optional<unsigned> findLast(ArrayRef<Use> uses,
                                          const MemoryRegion &region) {
    for (const Use &use : llvm::reverse(uses))
      if (use.region.overlaps(region))
        return use.command;
    return std::nullopt;
  }
};
} // namespace

/// Memory of a buffer holds one value, updated in place or not, until its last
/// reader.
static LogicalResult verifyOrder(ArrayRef<CommandOpInterface> commands) {
  DenseMap<Value, BufferUses> uses;
  struct Overwrite {
    MemoryRegion region;
    unsigned writer, before;
  };
  SmallVector<Overwrite> overwrites;
  for (auto [number, constCommand] : llvm::enumerate(commands)) {
    CommandOpInterface command = constCommand;
    SmallVector<Value> reads, writes;
    command.getReads(reads);
    command.getWrites(writes);
    SmallVector<MemoryRegion> readRegions =
        llvm::map_to_vector(reads, getMemoryRegion);
    for (const MemoryRegion &region : readRegions) {
      auto buffer = region.root.getDefiningOp<BufferOp>();
      if (!buffer || buffer.getType().getNumElements() == 0)
        continue;
      BufferUses &use = uses[region.root];
      if (!use.isWritten(region))
        return command->emitOpError("reads a buffer that no command before "
                                    "command ")
               << number << " writes";
      use.reads.push_back({unsigned(number), region});
    }
    for (Value value : writes) {
      MemoryRegion region = getMemoryRegion(value);
      if (!region.root.getDefiningOp<BufferOp>())
        continue;
      BufferUses &use = uses[region.root];
      std::optional<unsigned> writer = BufferUses::findLast(use.writes, region);
      if (writer && *writer != number && !cover(readRegions, region))
        overwrites.push_back({region, *writer, unsigned(number)});
      use.writes.push_back({unsigned(number), region});
    }
  }
  for (const Overwrite &overwrite : overwrites) {
    std::optional<unsigned> reader = BufferUses::findLast(
        uses[overwrite.region.root].reads, overwrite.region);
    if (!reader || *reader < overwrite.before)
      continue;
    CommandOpInterface command = commands[overwrite.before];
    InFlightDiagnostic diagnostic = command->emitOpError("overwrites a buffer ")
                                    << "before its last reader: command "
                                    << overwrite.writer << " wrote it, command "
                                    << *reader << " reads it";
    diagnostic.attachNote(commands[*reader]->getLoc())
        << "the last reader is here";
    return diagnostic;
  }
  return success();
}

/// Buffers that share bytes are not alive at the same time.
static LogicalResult verifyPlacement(EntryOp entry) {
  SmallVector<Lifetime> lifetimes = getLifetimes(entry);
  llvm::erase_if(lifetimes, [](const Lifetime &lifetime) {
    BufferOp buffer = lifetime.buffer;
    return !buffer.getSlice() || buffer.getSlice()->getSize() == 0;
  });
  for (auto [index, lifetime] : llvm::enumerate(lifetimes)) {
    BufferOp buffer = lifetime.buffer;
    SliceAttr slice = *buffer.getSlice();
    if (auto live = buffer.getLive();
        live && (live->getFirst() != lifetime.first ||
                 live->getLast() != lifetime.last))
      return buffer.emitOpError("is said to live from command ")
             << live->getFirst() << " to " << live->getLast()
             << ", but its users are commands " << lifetime.first << " to "
             << lifetime.last;
    for (const Lifetime &other : ArrayRef(lifetimes).drop_front(index + 1)) {
      if (other.first > lifetime.last)
        break;
      BufferOp otherBuffer = other.buffer;
      SliceAttr otherSlice = *otherBuffer.getSlice();
      uint64_t begin = std::max(slice.getOffset(), otherSlice.getOffset());
      uint64_t end = std::min(slice.getEnd(), otherSlice.getEnd());
      if (slice.getSegment() != otherSlice.getSegment() || begin >= end)
        continue;
      InFlightDiagnostic diagnostic =
          otherBuffer.emitOpError("is overwritten before its last reader: it "
                                  "shares bytes ")
          << begin << " to " << end - 1 << " from command " << other.first
          << " on with a buffer that lives from command " << lifetime.first
          << " to " << lifetime.last;
      diagnostic.attachNote(buffer.getLoc()) << "the other buffer is here";
      return diagnostic;
    }
  }
  return success();
}

/// Every collective ends, and nothing writes its memory, or touches what it
/// writes, before that. Grouped ones begin together.
static LogicalResult verifyCollectives(ArrayRef<CommandOpInterface> commands) {
  llvm::SmallMapVector<Value, CollectiveStartOp, 8> running;
  CollectiveStartOp grouped;
  for (CommandOpInterface command : commands) {
    auto start = dyn_cast<CollectiveStartOp>(command.getOperation());
    if (grouped && (!start || start.getKind() != grouped.getKind()))
      return grouped.emitOpError("is grouped with the next command, which is "
                                 "not the start of its kind");
    grouped = start && start.getGrouped() ? start : CollectiveStartOp();
    if (auto done = dyn_cast<CollectiveDoneOp>(command.getOperation())) {
      CollectiveStartOp started = running.lookup(done.getMemory());
      if (!started || started.getRows() != done.getRows())
        return command->emitOpError("ends a collective that did not start");
      running.erase(done.getMemory());
      continue;
    }
    for (auto [memory, started] : running)
      if (conflict(command, started)) {
        InFlightDiagnostic diagnostic =
            command->emitOpError("touches memory that all ranks work on");
        diagnostic.attachNote(started.getLoc()) << "that starts here";
        return diagnostic;
      }
    if (start)
      running[start.getMemory()] = start;
  }
  if (!running.empty())
    return running.front().second.emitOpError("has no rt.collective_done");
  return success();
}

LogicalResult EntryOp::verifyRegions() {
  for (Operation &op : getBody().front())
    if (!isa<CommandOpInterface, GetOp, FlatViewOp, BufferOp, ViewOp>(op))
      return op.emitOpError("is not a command of an entry");
  SmallVector<CommandOpInterface> commands = getCommands(*this);
  if (failed(verifyOrder(commands)) || failed(verifyCollectives(commands)))
    return failure();
  return verifyPlacement(*this);
}
