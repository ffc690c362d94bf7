//===- TileBuilder.cpp - kernels that read like pseudo-code ---------------===//

#include "dialects/Tile/TileBuilder.h"
#include "dialects/Interfaces/RowLayout.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <utility>

using namespace mlir;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Expressions
//===----------------------------------------------------------------------===//

static Expr makeConstant(ImplicitLocOpBuilder &b, Type type, double number) {
  if (isa<FloatType>(type))
    return Expr(b, arith::ConstantOp::create(b, b.getFloatAttr(type, number)));
  auto integer = static_cast<int64_t>(number);
  bool fits = !type.isInteger(32) || llvm::isInt<32>(integer);
  auto constant =
      arith::ConstantOp::create(b, b.getIntegerAttr(type, fits ? integer : 0));
  if (!fits)
    constant->setAttr(kTooLargeAttr, b.getI64IntegerAttr(integer));
  return Expr(b, constant);
}

Expr Expr::constant(double number) const {
  return makeConstant(*builder, getType(), number);
}

/// The float or the integer form of an operation, by the type of `lhs`.
template <typename FloatOp, typename IntOp>
static Expr binary(Expr lhs, Expr rhs) {
  ImplicitLocOpBuilder &b = lhs.getBuilder();
  if (isa<FloatType>(lhs.getType()))
    return Expr(b, FloatOp::create(b, lhs, rhs));
  return Expr(b, IntOp::create(b, lhs, rhs));
}

static Expr compare(Expr lhs, Expr rhs, arith::CmpFPredicate floatPredicate,
                    arith::CmpIPredicate intPredicate) {
  ImplicitLocOpBuilder &b = lhs.getBuilder();
  if (isa<FloatType>(lhs.getType()))
    return Expr(b, arith::CmpFOp::create(b, floatPredicate, lhs, rhs));
  return Expr(b, arith::CmpIOp::create(b, intPredicate, lhs, rhs));
}

