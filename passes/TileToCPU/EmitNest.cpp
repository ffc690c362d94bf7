//===- EmitNest.cpp - loop nests over the elements of tiles ---------------===//
//
// for outer:                     rows, or one turn for a column
//   for inner in whole vectors:  columns, or the rows of a column
//     loads, maps, then reductions, stores and writes to buffers
//   the rest of the row under a mask, where padding must not be seen
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "passes/TileToCPU/CpuEmitter.h"

using namespace mlir;
using namespace nsa::cpu;
using namespace nsa::tile;

/// Below so many cycles, a sum is waited for longer than its next vector takes.
static constexpr double kLatencyBound = 6;
/// Sums at most that vectors of a row are added to in turn.
static constexpr int64_t kMostSums = 4;

namespace {
class NestEmitter {
public:
  NestEmitter(CpuEmitter &kernel, const Nest &nest);
  void emit();

private:
  using Elements = llvm::DenseMap<Value, Value>;
  using RowAddress = CpuEmitter::RowAddress;
  enum class Varies { Nowhere, Outer, Inner };

  void chooseShape();
  void estimate();
  bool isFlat() const;
  Varies variation(Value tile) const;
  void collectLeaves();
  void hoist(Varies where, Value outer, Elements &elements);
  Value leaf(Value tile, Value outer, Value inner);
  SmallVector<Value> emitWhole(Value outer, int64_t whole,
                               const Elements &elements);
  void emitRow(Value outer, const Elements &elements);
  SmallVector<Value> emitVector(Value outer, Value inner, Value mask,
                                Elements elements, ValueRange sums);
  Value operand(Value value, Value outer, Value inner, Elements &elements);
  void emitMap(MapOp op, Value outer, Value inner, Elements &elements);
  Value accessMask(const RowAddress &address, Value inner, Value mask);
  Value combine(ReduceKind kind, Value sum, Value value);
  Value neutral(ReduceOp op);
  bool reducesInner(ReduceOp op) const;
  bool reducesOuter(ReduceOp op) const;

  CpuEmitter &kernel;
  VectorBuilder &b;
  const Nest &nest;
  unsigned axis;
  int64_t outerExtent, innerExtent;
  unsigned lanes;
  bool flat = false;
  /// Padding is visible: in memory, or to a reduction along the row.
  bool needsMask = false;
  /// Cycles of one vector, by estimate.
  double vectorCost = 0;
  SmallVector<Value> leaves, captured;
  SmallVector<ReduceOp> innerReductions;
  llvm::DenseMap<Operation *, RowAddress> addresses;
};
} // namespace

/// Vectors cannot divide integers, and padding may hold a zero divisor.
static bool dividesIntegers(const Nest &nest) {
  return llvm::any_of(nest.ops, [](Operation *op) {
    auto result = op->walk([](Operation *inner) {
      bool divides =
          isa<arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp,
              arith::FloorDivSIOp, arith::CeilDivSIOp, arith::CeilDivUIOp>(
              inner);
      return divides && !matchPattern(inner->getOperand(1), m_Constant())
                 ? WalkResult::interrupt()
                 : WalkResult::advance();
    });
    return result.wasInterrupted();
  });
}

NestEmitter::NestEmitter(CpuEmitter &kernel, const Nest &nest)
    : kernel(kernel), b(kernel.getBuilder()), nest(nest) {
  collectLeaves();
  chooseShape();
  estimate();
}

/// Cycles of one operation on a vector: exp and its like are polynomials.
static double estimateOp(Operation &op) {
  return isa<math::ExpOp, math::Exp2Op, math::LogOp, math::TanhOp>(op) ? 8
                                                                       : 0.5;
}

/// What the maps and memory take.
void NestEmitter::estimate() {
  double cost = 0;
  for (Operation *op : nest.ops) {
    if (auto map = dyn_cast<MapOp>(op))
      for (Operation &inner : map.getBody().front().without_terminator())
        cost += estimateOp(inner);
    else
      cost += isa<ReduceOp>(op) ? 0.5 : kAccessCost;
  }
  vectorCost = cost;
  double count = static_cast<double>(outerExtent) * innerExtent;
  if (dividesIntegers(nest))
    kernel.getWork().addScalars(PerformanceLint::ScalarLoop, nest.root, count,
                                cost);
  else
    kernel.getWork().addVectors(count, cost, lanes);
}

