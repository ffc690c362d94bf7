//===- CacheSteps.cpp - all that a step writes to caches at once ----------===//
//
// The rows of a new token, rotated or compressed with earlier ones, are written
// to all caches of a layer in one launch.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/NSA/CacheSteps.h"
#include "dialects/NSA/NSAOps.h"
#include "passes/Kernels/NSA/AttentionKernels.h"
#include "passes/Kernels/Rotation.h"

#include <vector>

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// The slot of row `index` in a cache of `rows` rows, -1 of none.
static Expr getPlace(Expr index, int64_t rows) {
  return select(index >= 0, index % static_cast<double>(rows), -1);
}

static int64_t getRows(Value cache) {
  return cast<MemRefType>(cache.getType()).getShape()[1];
}

/// Program: a sequence. `args` are x, the table, numbers, and y.
static LaunchPart rotateQueries(RotaryAtOp op) {
  auto stride = static_cast<double>(op.getStride());
  KernelSpec spec = {"rotary" + std::to_string(op.getStride()),
                     "",
                     {getDim(op.getInput(), 0), 1, 1}};
  return {spec,
          {op.getInput(), op.getTable(), op.getIndex()},
          {op.getOutput().getType()},
          [=](TileBuilder &b, ArrayRef<Value> args) {
            Expr batch = b.programId(0);
            Value heads = b.range(
                0, cast<MemRefType>(args[0].getType()).getShape()[2], 0);
            rotateRows(b, args[0], args[3], args[1], {batch, 0, heads},
                       b.loadScalar(args[2], {batch}) * stride,
                       /*inverse=*/false);
          }};
}

/// Program: a sequence. `args` are the cache, the row, its number, the table if
/// the row is rotated, and the cache.
static LaunchPart appendRow(CacheAppendOp op, RotaryAtOp rotary) {
  KernelSpec spec = {"append", "", {getDim(op.getCache(), 0), 1, 1}};
  spec.inPlace = {{0, 0}};
  SmallVector<Value> inputs = {op.getCache(), op.getRow(), op.getIndex()};
  double stride = 1;
  if (rotary) {
    stride = static_cast<double>(rotary.getStride());
    spec.suffix += "_rotary" + std::to_string(rotary.getStride());
    inputs[1] = rotary.getInput();
    inputs.push_back(rotary.getTable());
  }
  bool isRotated = bool(rotary);
  return {spec,
          inputs,
          {op.getUpdated().getType()},
          [=](TileBuilder &b, ArrayRef<Value> args) {
            Value row = args[1], cache = args.back();
            ArrayRef<int64_t> shape =
                cast<MemRefType>(row.getType()).getShape();
            Expr batch = b.programId(0), index = b.loadScalar(args[2], {batch});
            Expr place = getPlace(index, getRows(cache));
            Value heads = b.range(0, shape[2], 0);
            if (isRotated) {
              RowsOfHeads target = {batch, place, heads};
              return rotateRows(b, row, cache, args[3], {batch, 0, heads},
                                index * stride, /*inverse=*/false, &target);
            }
            Value cols = b.range(0, shape[3], 1);
            b.store(b.load(row, {batch, 0, heads, cols}), cache,
                    {batch, place, heads, cols});
          }};
}

//===----------------------------------------------------------------------===//
// Compressed rows
//===----------------------------------------------------------------------===//

namespace {
/// The operations that make a row of compressed keys or values by the mean of
/// the last tokens, whose cache has no other reader.
struct CompressedRow {
  mutable CacheAppendOp tokens;
  mutable CacheReadOp read;
  mutable CompressOp compress;
  /// Null if rows are not rotated.
  mutable RotaryAtOp rotary;
  mutable CacheAppendOp append;

  static std::optional<CompressedRow> match(CacheAppendOp append);
  LaunchPart getPart() const;
  void build(TileBuilder &b, ArrayRef<Value> args) const;
};
} // namespace

template <typename OpT>
static OpT getOnly(Value value) {
  return value.hasOneUse() ? value.getDefiningOp<OpT>() : OpT();
}

