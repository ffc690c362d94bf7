//===- EmitMmaTiles.cpp - computation on MMA tiles ------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "passes/Conversion/TileToNVVM/Combine.h"
#include "passes/Conversion/TileToNVVM/KernelEmitter.h"
#include "passes/Conversion/TileToNVVM/MaskAnalysis.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Where elements are
//===----------------------------------------------------------------------===//

Value KernelEmitter::hoisted(function_ref<Value()> make) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfter(startEnd);
  Value value = make();
  startEnd = &*std::prev(b.getInsertionPoint());
  return value;
}

const KernelEmitter::Thread &KernelEmitter::thread() {
  if (!threadValues.lane) {
    hoisted([&] {
      threadValues.lane = b.rem(tid, 32);
      threadValues.warp = b.div(tid, 32);
      threadValues.quad = b.div(threadValues.lane, 4);
      threadValues.pair = b.mul(b.rem(threadValues.lane, 4), 2);
      return threadValues.pair;
    });
  }
  return threadValues;
}

Value KernelEmitter::rowOf(const MmaLayout &layout, int64_t r) {
  bool isRow = layout.rows == 1;
  Value &row = threadRows[isRow ? -1 : r];
  if (!row) {
    const Thread &own = thread();
    row = hoisted([&] {
      if (isRow)
        return b.i32(0);
      return b.add(b.add(b.mul(own.warp, 16), own.quad),
                   16 * layout.warps * (r / 2) + 8 * (r % 2));
    });
  }
  return row;
}

Value KernelEmitter::colOf(const MmaLayout &layout, int64_t c) {
  bool isColumn = layout.cols == 1;
  Value &col = threadCols[isColumn ? -1 : c];
  if (!col) {
    const Thread &own = thread();
    col = hoisted([&] {
      return isColumn ? b.i32(0) : b.add(own.pair, 8 * (c / 2) + c % 2);
    });
  }
  return col;
}

Value KernelEmitter::hasRow(const MmaLayout &layout, int64_t r) {
  if (layout.hasRow(r))
    return {};
  return b.less(rowOf(layout, r), layout.rows);
}

Value KernelEmitter::hasCol(const MmaLayout &layout, int64_t c) {
  if (layout.hasCol(c))
    return {};
  return b.less(colOf(layout, c), layout.cols);
}

Value KernelEmitter::isFirst(const MmaLayout &layout) {
  if (layout.rows == 1)
    // The first quad of the first warp, or the first thread.
    return b.less(tid, layout.cols == 1 ? 1 : 4);
  if (layout.cols == 1)
    return b.less(thread().pair, 1);
  return {};
}

SmallVector<Value> KernelEmitter::pack(const MmaLayout &layout,
                                       ArrayRef<Value> elements) {
  if (!layout.isPacked())
    return SmallVector<Value>(elements);
  SmallVector<Value> packed;
  for (size_t i = 0; i < elements.size(); i += 2)
    packed.push_back(b.pair(elements[i], elements[i + 1], layout.element));
  return packed;
}

/// Of a tile without registers, computes them.
SmallVector<Value> KernelEmitter::elementsOf(Value tile) {
  MmaLayout layout(cast<TileType>(tile.getType()));
  Memo memo;
  SmallVector<Value> elements;
  for (int64_t r = 0; r < layout.rowCount(); ++r)
    for (int64_t c = 0; c < layout.colCount(); ++c)
      elements.push_back(mmaElement(tile, layout, r, c, memo));
  return elements;
}

Value KernelEmitter::mmaElement(Value operand, const MmaLayout &larger,
                                int64_t r, int64_t c, Memo &memo) {
  if (deferred.contains(operand))
    return deferredElement(operand, c, memo);
  auto known = registers.find(operand);
  if (known == registers.end())
    return evaluate(operand, rowOf(larger, r), colOf(larger, c), memo);
  MmaLayout layout(cast<TileType>(operand.getType()));
  int64_t i = (layout.rows == 1 ? 0 : r) * layout.colCount() +
              (layout.cols == 1 ? 0 : c);
  return layout.isPacked() ? b.half(known->second[i / 2], i % 2)
                           : known->second[i];
}

