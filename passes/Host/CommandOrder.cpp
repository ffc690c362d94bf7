//===- CommandOrder.cpp - orders of an entry's commands -------------------===//

#include "passes/Host/CommandOrder.h"

#include "llvm/ADT/SetVector.h"
#include <set>

using namespace mlir;
using namespace nsa;

CommandGraph::CommandGraph(ArrayRef<rt::CommandOpInterface> commands) {
  DenseMap<const void *, unsigned> numbers;
  auto getNumber = [&](const void *key, uint64_t bytes) {
    auto [it, inserted] = numbers.try_emplace(key, memories.size());
    if (inserted)
      memories.push_back({bytes, /*numUsers=*/0});
    return it->second;
  };
  // Every `rt.get` of a tensor is the same memory, also in a flat view.
  auto addAccesses = [&](SmallVectorImpl<Access> &list, Value value,
                         bool writes) {
    Value root = rt::getMemoryRoot(value);
    if (auto get = root.getDefiningOp<rt::GetOp>())
      return addAccess(
          list, getNumber(get.getTensorAttr().getAsOpaquePointer(), 0), writes);
    if (auto view = root.getDefiningOp<rt::FlatViewOp>()) {
      for (Attribute tensor : view.getTensors())
        addAccess(list, getNumber(tensor.getAsOpaquePointer(), 0), writes);
      return;
    }
    uint64_t bytes = rt::getByteSize(cast<MemRefType>(root.getType()));
    addAccess(list, getNumber(root.getAsOpaquePointer(), bytes), writes);
  };
  for (rt::CommandOpInterface command : commands) {
    SmallVector<Value> reads, writes;
    command.getReads(reads);
    command.getWrites(writes);
    SmallVector<Access, 4> list;
    for (Value value : reads)
      addAccesses(list, value, /*writes=*/false);
    for (Value value : writes)
      addAccesses(list, value, /*writes=*/true);
    for (const Access &access : list)
      ++memories[access.memory].numUsers;
    accesses.push_back(std::move(list));
  }
  addEdges();
}

void CommandGraph::addAccess(SmallVectorImpl<Access> &list, unsigned memory,
                             bool writes) {
  for (Access &access : list)
    if (access.memory == memory) {
      (writes ? access.writes : access.reads) = true;
      return;
    }
  list.push_back({memory, !writes, writes});
}

void CommandGraph::addEdges() {
  std::vector<llvm::SetVector<unsigned>> edges(size());
  struct State {
    std::optional<unsigned> writer;
    SmallVector<unsigned> readers;
  };
  std::vector<State> states(memories.size());
  for (unsigned command = 0; command < size(); ++command) {
    for (const Access &access : accesses[command]) {
      State &state = states[access.memory];
      if (state.writer)
        edges[*state.writer].insert(command);
      if (access.writes) {
        for (unsigned reader : state.readers)
          edges[reader].insert(command);
        state.readers.clear();
        state.writer = command;
      } else {
        state.readers.push_back(command);
      }
    }
  }
  successors.resize(size());
  numPredecessors.assign(size(), 0);
  for (unsigned command = 0; command < size(); ++command)
    for (unsigned successor : edges[command]) {
      successors[command].push_back(successor);
      ++numPredecessors[successor];
    }
}

uint64_t CommandGraph::getPeak(ArrayRef<unsigned> order) const {
  std::vector<unsigned> remaining(memories.size());
  for (auto [index, memory] : llvm::enumerate(memories))
    remaining[index] = memory.numUsers;
  uint64_t live = 0, peak = 0;
  for (unsigned command : order) {
    for (const Access &access : accesses[command])
      if (remaining[access.memory] == memories[access.memory].numUsers)
        live += memories[access.memory].bytes;
    peak = std::max(peak, live);
    for (const Access &access : accesses[command])
      if (--remaining[access.memory] == 0)
        live -= memories[access.memory].bytes;
  }
  return peak;
}

SmallVector<unsigned> CommandGraph::listGreedily(unsigned lookAhead) const {
  std::vector<unsigned> remaining(memories.size());
  for (auto [index, memory] : llvm::enumerate(memories))
    remaining[index] = memory.numUsers;
  auto getGrowth = [&](unsigned command) {
    int64_t growth = 0;
    for (const Access &access : accesses[command]) {
      const Memory &memory = memories[access.memory];
      if (remaining[access.memory] == memory.numUsers)
        growth += memory.bytes;
      if (remaining[access.memory] == 1)
        growth -= memory.bytes;
    }
    return growth;
  };

  std::vector<unsigned> waiting = numPredecessors;
  std::set<unsigned> ready;
  for (unsigned command = 0; command < size(); ++command)
    if (waiting[command] == 0)
      ready.insert(command);
  SmallVector<unsigned> order;
  std::vector<bool> listed(size(), false);
  unsigned first = 0;
  while (!ready.empty()) {
    while (listed[first])
      ++first;
    unsigned best = *ready.begin();
    int64_t bestGrowth = getGrowth(best);
    for (unsigned command : ready) {
      if (command - first >= lookAhead)
        break;
      int64_t growth = getGrowth(command);
      if (growth < bestGrowth) {
        best = command;
        bestGrowth = growth;
      }
    }
    ready.erase(best);
    listed[best] = true;
    order.push_back(best);
    for (const Access &access : accesses[best])
      --remaining[access.memory];
    for (unsigned successor : successors[best])
      if (--waiting[successor] == 0)
        ready.insert(successor);
  }
  return order;
}

std::vector<SmallVector<int, 4>>
CommandGraph::getWriters(ArrayRef<unsigned> order) const {
  std::vector<int> last(memories.size(), -1);
  std::vector<SmallVector<int, 4>> writers(size());
  for (unsigned command : order) {
    for (const Access &access : accesses[command])
      if (access.reads)
        writers[command].push_back(last[access.memory]);
    for (const Access &access : accesses[command])
      if (access.writes)
        last[access.memory] = command;
  }
  // What is left in memory at the end counts as read by the caller.
  writers.emplace_back(last.begin(), last.end());
  return writers;
}

std::optional<unsigned>
CommandGraph::findMisorder(ArrayRef<unsigned> order) const {
  auto before = llvm::to_vector(llvm::seq<unsigned>(0, size()));
  auto expected = getWriters(before), found = getWriters(order);
  for (unsigned command = 0; command <= size(); ++command)
    if (expected[command] != found[command])
      return command;
  return std::nullopt;
}