void NestEmitter::collectLeaves() {
  llvm::SetVector<Value> tiles, scalars;
  auto addTile = [&](Value tile) {
    Operation *def = tile.getDefiningOp();
    if (!def || kernel.getFusion().getRoot(def) != nest.root)
      tiles.insert(tile);
  };
  for (Operation *op : nest.ops) {
    if (auto map = dyn_cast<MapOp>(op)) {
      for (Value input : map.getInputs())
        addTile(input);
      map.walk([&](Operation *inner) {
        for (Value value : inner->getOperands())
          if (inner != op && value.getParentRegion() != &map.getBody())
            scalars.insert(value);
      });
    } else if (auto reduce = dyn_cast<ReduceOp>(op)) {
      addTile(reduce.getInput());
    } else if (auto store = dyn_cast<StoreOp>(op)) {
      addTile(store.getValue());
    }
  }
  leaves = tiles.takeVector();
  captured = scalars.takeVector();
}

void NestEmitter::chooseShape() {
  axis = innerAxis(nest.shape);
  outerExtent = axis == 0 ? 1 : nest.shape.getRows();
  innerExtent = axis == 0 ? nest.shape.getRows() : nest.shape.getCols();
  unsigned width = dividesIntegers(nest) ? 1 : kernel.getWidth();
  flat = isFlat();
  if (flat) {
    TileLayout layout(nest.shape, kernel.getWidth());
    innerExtent = width == 1 ? innerExtent : outerExtent * layout.rowStride;
    outerExtent = width == 1 ? outerExtent : 1;
    flat = width > 1;
  }
  lanes = lanesFor(innerExtent, width);
  for (Operation *op : nest.ops) {
    auto reduce = dyn_cast<ReduceOp>(op);
    if (reduce && reducesInner(reduce))
      innerReductions.push_back(reduce);
    needsMask |= isa<LoadOp, StoreOp>(op) || (reduce && reducesInner(reduce));
  }
}

/// Whether rows may run into each other: only whole buffers of one shape take
/// part.
bool NestEmitter::isFlat() const {
  if (axis == 0 || outerExtent == 1 ||
      llvm::any_of(nest.ops, [](Operation *op) { return !isa<MapOp>(op); }))
    return false;
  return llvm::all_of(leaves, [&](Value tile) {
    auto type = cast<TileType>(tile.getType());
    bool whole = type.getRows() == nest.shape.getRows() &&
                 type.getCols() == nest.shape.getCols();
    return type.getNumElements() == 1 || tile.getDefiningOp<SplatOp>() ||
           (whole && kernel.hasBuffer(tile));
  });
}

NestEmitter::Varies NestEmitter::variation(Value tile) const {
  auto type = cast<TileType>(tile.getType());
  if (type.getNumElements() == 1 || tile.getDefiningOp<SplatOp>())
    return Varies::Nowhere;
  bool inner = axis == 0 ? type.getRows() > 1 : type.getCols() > 1;
  return inner ? Varies::Inner : Varies::Outer;
}

bool NestEmitter::reducesInner(ReduceOp op) const {
  return op.getAxis() == axis && innerExtent > 1;
}