namespace nsa::tile {

Expr operator+(Expr lhs, Expr rhs) {
  return binary<arith::AddFOp, arith::AddIOp>(lhs, rhs);
}
Expr operator-(Expr lhs, Expr rhs) {
  return binary<arith::SubFOp, arith::SubIOp>(lhs, rhs);
}
Expr operator*(Expr lhs, Expr rhs) {
  return binary<arith::MulFOp, arith::MulIOp>(lhs, rhs);
}
Expr operator/(Expr lhs, Expr rhs) {
  return binary<arith::DivFOp, arith::DivSIOp>(lhs, rhs);
}
Expr operator%(Expr lhs, Expr rhs) {
  return binary<arith::RemFOp, arith::RemSIOp>(lhs, rhs);
}
Expr operator<(Expr lhs, Expr rhs) {
  return compare(lhs, rhs, arith::CmpFPredicate::OLT,
                 arith::CmpIPredicate::slt);
}
Expr operator<=(Expr lhs, Expr rhs) {
  return compare(lhs, rhs, arith::CmpFPredicate::OLE,
                 arith::CmpIPredicate::sle);
}
Expr operator>(Expr lhs, Expr rhs) {
  return compare(lhs, rhs, arith::CmpFPredicate::OGT,
                 arith::CmpIPredicate::sgt);
}
Expr operator>=(Expr lhs, Expr rhs) {
  return compare(lhs, rhs, arith::CmpFPredicate::OGE,
                 arith::CmpIPredicate::sge);
}
Expr operator==(Expr lhs, Expr rhs) {
  return compare(lhs, rhs, arith::CmpFPredicate::OEQ, arith::CmpIPredicate::eq);
}
Expr operator!=(Expr lhs, Expr rhs) {
  return compare(lhs, rhs, arith::CmpFPredicate::UNE, arith::CmpIPredicate::ne);
}

Expr operator&(Expr lhs, Expr rhs) {
  ImplicitLocOpBuilder &b = lhs.getBuilder();
  return Expr(b, arith::AndIOp::create(b, lhs, rhs));
}
Expr operator|(Expr lhs, Expr rhs) {
  ImplicitLocOpBuilder &b = lhs.getBuilder();
  return Expr(b, arith::OrIOp::create(b, lhs, rhs));
}
Expr operator<<(Expr value, Expr places) {
  ImplicitLocOpBuilder &b = value.getBuilder();
  return Expr(b, arith::ShLIOp::create(b, value, places));
}
Expr operator>>(Expr value, Expr places) {
  ImplicitLocOpBuilder &b = value.getBuilder();
  return Expr(b, arith::ShRUIOp::create(b, value, places));
}
Expr operator!(Expr value) {
  ImplicitLocOpBuilder &b = value.getBuilder();
  Value allOnes = arith::ConstantOp::create(b, b.getBoolAttr(true));
  return Expr(b, arith::XOrIOp::create(b, value, allOnes));
}
Expr operator-(Expr value) {
  ImplicitLocOpBuilder &b = value.getBuilder();
  if (isa<FloatType>(value.getType()))
    return Expr(b, arith::NegFOp::create(b, value));
  return 0.0 - value;
}

Expr max(Expr lhs, Expr rhs) {
  return binary<arith::MaxNumFOp, arith::MaxSIOp>(lhs, rhs);
}
Expr min(Expr lhs, Expr rhs) {
  return binary<arith::MinNumFOp, arith::MinSIOp>(lhs, rhs);
}

Expr select(Expr condition, Expr ifTrue, Expr ifFalse) {
  ImplicitLocOpBuilder &b = condition.getBuilder();
  return Expr(b, arith::SelectOp::create(b, condition, ifTrue, ifFalse));
}

Expr fma(Expr x, Expr y, Expr z) {
  ImplicitLocOpBuilder &b = x.getBuilder();
  return Expr(b, math::FmaOp::create(b, x, y, z));
}

Expr floorDiv(Expr lhs, Expr rhs) {
  ImplicitLocOpBuilder &b = lhs.getBuilder();
  return Expr(b, arith::FloorDivSIOp::create(b, lhs, rhs));
}
Expr ceilDiv(Expr lhs, Expr rhs) {
  ImplicitLocOpBuilder &b = lhs.getBuilder();
  return Expr(b, arith::CeilDivSIOp::create(b, lhs, rhs));
}

#define NSA_TILE_UNARY(NAME, OP)                                               \
  Expr NAME(Expr value) {                                                      \
    ImplicitLocOpBuilder &b = value.getBuilder();                              \
    return Expr(b, math::OP::create(b, value));                                \
  }
NSA_TILE_UNARY(exp, ExpOp)
NSA_TILE_UNARY(exp2, Exp2Op)
NSA_TILE_UNARY(log, LogOp)
NSA_TILE_UNARY(sqrt, SqrtOp)
#undef NSA_TILE_UNARY

Expr sigmoid(Expr x) { return 1 / (1 + exp(-x)); }

Expr abs(Expr value) {
  ImplicitLocOpBuilder &b = value.getBuilder();
  if (isa<FloatType>(value.getType()))
    return Expr(b, math::AbsFOp::create(b, value));
  return Expr(b, math::AbsIOp::create(b, value));
}

Expr convert(Expr expr, Type type) {
  ImplicitLocOpBuilder &b = expr.getBuilder();
  Value value = expr;
  Type from = value.getType();
  if (from == type)
    return expr;
  if (from.isInteger(1) && type.isInteger())
    return Expr(b, arith::ExtUIOp::create(b, type, value));
  if (from.isInteger(1))
    return Expr(b, arith::UIToFPOp::create(b, type, value));
  if (isa<IntegerType>(from))
    return Expr(b, arith::SIToFPOp::create(b, type, value));
  if (isa<IntegerType>(type))
    return Expr(b, arith::FPToSIOp::create(b, type, value));
  if (from.getIntOrFloatBitWidth() < type.getIntOrFloatBitWidth())
    return Expr(b, arith::ExtFOp::create(b, type, value));
  return Expr(b, arith::TruncFOp::create(b, type, value));
}

} // namespace nsa::tile

