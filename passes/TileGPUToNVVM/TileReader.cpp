//===- TileReader.cpp - elements of the tiles that an op reads ------------===//

#include "passes/TileGPUToNVVM/TileReader.h"
#include "dialects/Interfaces/AttributeNames.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"
#include "passes/TileGPU/GlobalAccesses.h"
#include "passes/TileGPU/TileUtils.h"
#include "passes/TileGPUToNVVM/SharedBuffers.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::cuda;
using namespace nsa::tile;
using namespace nsa::tile_gpu;

TileReader::TileReader(ThreadBuilder &b, Operation *op,
                       ArrayRef<ValueRange> converted,
                       ConversionPatternRewriter &rewriter, TileBounds &bounds)
    : b(b), bounds(bounds), rewriter(rewriter) {
  for (auto [operand, values] : llvm::zip_equal(op->getOperands(), converted))
    this->converted.try_emplace(operand, values);
}

bool nsa::cuda::hasRegisters(Value tile) {
  return !isVirtual(tile) && !isReadWhereUsed(tile);
}

SmallVector<Value> TileReader::registersOf(Value tile) {
  if (hasRegisters(tile))
    return llvm::to_vector(converted.lookup(tile));
  return pack(b, RegisterLayout(tile), elementsOf(tile));
}

SmallVector<Value> TileReader::elementsOf(Value tile,
                                          const RegisterLayout &layout) {
  if (hasRegisters(tile) && !layout.isPacked())
    return llvm::to_vector(converted.lookup(tile));
  Memo memo;
  SmallVector<Value> elements;
  for (int64_t r = 0; r < layout.rowCount(); ++r)
    for (int64_t c = 0; c < layout.colCount(); ++c)
      elements.push_back(
          read(tile, {r, c, b.rowOf(layout, r), b.colOf(layout, c)}, memo));
  return elements;
}

void TileReader::exchange(ValueRange operands, const RegisterLayout &larger) {
  if (larger.isMma)
    return;
  std::optional<Scratch> scratch;
  for (Value operand : operands) {
    if (!isTile(operand) || isVirtual(operand) || exchanged.contains(operand) ||
        RegisterLayout(operand).hasElementsOf(larger))
      continue;
    if (!scratch)
      scratch.emplace(*this);
    exchanged.try_emplace(operand, scratch->store(operand));
  }
  if (scratch)
    scratch->endStores();
}

TileReader::Element TileReader::at(const RegisterLayout &layout, int64_t r,
                                   int64_t c) {
  if (layout.isMma)
    return {r, c, b.rowOf(layout, r), b.colOf(layout, c)};
  auto [row, col] = b.inside(layout, r, c);
  return {r, c, row, col};
}

Value TileReader::read(Value operand, const Element &element, Memo &memo) {
  auto [r, c, row, col] = element;
  if (!isTile(operand))
    return scalar(operand);
  if (isReadWhereUsed(operand))
    return rowElement(operand, c, memo);
  if (isVirtual(operand))
    return evaluate(operand, row, col, memo);
  RegisterLayout layout(operand);
  if (auto known = exchanged.find(operand); known != exchanged.end())
    return known->second.read(b, layout.rows == 1 ? b.i32(0) : row,
                              layout.cols == 1 ? b.i32(0) : col);
  ValueRange own = converted.lookup(operand);
  int64_t i = (layout.rows == 1 ? 0 : r) * layout.colCount() +
              (layout.cols == 1 ? 0 : c);
  return layout.isPacked() ? b.half(own[i / 2], i % 2) : own[i];
}

SmallVector<Value>
nsa::cuda::makeElements(ThreadBuilder &b, const RegisterLayout &layout,
                        function_ref<Value(Value row, Value col)> make) {
  SmallVector<Value> elements;
  for (int64_t r = 0; r < layout.rowCount(); ++r)
    for (int64_t c = 0; c < layout.colCount(); ++c) {
      auto [row, col] = b.inside(layout, r, c);
      elements.push_back(make(row, col));
    }
  return elements;
}