//===----------------------------------------------------------------------===//
// Rows that are read where they are used
//===----------------------------------------------------------------------===//

/// Every thread would hold a row's elements in as many registers as its part of
/// a whole M-tile takes.
bool KernelEmitter::canDefer(MapOp op) const {
  if (cast<TileType>(op.getShapeType()).getRows() != 1)
    return false;
  bool readsLine = false;
  for (Value input : op.getInputs()) {
    readsLine |= deferred.contains(input);
    if (!deferred.contains(input) && isa<TileType>(input.getType()) &&
        !isRematerialized(input.getType()))
      return false;
  }
  return readsLine;
}

Value KernelEmitter::deferredElement(Value row, int64_t c, Memo &memo) {
  MmaLayout layout(row);
  auto key = [&](int64_t column) {
    return std::tuple<Value, Value, Value>(row, {}, colOf(layout, column));
  };
  if (Value known = memo.lookup(key(c)))
    return known;
  if (!row.getDefiningOp<MapOp>()) {
    Value pair = loadLinePair(row, c / 2);
    for (int64_t i = 0; i < 2; ++i)
      memo[key(c / 2 * 2 + i)] = b.half(pair, i);
    return memo[key(c)];
  }
  auto map = row.getDefiningOp<MapOp>();
  SmallVector<Value> elements;
  for (Value input : map.getInputs())
    elements.push_back(mmaElement(input, layout, 0, c, memo));
  for (auto [result, value] :
       llvm::zip_equal(map.getResults(), runBody(map, elements)))
    memo[{result, {}, colOf(layout, c)}] = value;
  return memo[key(c)];
}

//===----------------------------------------------------------------------===//
// Elementwise
//===----------------------------------------------------------------------===//

/// Results of 16 bits that end in a rounding: numbers are rounded in pairs.
static llvm::SmallBitVector findRounded(MapOp op) {
  llvm::SmallBitVector wide(op.getNumResults());
  for (auto [i, value] : llvm::enumerate(op.getYielded())) {
    auto rounded = value.getDefiningOp<arith::TruncFOp>();
    wide[i] = rounded && rounded.getIn().getType().isF32() &&
              MmaLayout(cast<TileType>(op.getResult(i).getType())).isPacked();
  }
  return wide;
}

SmallVector<Value> KernelEmitter::runMap(MapOp op) {
  MmaLayout shape(op.getShapeType());
  llvm::SmallBitVector wide = findRounded(op);
  SmallVector<SmallVector<Value>> results(op.getNumResults(),
                                          SmallVector<Value>(shape.elements()));
  Memo memo;
  // What is read for a column is used at once.
  bool byColumns = llvm::any_of(
      op.getInputs(), [&](Value input) { return deferred.contains(input); });
  for (int64_t k = 0; k < shape.elements(); ++k) {
    int64_t r = byColumns ? k % shape.rowCount() : k / shape.colCount();
    int64_t c = byColumns ? k / shape.rowCount() : k % shape.colCount();
    SmallVector<Value> elements;
    for (Value input : op.getInputs())
      elements.push_back(mmaElement(input, shape, r, c, memo));
    for (auto [list, value] :
         llvm::zip_equal(results, runBody(op, elements, wide)))
      list[r * shape.colCount() + c] = value;
  }
  SmallVector<Value> flat;
  for (auto [result, list] : llvm::zip_equal(op.getResults(), results))
    llvm::append_range(flat, pack(MmaLayout(result), list));
  return flat;
}

