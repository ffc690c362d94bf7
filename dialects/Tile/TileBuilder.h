//===- TileBuilder.h - kernels that read like pseudo-code -------*- C++ -*-===//
//
// A thin layer over the builders of the tile, arith, math and scf operations:
//
//   createKernel(module, loc, "scale", {type}, {type}, {4, 1, 1},
//                [](TileBuilder &b, ArrayRef<Value> args) {
//     Value i = b.range(b.programId(0) * 64, 64, /*axis=*/1);
//     Value y = b.map({b.load(args[0], {i})}, b.f32(),
//                     [](ArrayRef<Expr> x) { return exp(x[0]) * 2; });
//     b.store(y, args[1], {i});
//   });
//
// Nothing here verifies: the operations do. Every function inserts at the
// builder's insertion point, which is inside the region while the function
// that fills a map, a loop or a branch runs.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_TILE_TILEBUILDER_H
#define NSA_DIALECTS_TILE_TILEBUILDER_H

#include "dialects/Interfaces/Expr.h"
#include "dialects/Interfaces/Extents.h"
#include "dialects/Tile/TileOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace nsa {

/// A size in a kernel: a constant of the type of `like`, or what the extents of
/// the launch give.
Expr toExpr(const Extent &extent, Expr like);

#define NSA_EXTENT_OPERATOR(OP)                                                \
  inline Expr operator OP(Expr lhs, const Extent &rhs) {                       \
    return lhs OP toExpr(rhs, lhs);                                            \
  }                                                                            \
  inline Expr operator OP(const Extent &lhs, Expr rhs) {                       \
    return toExpr(lhs, rhs) OP rhs;                                            \
  }
NSA_EXTENT_OPERATOR(+)
NSA_EXTENT_OPERATOR(-)
NSA_EXTENT_OPERATOR(*)
NSA_EXTENT_OPERATOR(/)
NSA_EXTENT_OPERATOR(%)
NSA_EXTENT_OPERATOR(<)
NSA_EXTENT_OPERATOR(<=)
NSA_EXTENT_OPERATOR(>)
NSA_EXTENT_OPERATOR(>=)
NSA_EXTENT_OPERATOR(==)
NSA_EXTENT_OPERATOR(!=)
#undef NSA_EXTENT_OPERATOR

inline Expr max(Expr lhs, const Extent &rhs) {
  return max(lhs, toExpr(rhs, lhs));
}
inline Expr min(Expr lhs, const Extent &rhs) {
  return min(lhs, toExpr(rhs, lhs));
}
inline Expr select(Expr condition, Expr ifTrue, const Extent &ifFalse) {
  return select(condition, ifTrue, toExpr(ifFalse, ifTrue));
}

namespace tile {

using nsa::Expr;
using nsa::toExpr;

/// Something usable as a coordinate, bound or scalar: a value or an integer.
class Operand {
public:
  Operand(mlir::Value value) : value(value) {}
  Operand(Expr value) : value(value) {}
  Operand(int number) : number(number) {}
  Operand(int64_t number) : number(number) {}
  Operand(const Extent &extent) : number(extent) {}

  /// The value, or an i32 constant or expression.
  mlir::Value get(mlir::ImplicitLocOpBuilder &builder) const;

private:
  mlir::Value value;
  Extent number = 0;
};

class TileBuilder {
public:
  using MapBody = llvm::function_ref<mlir::Value(llvm::ArrayRef<Expr>)>;
  using MapManyBody =
      llvm::function_ref<llvm::SmallVector<mlir::Value>(llvm::ArrayRef<Expr>)>;
  using LoopBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      Expr, llvm::ArrayRef<mlir::Value>)>;
  using BranchBody = llvm::function_ref<llvm::SmallVector<mlir::Value>()>;

  /// Inserts where `builder` does.
  TileBuilder(mlir::OpBuilder &builder, mlir::Location loc) : b(loc, builder) {}
  TileBuilder(const TileBuilder &) = delete;
  TileBuilder &operator=(const TileBuilder &) = delete;

  /// For operations that have no helper here.
  mlir::ImplicitLocOpBuilder &getBuilder() { return b; }

  mlir::Type f32() { return b.getF32Type(); }
  mlir::Type i32() { return b.getI32Type(); }
  mlir::Type i1() { return b.getI1Type(); }

  // Scalars.
  Expr expr(mlir::Value value) { return Expr(b, value); }
  Expr constant(int64_t number);
  Expr constantF32(double number);
  /// Axis 0 is x.
  Expr programId(int axis);
  /// Builds what is written for a grid of its own as part of a larger one:
  /// while `body` runs, programId(axis) is `ids[axis]`. `part` is what it has
  /// beside these numbers.
  void asProgram(std::array<Expr, 3> ids, llvm::function_ref<void()> body,
                 std::optional<Expr> part = std::nullopt);
  /// The part of `asProgram`; 0 without one.
  Expr programPart() { return part ? *part : constant(0); }
  /// The scalar at the coordinates; 0 outside.
  Expr loadScalar(mlir::Value ref, llvm::ArrayRef<Operand> indices);
  /// Writes a scalar, rounded to the element type of `ref`.
  void storeScalar(mlir::Value value, mlir::Value ref,
                   llvm::ArrayRef<Operand> indices);