SmallVector<Value> nsa::cuda::pack(ThreadBuilder &b,
                                   const RegisterLayout &layout,
                                   ArrayRef<Value> elements) {
  if (!layout.isPacked())
    return SmallVector<Value>(elements);
  SmallVector<Value> packed;
  for (size_t i = 0; i < elements.size(); i += 2)
    packed.push_back(b.pair(elements[i], elements[i + 1], layout.element));
  return packed;
}

//===----------------------------------------------------------------------===//
// Rows that are read where they are used
//===----------------------------------------------------------------------===//

bool nsa::cuda::isReadWhereUsed(Value tile) {
  Operation *op = tile.getDefiningOp();
  if (!op || !hasMmaLayout(tile.getType()) ||
      cast<TileType>(tile.getType()).getRows() != 1)
    return false;
  // Loops and branches carry registers.
  if (llvm::any_of(tile.getUsers(), [](Operation *user) {
        return isa<scf::SCFDialect>(user->getDialect());
      }))
    return false;
  if (isa<LocalLoadOp>(op))
    return true;
  auto map = dyn_cast<MapOp>(op);
  if (!map || cast<TileType>(map.getShapeType()).getRows() != 1)
    return false;
  bool readsRow = false;
  for (Value input : map.getInputs()) {
    bool isRow = isReadWhereUsed(input);
    readsRow |= isRow;
    if (!isRow && isTile(input) && !isRematerialized(input.getType()))
      return false;
  }
  return readsRow;
}

SmallVector<Value> nsa::cuda::getUnused(ThreadBuilder &b, Value tile) {
  RegisterLayout layout(tile);
  return SmallVector<Value>(layout.registers(),
                            LLVM::PoisonOp::create(b, layout.registerType()));
}

Value nsa::cuda::loadRowPair(TileReader &in, Value row, int64_t pair) {
  ThreadBuilder &b = in.b;
  auto read = row.getDefiningOp<LocalLoadOp>();
  Value first = lineAddress(in, read.getBuffer(), read.getStage(),
                            b.mul(b.place().pair, 4));
  return b.load(b.advance(first, 4 * 8 * pair), b.i32(0),
                VectorType::get({2}, RegisterLayout(row).element));
}

Value TileReader::rowElement(Value row, int64_t c, Memo &memo) {
  RegisterLayout layout(row);
  auto key = [&](int64_t column) {
    return std::tuple<Value, Value, Value>(row, {}, b.colOf(layout, column));
  };
  if (Value known = memo.lookup(key(c)))
    return known;
  if (!row.getDefiningOp<MapOp>()) {
    Value pair = loadRowPair(*this, row, c / 2);
    for (int64_t i = 0; i < 2; ++i)
      memo[key(c / 2 * 2 + i)] = b.half(pair, i);
    return memo[key(c)];
  }
  auto map = row.getDefiningOp<MapOp>();
  SmallVector<Value> elements;
  for (Value input : map.getInputs())
    elements.push_back(read(input, at(layout, 0, c), memo));
  IRMapping mapping = mapOuter(map);
  for (auto [result, value] :
       llvm::zip_equal(map.getResults(), runBody(map, elements, mapping)))
    memo[{result, {}, b.colOf(layout, c)}] = value;
  return memo[key(c)];
}

//===----------------------------------------------------------------------===//
// Elements that are computed where they are used
//===----------------------------------------------------------------------===//

/// Of `x == -inf ? a : b`, x and b.
static std::pair<Value, Value> matchGuard(arith::SelectOp select) {
  auto compare = select.getCondition().getDefiningOp<arith::CmpFOp>();
  if (!compare || compare.getPredicate() != arith::CmpFPredicate::OEQ ||
      !matchPattern(compare.getRhs(), m_NegInfFloat()))
    return {};
  return {compare.getLhs(), select.getFalseValue()};
}

/// Whether `value` is `factor`, or that times a constant.
static bool isMultipleOf(Value value, Value factor) {
  auto product = value.getDefiningOp<arith::MulFOp>();
  return value == factor || (product && product.getLhs() == factor &&
                             matchPattern(product.getRhs(), m_Constant()));
}

