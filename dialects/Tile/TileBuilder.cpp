//===- TileBuilder.cpp - kernels that read like pseudo-code ---------------===//

#include "dialects/Tile/TileBuilder.h"
#include "dialects/Interfaces/RowLayout.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <utility>

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

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

Expr nsa::toExpr(const Extent &extent, Expr like) {
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
  Value first = lower.get(b), end = upper.get(b), stride = step.get(b);
  return nsa::forLoop(b, first, end, stride, inits, body);
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

Value nsa::tile::add(TileBuilder &b, Value lhs, Value rhs) {
  bool isInteger = cast<TileType>(lhs.getType()).getElementType().isInteger();
  return b.map({lhs, rhs}, isInteger ? b.i32() : b.f32(),
               [](ArrayRef<Expr> x) { return x[0] + x[1]; });
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