/// Whether masks hold for all elements of this warp: in the first and last
/// column of its rows.
Value KernelEmitter::holdsEverywhere(MapOp op, const Masks &masks) {
  MmaLayout shape(op.getShapeType());
  Value all;
  Memo memo;
  for (int64_t r = 0; r < shape.rowCount(); ++r)
    for (int64_t col : {int64_t(0), shape.cols - 1}) {
      for (Value argument : masks.arguments) {
        unsigned i = cast<BlockArgument>(argument).getArgNumber();
        Value input = op.getInputs()[i];
        // What changes along the columns is a range.
        Value element =
            cast<TileType>(input.getType()).getCols() == 1
                ? mmaElement(input, shape, r, 0, memo)
                : evaluate(input, rowOf(shape, r), b.i32(col), memo);
        scalars.map(argument, element);
      }
      for (Operation *inner : masks.operations)
        b.clone(*inner, scalars);
      for (arith::SelectOp select : masks.selects)
        all = b.both(all, scalars.lookupOrDefault(select.getCondition()));
    }
  return NVVM::VoteSyncOp::create(b, b.getI1Type(), b.i32(-1), all,
                                  NVVM::VoteSyncKind::all);
}

/// Multiplies each row by a factor, unless those of this warp are all one:
/// factors of a running softmax mostly are. False if that is not what the map
/// does.
bool KernelEmitter::emitRowScaling(MapOp op) {
  Block &body = op.getBody().front();
  auto product = dyn_cast<arith::MulFOp>(body.front());
  if (!product || !product.getType().isF32() || op.getNumResults() != 1 ||
      op.getYielded()[0] != product.getResult() || op.getInputs().size() != 2 ||
      MmaLayout(op.getShapeType()).elements() < 16)
    return false;
  // Of the two inputs, not of other numbers.
  if (!isa<BlockArgument>(product.getLhs()) ||
      !isa<BlockArgument>(product.getRhs()) ||
      product.getLhs() == product.getRhs() ||
      product.getLhs().getParentBlock() != &body ||
      product.getRhs().getParentBlock() != &body)
    return false;
  auto isHeld = [&](Value input) {
    return hasMmaLayout(input.getType()) && !deferred.contains(input);
  };
  Value tile = op.getInputs()[0], factor = op.getInputs()[1];
  if (cast<TileType>(tile.getType()).getCols() == 1)
    std::swap(tile, factor);
  if (tile.getType() != op.getResult(0).getType() || !isHeld(tile) ||
      cast<TileType>(factor.getType()).getCols() != 1 || !isHeld(factor))
    return false;

  Value one = b.constant(b.getF32Type(), 1), isOne;
  for (Value element : elementsOf(factor))
    isOne = b.both(isOne, arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ,
                                                element, one));
  Value all = NVVM::VoteSyncOp::create(b, b.getI1Type(), b.i32(-1), isOne,
                                       NVVM::VoteSyncKind::all);
  auto branch = scf::IfOp::create(b, flattenTypes(op.getResultTypes()), all,
                                  /*addThenBlock=*/true, /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(branch.thenBlock());
  scf::YieldOp::create(b, registersOf(tile));
  b.setInsertionPointToEnd(branch.elseBlock());
  scf::YieldOp::create(b, runMap(op));
  unflatten(op.getResults(), branch.getResults());
  return true;
}