/// Whether an argument of a map's body is never -inf, since another map has
/// replaced that, maybe by infinity.
static bool isGuarded(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  auto map =
      argument ? dyn_cast<MapOp>(argument.getOwner()->getParentOp()) : MapOp();
  if (!map)
    return false;
  Value input = map.getInputs()[argument.getArgNumber()];
  auto from = input.getDefiningOp<MapOp>();
  if (!from)
    return false;
  auto select = from.getYielded()[cast<OpResult>(input).getResultNumber()]
                    .getDefiningOp<arith::SelectOp>();
  if (!select)
    return false;
  if (matchPattern(select.getFalseValue(), m_PosInfFloat()))
    return isGuarded(select.getTrueValue());
  auto [tested, otherwise] = matchGuard(select);
  return tested && tested == otherwise &&
         matchPattern(select.getTrueValue(), m_AnyZeroFloat());
}

/// Whether a value is x, or a multiple of it, less something that is not -inf,
/// however rounded.
static bool isLessOf(Value value, Value x) {
  Operation *def = value.getDefiningOp();
  if (auto either = dyn_cast_or_null<arith::SelectOp>(def))
    return isLessOf(either.getTrueValue(), x) &&
           isLessOf(either.getFalseValue(), x);
  if (auto fused = dyn_cast_or_null<math::FmaOp>(def)) {
    auto less = fused.getC().getDefiningOp<arith::NegFOp>();
    return fused.getA() == x && matchPattern(fused.getB(), m_Constant()) &&
           less && isGuarded(less.getOperand());
  }
  auto difference = dyn_cast_or_null<arith::SubFOp>(def);
  return difference && isMultipleOf(difference.getLhs(), x) &&
         isGuarded(difference.getRhs());
}

/// Of `x == -inf ? 0 : exp(x - y)`, the exponential if y is not -inf: then it
/// is 0 already. Of exp2 and a multiple of x, too.
static Value findExpOfFinite(arith::SelectOp select) {
  auto [tested, otherwise] = matchGuard(select);
  if (!tested || !matchPattern(select.getTrueValue(), m_AnyZeroFloat()))
    return {};
  Operation *exp = otherwise.getDefiningOp();
  bool isPower = isa_and_present<math::ExpOp, math::Exp2Op>(exp);
  return isPower && isLessOf(exp->getOperand(0), tested) ? otherwise : Value();
}

/// Whether what an operation gives is an exponent, or one that another may
/// stand for.
static bool isExponent(Operation &op) {
  return llvm::any_of(op.getUsers(), [](Operation *user) {
    return isa<math::ExpOp, math::Exp2Op>(user) ||
           user->hasAttr(nsa::kShortcutAttr);
  });
}

static Value createExp2(ThreadBuilder &b, Value power) {
  return LLVM::CallIntrinsicOp::create(
             b, b.getF32Type(), b.getStringAttr("llvm.nvvm.ex2.approx.ftz.f"),
             ValueRange{power})
      .getResult(0);
}

/// exp(x) = 2^(x log2(e)). The factor must not be folded into the difference
/// that x often is: the rounding error of a large number times log2(e) would be
/// one of the exponent.
static Value createExp(ThreadBuilder &b, Value x) {
  return createExp2(b,
                    arith::MulFOp::create(
                        b, x, b.constant(b.getF32Type(), 1.44269504088896341)));
}