/// The value of an extent that is no constant, at the beginning of the kernel:
/// the bodies of maps, too, use scalars from there.
static Value expand(ImplicitLocOpBuilder &b, const nsa::Extent &extent) {
  OpBuilder::InsertionGuard guard(b);
  auto kernel = b.getInsertionBlock()->getParent()->getParentOfType<KernelOp>();
  b.setInsertionPointToStart(&kernel.getBody().front());
  SmallVector<Value> arguments;
  for (unsigned number = 0; number < nsa::kNumExtents; ++number)
    arguments.push_back(ExtentOp::create(b, b.getI32Type(), number));
  return nsa::expandExtent(b, b.getLoc(), extent, arguments);
}

Expr nsa::tile::toExpr(const Extent &extent, Expr like) {
  if (extent.isConstant())
    return like.constant(static_cast<double>(static_cast<int64_t>(extent)));
  return Expr(like.getBuilder(), expand(like.getBuilder(), extent));
}

Value Operand::get(ImplicitLocOpBuilder &builder) const {
  if (value)
    return value;
  if (!number.isConstant())
    return expand(builder, number);
  return makeConstant(builder, builder.getI32Type(),
                      static_cast<double>(static_cast<int64_t>(number)));
}

//===----------------------------------------------------------------------===//
// Scalars, creation and memory
//===----------------------------------------------------------------------===//

Expr TileBuilder::constant(int64_t number) {
  return makeConstant(b, i32(), number);
}

Expr TileBuilder::constantF32(double number) {
  return makeConstant(b, f32(), number);
}

void TileBuilder::asProgram(std::array<Expr, 3> ids,
                            llvm::function_ref<void()> body,
                            std::optional<Expr> own) {
  auto outer = std::exchange(program, ids);
  auto outerPart = std::exchange(part, own);
  body();
  program = outer;
  part = outerPart;
}

Expr TileBuilder::programId(int axis) {
  if (program)
    return (*program)[axis];
  return Expr(b, ProgramIdOp::create(b, i32(), axis));
}

SmallVector<Value> TileBuilder::materialise(ArrayRef<Operand> operands) {
  return llvm::map_to_vector(
      operands, [&](const Operand &operand) { return operand.get(b); });
}

Expr TileBuilder::loadScalar(Value ref, ArrayRef<Operand> indices) {
  return Expr(b, load(ref, indices));
}

void TileBuilder::storeScalar(Value value, Value ref,
                              ArrayRef<Operand> indices) {
  Type elementType = cast<MemRefType>(ref.getType()).getElementType();
  StoreOp::create(b, convert(Expr(b, value), elementType), ref,
                  materialise(indices));
}

Value TileBuilder::range(Operand start, int64_t size, int axis, int64_t step) {
  SmallVector<int64_t> shape{1, 1};
  shape[axis] = size;
  return RangeOp::create(b, TileType::get(shape, i32()), start.get(b), step);
}

Value TileBuilder::splat(Value scalar, int64_t rows, int64_t cols) {
  return SplatOp::create(b, TileType::get({rows, cols}, scalar.getType()),
                         scalar);
}

Value TileBuilder::full(double number, int64_t rows, int64_t cols) {
  return splat(constantF32(number), rows, cols);
}

/// The shape to which the tiles among `values` broadcast; empty without tiles.
static SmallVector<int64_t> broadcastShape(ArrayRef<Value> values) {
  SmallVector<int64_t> shape;
  for (Value value : values) {
    auto tile = dyn_cast<TileType>(value.getType());
    if (!tile)
      continue;
    size_t rank = tile.getShape().size();
    while (shape.size() < rank)
      shape.insert(shape.begin(), 1);
    for (size_t i = 0; i < rank; ++i) {
      int64_t &size = shape[shape.size() - rank + i];
      size = std::max(size, tile.getShape()[i]);
    }
  }
  return shape;
}