  // Tiles. Shapes are rows x columns.
  /// start, start + step, ...: size x 1 along axis 0, 1 x size along axis 1.
  mlir::Value range(Operand start, int64_t size, int axis, int64_t step = 1);
  mlir::Value splat(mlir::Value scalar, int64_t rows, int64_t cols);
  /// Tiles of f32.
  mlir::Value full(double number, int64_t rows, int64_t cols);
  mlir::Value zeros(int64_t rows, int64_t cols) { return full(0, rows, cols); }

  /// `ref` as a memref of another shape with the same number of elements.
  mlir::Value view(mlir::Value ref, llvm::ArrayRef<Extent> shape);

  /// The tile that the broadcast index tiles address, in the element type of
  /// `ref`; coordinates outside read as 0.
  mlir::Value load(mlir::Value ref, llvm::ArrayRef<Operand> indices);
  /// load, converted to f32.
  mlir::Value loadF32(mlir::Value ref, llvm::ArrayRef<Operand> indices) {
    return toF32(load(ref, indices));
  }
  /// Writes a tile; f32 elements are rounded to the element type of `ref`.
  void store(mlir::Value value, mlir::Value ref,
             llvm::ArrayRef<Operand> indices);

  /// Elementwise over the broadcast shape of `inputs`. Elements of bf16 and f16
  /// inputs arrive as f32, and what the body returns is converted to
  /// `elementType`.
  mlir::Value map(llvm::ArrayRef<mlir::Value> inputs, mlir::Type elementType,
                  MapBody body);
  /// The same with one result per element type.
  llvm::SmallVector<mlir::Value> map(llvm::ArrayRef<mlir::Value> inputs,
                                     llvm::ArrayRef<mlir::Type> elementTypes,
                                     MapManyBody body);

  /// The tile in another element type; the tile itself if it has it already.
  mlir::Value convertTo(mlir::Value tile, mlir::Type elementType);
  mlir::Value toF32(mlir::Value tile) { return convertTo(tile, f32()); }

  /// acc + op(a) op(b). If one of a and b is f32 and the other narrower, the
  /// f32 one is rounded to the narrower type first.
  mlir::Value dot(mlir::Value a, mlir::Value b, mlir::Value acc,
                  bool transposeB = false, bool transposeA = false);
  mlir::Value reduce(ReduceKind kind, mlir::Value input, int axis = 1);
  mlir::Value reduceAdd(mlir::Value input, int axis = 1) {
    return reduce(ReduceKind::Add, input, axis);
  }
  mlir::Value reduceMax(mlir::Value input, int axis = 1) {
    return reduce(ReduceKind::Max, input, axis);
  }
  /// Whether some element of a tile of i1 is true.
  Expr any(mlir::Value input);
  /// The same of a column, but only of those rows that are computed together.
  Expr anyOfWarp(mlir::Value rows);
  mlir::Value transpose(mlir::Value input);
  /// {best values, best indices} after merging `values`.
  std::pair<mlir::Value, mlir::Value> topN(mlir::Value values, Operand base,
                                           mlir::Value bestValues,
                                           mlir::Value bestIndices);
  mlir::Value sort(mlir::Value input);

  // Control flow.
  /// for (i = lower; i < upper; i += step). `body` receives i and the carried
  /// values and returns their next values.
  llvm::SmallVector<mlir::Value> forLoop(Operand lower, Operand upper,
                                         Operand step,
                                         llvm::ArrayRef<mlir::Value> inits,
                                         LoopBody body);
  /// Both branches return values of the same types.
  llvm::SmallVector<mlir::Value> ifThenElse(Expr condition, BranchBody thenBody,
                                            BranchBody elseBody);
  void ifThen(Expr condition, llvm::function_ref<void()> body);

private:
  llvm::SmallVector<mlir::Value> materialise(llvm::ArrayRef<Operand> operands);

  mlir::ImplicitLocOpBuilder b;
  std::optional<std::array<Expr, 3>> program;
  std::optional<Expr> part;
};

/// lhs + rhs, of i32 or in f32.
mlir::Value add(TileBuilder &b, mlir::Value lhs, mlir::Value rhs);

/// Appends a private kernel to `module`. Inputs and outputs are tensor or
/// memref types of static shape; `body` receives the memrefs, inputs first.
/// The grid is x, y, z.
KernelOp createKernel(
    mlir::ModuleOp module, mlir::Location loc, llvm::StringRef name,
    llvm::ArrayRef<mlir::Type> inputs, llvm::ArrayRef<mlir::Type> outputs,
    llvm::ArrayRef<int32_t> grid,
    llvm::function_ref<void(TileBuilder &, llvm::ArrayRef<mlir::Value>)> body);

} // namespace tile
} // namespace nsa

#endif // NSA_DIALECTS_TILE_TILEBUILDER_H