bool NestEmitter::reducesOuter(ReduceOp op) const {
  return op.getAxis() != axis && outerExtent > 1;
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

void NestEmitter::emit() {
  for (Operation *op : nest.ops) {
    auto reduce = dyn_cast<ReduceOp>(op);
    if (!reduce || !reducesOuter(reduce))
      continue;
    CpuEmitter::Buffer buffer = kernel.bufferOf(reduce.getResult());
    Value start = b.splat(neutral(reduce), lanes);
    b.loop(buffer.layout.size, lanes, [&](Value i) {
      b.store(start, buffer.base, i, buffer.layout.elementType);
    });
  }
  Elements elements;
  for (Value value : captured)
    elements[value] = b.splat(kernel.scalar(value), lanes);
  hoist(Varies::Nowhere, b.i64(0), elements);
  b.loop(outerExtent, 1, [&](Value outer) {
    Elements row = elements;
    hoist(Varies::Outer, outer, row);
    emitRow(outer, row);
  });
}

/// Evaluates the leaves that are the same for a whole row, or everywhere.
void NestEmitter::hoist(Varies where, Value outer, Elements &elements) {
  for (Value tile : leaves)
    if (variation(tile) == where)
      elements[tile] = leaf(tile, outer, b.i64(0));
}

/// The elements of a tile that is not computed in this nest.
Value NestEmitter::leaf(Value tile, Value outer, Value inner) {
  if (Value repeated = kernel.splatScalar(tile))
    return b.splat(repeated, lanes);
  Varies varies = variation(tile);
  Value row = axis == 0 ? inner : outer, col = axis == 0 ? outer : inner;
  if (auto range = tile.getDefiningOp<RangeOp>()) {
    Value first = b.splat(kernel.coordinate(tile, row, col), lanes);
    if (varies != Varies::Inner || lanes == 1)
      return first;
    Value steps = b.iota(lanes, static_cast<int32_t>(range.getStep()));
    return arith::AddIOp::create(b, first, steps);
  }
  CpuEmitter::Buffer buffer = kernel.bufferOf(tile);
  auto type = cast<TileType>(tile.getType());
  Type element = type.getElementType();
  Value place = b.i64(0);
  if (flat && varies == Varies::Inner) {
    place = inner;
  } else {
    if (type.getRows() > 1)
      place = b.mul(row, buffer.layout.rowStride);
    if (type.getCols() > 1)
      place = b.add(place, col);
  }
  if (varies == Varies::Inner)
    return b.load(buffer.base, place, element, lanes);
  return b.splat(b.load(buffer.base, place, element, 1), lanes);
}

/// Vectors up to `whole`. One that waits for the sum before it takes as long as
/// an addition, so short ones add to sums of their own in turn.
SmallVector<Value> NestEmitter::emitWhole(Value outer, int64_t whole,
                                          const Elements &elements) {
  int64_t ways = 1;
  if (!innerReductions.empty() && vectorCost < kLatencyBound)
    while (ways < kMostSums && whole % (2 * ways * lanes) == 0 &&
           whole >= 4 * ways * lanes)
      ways *= 2;
  SmallVector<Value> sums;
  for (int64_t way = 0; way < ways; ++way)
    for (ReduceOp reduce : innerReductions)
      sums.push_back(b.splat(neutral(reduce), lanes));
  size_t count = innerReductions.size();
  sums = b.loop(b.i64(0), b.i64(whole), ways * lanes, sums,
                [&](Value inner, ValueRange carried) {
                  SmallVector<Value> next;
                  for (int64_t way = 0; way < ways; ++way)
                    next.append(emitVector(outer, b.add(inner, way * lanes),
                                           Value(), elements,
                                           carried.slice(way * count, count)));
                  return next;
                });
  for (; ways > 1; ways /= 2)
    for (size_t i = 0; i < ways / 2 * count; ++i)
      sums[i] = combine(innerReductions[i % count].getKind(), sums[i],
                        sums[i + ways / 2 * count]);
  sums.resize(count);
  return sums;
}

void NestEmitter::emitRow(Value outer, const Elements &elements) {
  for (Operation *op : nest.ops)
    if (isa<LoadOp, StoreOp>(op))
      addresses[op] =
          kernel.rowAddress(kernel.getFusion().getAccess(op), outer);
  int64_t whole = innerExtent / lanes * lanes;
  if (!needsMask)
    whole = roundUp(innerExtent, lanes);
  SmallVector<Value> sums = emitWhole(outer, whole, elements);
  if (whole < innerExtent)
    sums = emitVector(outer, b.i64(whole),
                      b.firstLanes(innerExtent - whole, lanes), elements, sums);
  for (auto [reduce, sum] : llvm::zip(innerReductions, sums)) {
    auto kind = reduce.getKind();
    Value total = b.horizontal(
        sum, [kind, this](Value x, Value y) { return combine(kind, x, y); });
    CpuEmitter::Buffer buffer = kernel.bufferOf(reduce.getResult());
    b.store(total, buffer.base, outer, buffer.layout.elementType);
  }
}

//===----------------------------------------------------------------------===//
// One vector
//===----------------------------------------------------------------------===//

/// Everything is computed before anything is written: results may lie over
/// operands.
SmallVector<Value> NestEmitter::emitVector(Value outer, Value inner, Value mask,
                                           Elements elements, ValueRange sums) {
  const FusionPlan &fusion = kernel.getFusion();
  for (Operation *op : nest.ops) {
    b.setLoc(op->getLoc());
    if (auto map = dyn_cast<MapOp>(op)) {
      emitMap(map, outer, inner, elements);
    } else if (auto load = dyn_cast<LoadOp>(op)) {
      const RowAddress &address = addresses[op];
      auto type = cast<TileType>(load.getResult().getType());
      elements[load.getResult()] = b.load(
          kernel.scalar(load.getRef()), b.add(address.offset, inner),
          type.getElementType(), lanes, accessMask(address, inner, mask));
    }
  }
  SmallVector<Value> values;
  for (Operation *op : nest.ops)
    if (isa<ReduceOp, StoreOp>(op))
      values.push_back(operand(op->getOperand(0), outer, inner, elements));

  SmallVector<Value> next(sums);
  auto *value = values.begin();
  auto *sum = next.begin();
  for (Operation *op : nest.ops) {
    b.setLoc(op->getLoc());
    if (auto store = dyn_cast<StoreOp>(op)) {
      const RowAddress &address = addresses[op];
      auto type = cast<TileType>(store.getValue().getType());
      b.store(*value++, kernel.scalar(store.getRef()),
              b.add(address.offset, inner), type.getElementType(),
              accessMask(address, inner, mask));
    } else if (auto reduce = dyn_cast<ReduceOp>(op)) {
      Value element = *value++;
      if (reducesInner(reduce)) {
        if (mask)
          element = arith::SelectOp::create(b, mask, element,
                                            b.splat(neutral(reduce), lanes));
        *sum = combine(reduce.getKind(), *sum, element);
        ++sum;
        continue;
      }
      CpuEmitter::Buffer buffer = kernel.bufferOf(reduce.getResult());
      Type type = buffer.layout.elementType;
      if (reducesOuter(reduce))
        element = combine(reduce.getKind(),
                          b.load(buffer.base, inner, type, lanes), element);
      b.store(element, buffer.base, inner, type);
    } else {
      for (Value result : op->getResults()) {
        if (!fusion.needsBuffer(result))
          continue;
        CpuEmitter::Buffer buffer = kernel.bufferOf(result);
        Value row = axis == 0 ? inner : outer, col = axis == 0 ? outer : inner;
        Value place =
            flat ? inner : b.add(b.mul(row, buffer.layout.rowStride), col);
        b.store(elements[result], buffer.base, place,
                buffer.layout.elementType);
      }
    }
  }
  return next;
}

Value NestEmitter::operand(Value value, Value outer, Value inner,
                           Elements &elements) {
  Value &element = elements[value];
  if (!element)
    element = leaf(value, outer, inner);
  return element;
}

void NestEmitter::emitMap(MapOp op, Value outer, Value inner,
                          Elements &elements) {
  Block &body = op.getBody().front();
  for (auto [argument, input] :
       llvm::zip(body.getArguments(), op.getInputs())) {
    Value element = operand(input, outer, inner, elements);
    elements[argument] = element;
  }
  for (Operation &scalarOp : body.without_terminator()) {
    SmallVector<Value> operands;
    for (Value value : scalarOp.getOperands())
      operands.push_back(elements.lookup(value));
    for (auto [old, now] : llvm::zip(scalarOp.getResults(),
                                     b.elementwise(&scalarOp, operands, lanes)))
      elements[old] = now;
  }
  for (auto [result, yielded] : llvm::zip(op.getResults(), op.getYielded())) {
    Value element = elements.lookup(yielded);
    elements[result] = element;
  }
}

Value NestEmitter::accessMask(const RowAddress &address, Value inner,
                              Value mask) {
  if (address.valid)
    mask = b.logicalAnd(mask, b.splat(address.valid, lanes));
  if (address.start) {
    Value first = b.splat(b.add(address.start, b.toI32(inner)), lanes);
    Value places =
        lanes == 1 ? first : arith::AddIOp::create(b, first, b.iota(lanes));
    Value end = address.extent.isConstant()
                    ? b.constant(b.getI32Type(), int64_t(address.extent), lanes)
                    : b.splat(b.toI32(kernel.size(address.extent)), lanes);
    mask = b.logicalAnd(
        mask, arith::CmpIOp::create(b, arith::CmpIPredicate::ult, places, end));
  }
  return mask;
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

Value NestEmitter::combine(ReduceKind kind, Value sum, Value value) {
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(value.getType()));
  if (kind == ReduceKind::Add) {
    if (isFloat)
      return arith::AddFOp::create(b, sum, value);
    return arith::AddIOp::create(b, sum, value);
  }
  bool isMax = kind == ReduceKind::Max;
  Value wins;
  if (isFloat)
    wins = arith::CmpFOp::create(
        b, isMax ? arith::CmpFPredicate::OGT : arith::CmpFPredicate::OLT, value,
        sum);
  else
    wins = arith::CmpIOp::create(
        b, isMax ? arith::CmpIPredicate::sgt : arith::CmpIPredicate::slt, value,
        sum);
  return arith::SelectOp::create(b, wins, value, sum);
}

Value NestEmitter::neutral(ReduceOp op) {
  Type type = cast<TileType>(op.getInput().getType()).getElementType();
  ReduceKind kind = op.getKind();
  if (isa<FloatType>(type)) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    return b.f32(kind == ReduceKind::Add   ? 0.0
                 : kind == ReduceKind::Max ? -infinity
                                           : infinity);
  }
  return b.i32(kind == ReduceKind::Add   ? 0
               : kind == ReduceKind::Max ? std::numeric_limits<int32_t>::min()
                                         : std::numeric_limits<int32_t>::max());
}

void nsa::cpu::emitNest(CpuEmitter &kernel, const Nest &nest) {
  NestEmitter(kernel, nest).emit();
}