/// Tiles that a mask does not cut go without it.
void KernelEmitter::emitMmaMap(MapOp op) {
  if (canDefer(op)) {
    deferred.insert(op->result_begin(), op->result_end());
    return;
  }
  if (emitRowScaling(op))
    return;
  Masks masks = findMasks(op);
  SmallVector<Value> flat;
  if (masks.selects.empty() || MmaLayout(op.getShapeType()).elements() < 16) {
    flat = runMap(op);
  } else {
    auto branch = scf::IfOp::create(
        b, flattenTypes(op.getResultTypes()), holdsEverywhere(op, masks),
        /*addThenBlock=*/true, /*addElseBlock=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(branch.thenBlock());
    assumed.insert(masks.selects.begin(), masks.selects.end());
    scf::YieldOp::create(b, runMap(op));
    assumed.clear();
    b.setInsertionPointToEnd(branch.elseBlock());
    scf::YieldOp::create(b, runMap(op));
    flat.assign(branch->result_begin(), branch->result_end());
  }
  unflatten(op.getResults(), flat);
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

/// Like `combine`, with the instructions for maxima and minima.
static Value combineFast(ThreadBuilder &b, ReduceKind kind, Value x, Value y) {
  if (!isa<FloatType>(x.getType()) || kind == ReduceKind::Add)
    return combine(b, kind, x, y);
  return kind == ReduceKind::Max ? getMaximum(b, x, y) : getMinimum(b, x, y);
}

/// Combines in pairs, neighbours first.
static Value combineTree(ThreadBuilder &b, ReduceKind kind,
                         SmallVector<Value> values) {
  while (values.size() > 1) {
    SmallVector<Value> next;
    for (size_t i = 0; i + 1 < values.size(); i += 2)
      next.push_back(combineFast(b, kind, values[i], values[i + 1]));
    if (values.size() % 2)
      next.push_back(values.back());
    values = std::move(next);
  }
  return values.front();
}

static Value combineLanes(ThreadBuilder &b, ReduceKind kind, Value value,
                          ArrayRef<unsigned> masks) {
  for (unsigned mask : masks)
    value = combineFast(b, kind, value, b.shuffle(value, mask));
  return value;
}

/// Column `c` of the rows of a warp; equal in its quads.
Value KernelEmitter::combineRows(const MmaLayout &input, ReduceKind kind,
                                 ArrayRef<Value> elements, int64_t c) {
  Value neutral = neutralElement(b, kind, input.element);
  SmallVector<Value> values;
  for (int64_t r = 0; r < input.rowCount(); ++r) {
    Value value = elements[r * input.colCount() + c];
    Value exists = hasRow(input, r);
    values.push_back(exists ? b.select(exists, value, neutral) : value);
  }
  Value value = combineTree(b, kind, values);
  return input.rows == 1 ? value : combineLanes(b, kind, value, {4, 8, 16});
}

/// Combines what each warp has of each column, in the order of the warps.
void KernelEmitter::combineWarps(const MmaLayout &input, ReduceKind kind,
                                 SmallVectorImpl<Value> &columns) {
  beginLayoutConversion();
  SharedTile shared =
      allocate(input.warps, input.colCount() * 4, input.element);
  auto place = [&](int64_t c) {
    return input.cols == 1 ? b.i32(0)
                           : b.add(thread().pair, 8 * (c / 2) + c % 2);
  };
  // The lanes of the first quad have different columns, or all have the only
  // one.
  b.ifThen(b.both(b.less(thread().quad, 1), isFirst(input)), [&] {
    for (auto [c, value] : llvm::enumerate(columns))
      writeShared(value, shared, thread().warp, place(c));
  });
  endLocalStores();
  for (auto [c, value] : llvm::enumerate(columns)) {
    value = readShared(shared, b.i32(0), place(c));
    for (int64_t warp = 1; warp < input.warps; ++warp)
      value = combineFast(b, kind, value,
                          readShared(shared, b.i32(warp), place(c)));
  }
}

void KernelEmitter::emitMmaReduce(ReduceOp op) {
  MmaLayout input(op.getInput().getType());
  SmallVector<Value> elements = elementsOf(op.getInput());
  SmallVector<Value> &result = registers[op.getResult()];
  if (op.getAxis() == 0) {
    SmallVector<Value> columns;
    for (int64_t c = 0; c < input.colCount(); ++c)
      columns.push_back(combineRows(input, op.getKind(), elements, c));
    if (input.rows > 1 && input.warps > 1)
      combineWarps(input, op.getKind(), columns);
    registers[op.getResult()] = std::move(columns);
    return;
  }
  Value neutral = neutralElement(b, op.getKind(), input.element);
  SmallVector<Value> exists;
  for (int64_t c = 0; c < input.colCount(); ++c)
    exists.push_back(hasCol(input, c));
  for (int64_t r = 0; r < input.rowCount(); ++r) {
    SmallVector<Value> values;
    for (int64_t c = 0; c < input.colCount(); ++c) {
      Value value = elements[r * input.colCount() + c];
      values.push_back(exists[c] ? b.select(exists[c], value, neutral) : value);
    }
    Value value = combineTree(b, op.getKind(), values);
    result.push_back(
        input.cols == 1 ? value : combineLanes(b, op.getKind(), value, {1, 2}));
  }
}