/// What an operation of a map's body gives, in a form of its own or as a copy.
static void runInner(ThreadBuilder &b, Operation &op, IRMapping &mapping,
                     ArrayRef<arith::SelectOp> assumed) {
  auto give = [&](Value value) { mapping.map(op.getResult(0), value); };
  if (auto exp = dyn_cast<math::ExpOp>(op); exp && exp.getType().isF32())
    return give(createExp(b, mapping.lookupOrDefault(exp.getOperand())));
  if (auto exp = dyn_cast<math::Exp2Op>(op); exp && exp.getType().isF32())
    return give(createExp2(b, mapping.lookupOrDefault(exp.getOperand())));
  if (auto select = dyn_cast<arith::SelectOp>(op)) {
    if (llvm::is_contained(assumed, select))
      return give(mapping.lookupOrDefault(select.getTrueValue()));
    if (Value value = findExpOfFinite(select))
      return give(mapping.lookupOrDefault(value));
  }
  if (auto max = dyn_cast<arith::MaxNumFOp>(op))
    return give(LLVM::MaxNumOp::create(b, mapping.lookupOrDefault(max.getLhs()),
                                       mapping.lookupOrDefault(max.getRhs())));
  Operation *copy = b.clone(op, mapping);
  // A dot and its sum are rounded once, as on tensor cores. Exponents are not:
  // the difference of equal scores is 0, however large they are.
  if (!isExponent(op) && isa<arith::MulFOp, arith::AddFOp, arith::SubFOp>(copy))
    copy->setAttr("fastmath",
                  arith::FastMathFlagsAttr::get(
                      b.getContext(), arith::FastMathFlags::contract));
}

/// Whether everything that the map computes is rounded to 16 bits.
static bool isRounded(MapOp op) {
  return llvm::all_of(op.getResultTypes(), [](Type type) {
    Type element = cast<TileType>(type).getElementType();
    return isa<FloatType>(element) && element.getIntOrFloatBitWidth() == 16;
  });
}

/// The same for tiles of blocked layouts: exact, or where results are `rounded`
/// with errors of a few units in the last place of f32 where that is faster.
static void runInnerBlocked(ThreadBuilder &b, Operation &op, IRMapping &mapping,
                            bool rounded) {
  auto exp = dyn_cast<math::ExpOp>(op);
  if (rounded && exp && exp.getType().isF32())
    return mapping.map(exp.getResult(),
                       createExp(b, mapping.lookupOrDefault(exp.getOperand())));
  Operation *copy = b.clone(op, mapping);
  if (auto division = dyn_cast<arith::DivFOp>(copy); division && rounded)
    division.setFastmath(arith::FastMathFlags::afn);
}

IRMapping TileReader::mapOuter(MapOp op) {
  IRMapping mapping;
  for (Operation &inner : op.getBody().front())
    for (Value operand : inner.getOperands())
      if (operand.getParentRegion() != &op.getBody())
        mapping.map(operand, scalar(operand));
  return mapping;
}

SmallVector<Value> TileReader::runBody(MapOp op, ValueRange elements,
                                       IRMapping &mapping,
                                       const llvm::SmallBitVector &wide,
                                       ArrayRef<arith::SelectOp> assumed) {
  Block &body = op.getBody().front();
  mapping.map(body.getArguments(), elements);
  bool isBlocked = hasBlockedLayout(op.getShapeType()), rounded = isRounded(op);
  for (Operation &inner : body.without_terminator())
    if (isBlocked)
      runInnerBlocked(b, inner, mapping, rounded);
    else
      runInner(b, inner, mapping, assumed);
  SmallVector<Value> yielded;
  for (auto [i, value] : llvm::enumerate(op.getYielded())) {
    if (!wide.empty() && wide[i])
      value = value.getDefiningOp<arith::TruncFOp>().getIn();
    yielded.push_back(mapping.lookup(value));
  }
  return yielded;
}