Value TileBuilder::view(Value ref, ArrayRef<Extent> shape) {
  auto kernel = ref.getParentRegion()->getParentOfType<KernelOp>();
  ExtentTable table = ExtentTable::of(kernel);
  for (const Extent &extent : shape)
    if (!table.add(extent))
      kernel.emitOpError("has two extents for which ")
          << static_cast<int64_t>(extent) << " stands";
  if (!table.empty())
    table.writeTo(kernel);
  SmallVector<int64_t> numbers(shape.begin(), shape.end());
  auto type = cast<MemRefType>(ref.getType());
  if (type.getShape() == ArrayRef(numbers))
    return ref;
  return ViewOp::create(b, MemRefType::get(numbers, type.getElementType()),
                        ref);
}

Value TileBuilder::load(Value ref, ArrayRef<Operand> indices) {
  SmallVector<Value> values = materialise(indices);
  Type type = cast<MemRefType>(ref.getType()).getElementType();
  SmallVector<int64_t> shape = broadcastShape(values);
  if (!shape.empty())
    type = TileType::get(shape, type);
  return LoadOp::create(b, type, ref, values);
}

void TileBuilder::store(Value value, Value ref, ArrayRef<Operand> indices) {
  Type elementType = cast<MemRefType>(ref.getType()).getElementType();
  StoreOp::create(b, convertTo(value, elementType), ref, materialise(indices));
}

//===----------------------------------------------------------------------===//
// Computation
//===----------------------------------------------------------------------===//

SmallVector<Value> TileBuilder::map(ArrayRef<Value> inputs,
                                    ArrayRef<Type> elementTypes,
                                    MapManyBody body) {
  SmallVector<int64_t> shape = broadcastShape(inputs);
  SmallVector<Type> types =
      llvm::map_to_vector(elementTypes, [&](Type type) -> Type {
        return TileType::get(shape, type);
      });
  auto op = MapOp::create(b, types, inputs);
  OpBuilder::InsertionGuard guard(b);
  Block *block = b.createBlock(&op.getBody());
  SmallVector<Expr> elements;
  for (Value input : inputs) {
    Type type = cast<TileType>(input.getType()).getElementType();
    Expr element(b, block->addArgument(type, b.getLoc()));
    bool narrow = isa<FloatType>(type) && !type.isF32();
    elements.push_back(narrow ? convert(element, f32()) : element);
  }
  SmallVector<Value> results = body(elements);
  for (auto [result, type] : llvm::zip(results, elementTypes))
    result = convert(Expr(b, result), type);
  YieldOp::create(b, results);
  return llvm::to_vector_of<Value>(op.getResults());
}

Value TileBuilder::map(ArrayRef<Value> inputs, Type elementType, MapBody body) {
  return map(inputs, ArrayRef<Type>(elementType),
             [&](ArrayRef<Expr> elements) -> SmallVector<Value> {
               return {body(elements)};
             })
      .front();
}

Value TileBuilder::convertTo(Value tile, Type elementType) {
  if (cast<TileType>(tile.getType()).getElementType() == elementType)
    return tile;
  return map({tile}, elementType, [](ArrayRef<Expr> x) { return x[0]; });
}

Value TileBuilder::dot(Value lhs, Value rhs, Value acc, bool transposeB,
                       bool transposeA) {
  Type lhsType = cast<TileType>(lhs.getType()).getElementType();
  Type rhsType = cast<TileType>(rhs.getType()).getElementType();
  if (lhsType.isF32())
    lhs = convertTo(lhs, rhsType);
  else if (rhsType.isF32())
    rhs = convertTo(rhs, lhsType);
  return DotOp::create(b, acc.getType(), lhs, rhs, acc, transposeA, transposeB);
}

Value TileBuilder::reduce(ReduceKind kind, Value input, int axis) {
  return ReduceOp::create(b, kind, input, axis);
}