std::optional<CompressedRow> CompressedRow::match(CacheAppendOp append) {
  CompressedRow row;
  row.append = append;
  Value value = append.getRow();
  row.rotary = getOnly<RotaryAtOp>(value);
  if (row.rotary) {
    if (row.rotary.getIndex() != append.getIndex())
      return std::nullopt;
    value = row.rotary.getInput();
  }
  row.compress = getOnly<CompressOp>(value);
  if (!row.compress || row.compress.getKind() != CompressionKind::Mean ||
      row.compress.getStart())
    return std::nullopt;
  row.read = getOnly<CacheReadOp>(row.compress.getInput());
  if (!row.read ||
      static_cast<int64_t>(row.read.getCount()) != row.compress.getBlock())
    return std::nullopt;
  row.tokens = getOnly<CacheAppendOp>(row.read.getCache());
  // The function returns the cache as well.
  if (!row.tokens)
    if (auto tokens = row.read.getCache().getDefiningOp<CacheAppendOp>();
        tokens && llvm::all_of(tokens->getUsers(), [&](Operation *user) {
          return user == row.read || user->hasTrait<OpTrait::IsTerminator>();
        }))
      row.tokens = tokens;
  if (!row.tokens || row.tokens.getIndex() != row.read.getLast())
    return std::nullopt;
  return row;
}

/// Program: (head, 1, sequence). `args` are the cache of tokens, the token, its
/// number, the compressed cache, the number of the row, the table if it is
/// rotated, and the caches.
void CompressedRow::build(TileBuilder &b, ArrayRef<Value> args) const {
  Value ring = args[0], token = args[1], target = args.back();
  int64_t width = cast<MemRefType>(token.getType()).getShape()[3];
  auto length = static_cast<int64_t>(compress.getBlock());
  int64_t ringRows = getRows(ring), targetRows = getRows(target);
  Expr head = b.programId(0), batch = b.programId(2);
  Expr position = b.loadScalar(args[2], {batch});
  Expr row = b.loadScalar(args[4], {batch});
  Type element = cast<MemRefType>(target.getType()).getElementType();
  // The row that the token replaces is not one of those before it.
  auto mean = [&](Value cols) {
    Value place =
        b.map({b.range(0, length, 0)}, b.i32(), [&](ArrayRef<Expr> x) {
          Expr number = position - static_cast<double>(length - 1) + x[0];
          return select(x[0] < static_cast<double>(length - 1),
                        getPlace(number, ringRows), -1);
        });
    Value before = b.reduceAdd(b.loadF32(ring, {batch, place, head, cols}),
                               /*axis=*/0);
    Value own = b.load(token, {batch, 0, head, cols});
    return b.convertTo(b.map({before, own}, b.f32(),
                             [&](ArrayRef<Expr> x) {
                               return (x[0] + x[1]) *
                                      (1.0 / static_cast<double>(length));
                             }),
                       element);
  };
  b.ifThen(row >= 0, [&] {
    Expr place = row % static_cast<double>(targetRows);
    if (!rotary) {
      Value cols = b.range(0, width, 1);
      return b.store(mean(cols), target, {batch, place, head, cols});
    }
    int64_t pairs = width / 2;
    Value low = b.range(0, pairs, 1), high = b.range(pairs, pairs, 1);
    Expr angle = row * static_cast<double>(rotary.getStride());
    auto rotated =
        b.map({mean(low), mean(high), b.load(args[5], {angle, low, 0}),
               b.load(args[5], {angle, low, 1})},
              {b.f32(), b.f32()}, [&](ArrayRef<Expr> x) -> SmallVector<Value> {
                auto pair = rotatePair(b, x[0], x[1], x[2], x[3],
                                       /*inverse=*/false);
                return {pair[0], pair[1]};
              });
    b.store(rotated[0], target, {batch, place, head, low});
    b.store(rotated[1], target, {batch, place, head, high});
  });
  Value cols = b.range(0, width, 1);
  b.store(b.load(token, {batch, 0, head, cols}), *std::prev(args.end(), 2),
          {batch, getPlace(position, ringRows), head, cols});
}

LaunchPart CompressedRow::getPart() const {
  KernelSpec spec = {
      "compress_l" + std::to_string(compress.getBlock()),
      "",
      {getDim(tokens.getRow(), 2), 1, getDim(tokens.getRow(), 0)}};
  spec.inPlace = {{0, 0}, {3, 1}};
  SmallVector<Value> inputs = {tokens.getCache(), tokens.getRow(),
                               tokens.getIndex(), append.getCache(),
                               append.getIndex()};
  if (rotary) {
    spec.suffix += "_rotary" + std::to_string(rotary.getStride());
    inputs.push_back(rotary.getTable());
  }
  return {spec,
          inputs,
          {tokens.getUpdated().getType(), append.getUpdated().getType()},
          [row = *this](TileBuilder &b, ArrayRef<Value> args) {
            row.build(b, args);
          }};
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

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
  return Part{rotateQueries(rotary), {rotary.getOutput()}, {rotary}};
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