Value TileReader::evaluate(Value operand, Value row, Value col, Memo &memo) {
  auto type = dyn_cast<TileType>(operand.getType());
  if (!type)
    return scalar(operand);
  if (type.getRows() == 1)
    row = {};
  if (type.getCols() == 1)
    col = {};
  std::tuple<Value, Value, Value> key(operand, row, col);
  if (Value known = memo.lookup(key))
    return known;
  auto remember = [&](Value value) { return memo[key] = value; };

  Operation *def = operand.getDefiningOp();
  if (auto splat = dyn_cast<SplatOp>(def))
    return scalar(splat.getValue());
  if (auto range = dyn_cast<RangeOp>(def)) {
    Value start = scalar(range.getStart());
    Value along = range.getAxis() == 0 ? row : col;
    return along ? remember(b.add(start, b.mul(along, range.getStep())))
                 : start;
  }
  if (auto map = dyn_cast<MapOp>(def)) {
    SmallVector<Value> elements;
    for (Value input : map.getInputs())
      elements.push_back(evaluate(input, row, col, memo));
    IRMapping mapping = mapOuter(map);
    SmallVector<Value> yielded = runBody(map, elements, mapping);
    for (auto [result, value] : llvm::zip_equal(map.getResults(), yielded))
      memo[{result, row, col}] = value;
    return memo[key];
  }
  if (auto select = dyn_cast<arith::SelectOp>(def))
    return remember(b.select(scalar(select.getCondition()),
                             evaluate(select.getTrueValue(), row, col, memo),
                             evaluate(select.getFalseValue(), row, col, memo)));
  if (auto lanes = dyn_cast<FromLanesOp>(def))
    return remember(b.shuffleFrom(scalar(lanes.getOwn()),
                                  b.div(row ? row : col, lanes.getGroup())));
  auto load = cast<LoadOp>(def);
  SmallVector<Value> coordinates;
  for (Value index : load.getIndices())
    coordinates.push_back(evaluate(index, row, col, memo));
  return remember(loadFrom(
      *this, load.getRef(),
      addressOf(*this, load.getRef(), load.getIndices(), coordinates)));
}

//===----------------------------------------------------------------------===//
// Global memory
//===----------------------------------------------------------------------===//

/// Whether every coordinate of an index is inside. A piece whose length divides
/// the extent and the number where it begins is inside if it begins there.
bool nsa::cuda::isInside(TileBounds &bounds, Value index,
                         const Extent &extent) {
  if (bounds.isInside(index, extent))
    return true;
  auto range = index.getDefiningOp<RangeOp>();
  if (!extent.isConstant() || !range || range.getStep() != 1)
    return false;
  int64_t length = range.getType().getNumElements();
  return llvm::isPowerOf2_64(length) && int64_t(extent) % length == 0 &&
         getDivisor(range.getStart(), length) == length &&
         bounds.isInside(range.getStart(), extent);
}

Address nsa::cuda::addressOf(TileReader &in, Value ref, ValueRange indices,
                             ValueRange coordinates) {
  ThreadBuilder &b = in.b;
  const ExtentTable &extents = in.bounds.getExtents();
  auto type = cast<MemRefType>(ref.getType());
  // Where it starts is part of the pointer that the launch passes.
  SmallVector<Extent> shape = extents.getShape(type),
                      strides = extents.getStrides(type);
  int64_t last = 0;
  for (auto [extent, stride] : llvm::zip_equal(shape, strides))
    last += std::max<int64_t>(int64_t(extent) - 1, 0) * int64_t(stride);
  bool wide = last > INT32_MAX || extents.isNeededBy(type);

  Address address;
  for (auto [index, coordinate, extent, stride] :
       llvm::zip_equal(indices, coordinates, shape, strides)) {
    if (!coordinate)
      continue;
    if (!isInside(in.bounds, index, extent))
      address.valid = b.both(address.valid, b.inside(coordinate, extent));
    Value term = coordinate;
    if (wide)
      term = arith::ExtSIOp::create(b, b.getI64Type(), term);
    term = b.mul(term, stride);
    address.offset = address.offset ? b.add(address.offset, term) : term;
  }
  if (!address.offset)
    address.offset = wide ? b.i64(0) : b.i32(0);
  return address;
}

Address nsa::cuda::both(ThreadBuilder &b, const Address &lhs,
                        const Address &rhs) {
  return {b.add(lhs.offset, rhs.offset), b.both(lhs.valid, rhs.valid)};
}

Value nsa::cuda::loadFrom(TileReader &in, Value ref, const Address &address,
                          int64_t count) {
  ThreadBuilder &b = in.b;
  auto type = cast<MemRefType>(ref.getType());
  Type element = type.getElementType();
  Type loaded = count == 1 ? element : VectorType::get({count}, element);
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(loaded));
  if (type.getNumElements() == 0)
    return zero;
  if (!address.valid)
    return b.load(in.scalar(ref), address.offset, loaded);
  Value offset = b.select(address.valid, address.offset,
                          b.constant(address.offset.getType(), 0));
  return b.select(address.valid, b.load(in.scalar(ref), offset, loaded), zero);
}