Expr TileBuilder::any(Value input) {
  return expr(AnyOp::create(b, input, /*warpUniform=*/false));
}
Expr TileBuilder::anyOfWarp(Value rows) {
  return expr(AnyOp::create(b, rows, /*warpUniform=*/true));
}

Value TileBuilder::transpose(Value input) {
  return TransposeOp::create(b, input);
}

std::pair<Value, Value> TileBuilder::topN(Value values, Operand base,
                                          Value bestValues, Value bestIndices) {
  auto op = TopNOp::create(b, bestValues.getType(), bestIndices.getType(),
                           values, base.get(b), bestValues, bestIndices);
  return {op.getTopValues(), op.getTopIndices()};
}

Value TileBuilder::sort(Value input) {
  return SortOp::create(b, input.getType(), input);
}

//===----------------------------------------------------------------------===//
// Control flow and kernels
//===----------------------------------------------------------------------===//

SmallVector<Value> TileBuilder::forLoop(Operand lower, Operand upper,
                                        Operand step, ArrayRef<Value> inits,
                                        LoopBody body) {
  // The region is filled through this builder, so that every Expr follows.
  auto loop =
      scf::ForOp::create(b, lower.get(b), upper.get(b), step.get(b), inits,
                         [](OpBuilder &, Location, Value, ValueRange) {});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(loop.getBody());
  SmallVector<Value> carried(loop.getRegionIterArgs().begin(),
                             loop.getRegionIterArgs().end());
  scf::YieldOp::create(b, body(expr(loop.getInductionVar()), carried));
  return llvm::to_vector_of<Value>(loop.getResults());
}

SmallVector<Value> TileBuilder::ifThenElse(Expr condition, BranchBody thenBody,
                                           BranchBody elseBody) {
  // The results' types are known once the first branch is built: build both
  // into a branch without results, then give the operation its types.
  auto draft = scf::IfOp::create(b, TypeRange(), condition,
                                 /*addThenBlock=*/true, /*addElseBlock=*/true);
  SmallVector<Type> types;
  {
    OpBuilder::InsertionGuard guard(b);
    for (auto [region, body] : {std::pair(&draft.getThenRegion(), thenBody),
                                std::pair(&draft.getElseRegion(), elseBody)}) {
      region->front().clear();
      b.setInsertionPointToEnd(&region->front());
      SmallVector<Value> values = body();
      scf::YieldOp::create(b, values);
      types.assign(ValueRange(values).getTypes().begin(),
                   ValueRange(values).getTypes().end());
    }
  }
  auto branch = scf::IfOp::create(b, types, condition);
  branch.getThenRegion().takeBody(draft.getThenRegion());
  branch.getElseRegion().takeBody(draft.getElseRegion());
  draft.erase();
  return llvm::to_vector_of<Value>(branch.getResults());
}

void TileBuilder::ifThen(Expr condition, llvm::function_ref<void()> body) {
  auto branch = scf::IfOp::create(b, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenBlock()->getTerminator());
  body();
}

KernelOp nsa::tile::createKernel(
    ModuleOp module, Location loc, StringRef name, ArrayRef<Type> inputs,
    ArrayRef<Type> outputs, ArrayRef<int32_t> grid,
    llvm::function_ref<void(TileBuilder &, ArrayRef<Value>)> body) {
  SmallVector<Type> types(inputs);
  llvm::append_range(types, outputs);
  for (Type &type : types)
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      type = getMemRefType(tensor);
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  auto kernel =
      KernelOp::create(builder, loc, name, builder.getFunctionType(types, {}),
                       grid, static_cast<int32_t>(outputs.size()));
  builder.setInsertionPointToEnd(&kernel.getBody().front());
  TileBuilder tileBuilder(builder, loc);
  SmallVector<Value> arguments(kernel.getArguments().begin(),
                               kernel.getArguments().end());
  body(tileBuilder, arguments);
  ReturnOp::create(tileBuilder.getBuilder());
  return kernel;
}
