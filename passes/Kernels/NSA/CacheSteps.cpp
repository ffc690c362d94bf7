//===- CacheSteps.cpp - all that a step writes to caches at once ----------===//
//
// The rows of a new token, rotated or compressed with earlier ones, are written
// to all caches of a layer in one launch.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/NSA/Caches.h"

#include <vector>

using namespace mlir;
using namespace nsa;

namespace {
/// Independent parts, and the operations that they replace.
class CacheStepGroups {
public:
  CacheStepGroups(Block &block, KernelCache &cache)
      : block(block), cache(cache) {}

  void run();

private:
  struct Part {
    LaunchPart part;
    SmallVector<Value> results;
    /// In the order of the block.
    SmallVector<Operation *> ops;
  };

  std::optional<Part> makePart(Operation *op);
  void add(Part part);
  void launch();
  bool needsParts(ValueRange values) const;

  Block &block;
  KernelCache &cache;
  std::vector<Part> parts;
  /// Operations of parts, and those that need what parts compute.
  DenseSet<Operation *> own;
  SmallVector<Operation *> after;
  DenseSet<Operation *> isLater;
};
} // namespace

/// The part that ends with `op`. What is rotated or compressed on the way to a
/// cache has no part of its own.
std::optional<CacheStepGroups::Part> CacheStepGroups::makePart(Operation *op) {
  if (auto append = dyn_cast<CacheAppendOp>(op)) {
    if (auto row = CompressedRow::match(append)) {
      Part part{row->getPart(),
                {row->tokens.getUpdated(), append.getUpdated()},
                {row->tokens, row->read, row->compress}};
      if (row->rotary)
        part.ops.push_back(row->rotary);
      part.ops.push_back(append);
      return part;
    }
    auto rotary = getOnly<RotaryAtOp>(append.getRow());
    if (rotary && rotary.getIndex() != append.getIndex())
      rotary = {};
    Part part{appendRow(append, rotary), {append.getUpdated()}, {}};
    if (rotary)
      part.ops.push_back(rotary);
    part.ops.push_back(append);
    return part;
  }
  auto rotary = dyn_cast<RotaryAtOp>(op);
  if (!rotary)
    return std::nullopt;
  return Part{rotateRow(rotary), {rotary.getOutput()}, {rotary}};
}

/// Whether a value follows from what parts compute.
bool CacheStepGroups::needsParts(ValueRange values) const {
  return llvm::any_of(values, [&](Value value) {
    Operation *source = value.getDefiningOp();
    return source && (own.contains(source) || isLater.contains(source));
  });
}

void CacheStepGroups::add(Part part) {
  own.insert(part.ops.begin(), part.ops.end());
  parts.push_back(std::move(part));
}

/// Launches the parts where the last of them ends, and moves their users after
/// that.
void CacheStepGroups::launch() {
  if (parts.empty())
    return;
  Operation *last = parts.back().ops.back();
  OpBuilder builder(last);
  std::vector<LaunchPart> launches;
  launches.reserve(parts.size());
  for (Part &part : parts)
    launches.push_back(part.part);
  auto results = launchTogether(cache, builder, last, "step", launches);
  Operation *place = last;
  for (Operation *op : after) {
    if (op->isBeforeInBlock(last)) {
      op->moveAfter(place);
      place = op;
    }
  }
  SmallVector<Operation *> done;
  for (auto [part, values] : llvm::zip_equal(parts, results)) {
    for (auto [before, after] : llvm::zip_equal(part.results, values))
      before.replaceAllUsesWith(after);
    llvm::append_range(done, part.ops);
  }
  for (Operation *op : llvm::reverse(done))
    op->erase();
  parts.clear();
  own.clear();
  after.clear();
  isLater.clear();
}

void CacheStepGroups::run() {
  // Producers of a cache's row belong to the part that ends there.
  DenseMap<Operation *, Operation *> ends;
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator()) {
    ops.push_back(&op);
    if (isa<CacheAppendOp>(op))
      if (std::optional<Part> part = makePart(&op))
        for (Operation *inner : part->ops)
          ends[inner] = &op;
  }
  for (Operation *op : ops) {
    Operation *end = ends.lookup(op);
    if (end && end != op)
      continue;
    std::optional<Part> part = makePart(op);
    bool needsOthers =
        part ? needsParts(part->part.inputs) : needsParts(op->getOperands());
    if (part) {
      if (needsOthers) {
        launch();
        part = makePart(op);
      }
      add(std::move(*part));
      continue;
    }
    if (needsOthers) {
      after.push_back(op);
      isLater.insert(op);
    }
  }
  launch();
}

void nsa::launchCacheSteps(Block &block, KernelCache &cache) {
  CacheStepGroups(block, cache).run();
}
