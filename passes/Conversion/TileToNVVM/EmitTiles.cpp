//===- EmitTiles.cpp - computation on tiles -------------------------------===//

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Remarks.h"
#include "passes/Conversion/TileToNVVM/KernelEmitter.h"
#include "passes/Conversion/TileToNVVM/WarpBranches.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

void KernelEmitter::readBack(Value tile, const SharedTile &from) {
  BlockedLayout blocked = blockedLayoutOf(tile);
  SmallVector<Value> &values = registers[tile];
  for (int64_t k = 0; k < blocked.registers(); ++k) {
    auto [row, col] = placeInside(blocked, k);
    values.push_back(readShared(from, row, col));
  }
}

//===----------------------------------------------------------------------===//
// Elementwise
//===----------------------------------------------------------------------===//

/// Whether everything that the map computes is rounded to 16 bits.
static bool isRounded(MapOp op) {
  return llvm::all_of(op.getResultTypes(), [](Type type) {
    Type element = cast<TileType>(type).getElementType();
    return isa<FloatType>(element) && element.getIntOrFloatBitWidth() == 16;
  });
}

/// An operation of a map whose results are `rounded`: with errors of a few
/// units in the last place of f32 where that is faster.
static void emitElement(ThreadBuilder &b, Operation &op, IRMapping &mapping,
                        bool rounded) {
  auto exp = dyn_cast<math::ExpOp>(op);
  if (rounded && exp && exp.getType().isF32()) {
    Value power =
        arith::MulFOp::create(b, mapping.lookupOrDefault(exp.getOperand()),
                              b.constant(b.getF32Type(), 1.44269504088896341));
    auto call = LLVM::CallIntrinsicOp::create(
        b, b.getF32Type(), b.getStringAttr("llvm.nvvm.ex2.approx.ftz.f"),
        ValueRange{power});
    return mapping.map(exp.getResult(), call.getResult(0));
  }
  Operation *copy = b.clone(op, mapping);
  if (auto division = dyn_cast<arith::DivFOp>(copy); division && rounded)
    division.setFastmath(arith::FastMathFlags::afn);
}

void KernelEmitter::emitMap(MapOp op) {
  TileType shape = op.getShapeType();
  SmallVector<Source> sources = prepare(op.getInputs(), shape);
  BlockedLayout blocked = blockedLayoutOf(shape);
  Block &body = op.getBody().front();
  bool rounded = isRounded(op);
  for (int64_t k = 0; k < blocked.registers(); ++k) {
    auto [row, col] = placeInside(blocked, k);
    IRMapping mapping(scalars);
    for (auto [argument, source] :
         llvm::zip_equal(body.getArguments(), sources))
      mapping.map(argument, element(source, k, row, col));
    for (Operation &inner : body.without_terminator())
      emitElement(b, inner, mapping, rounded);
    for (auto [result, value] :
         llvm::zip_equal(op.getResults(), op.getYielded()))
      registers[result].push_back(mapping.lookupOrDefault(value));
  }
}

void KernelEmitter::emitTranspose(TransposeOp op) {
  beginLayoutConversion();
  SharedTile shared = localStore(op.getInput());
  endLocalStores();
  BlockedLayout blocked = blockedLayoutOf(op.getResult());
  SmallVector<Value> &values = registers[op.getResult()];
  for (int64_t k = 0; k < blocked.registers(); ++k) {
    auto [row, col] = placeInside(blocked, k);
    values.push_back(readShared(shared, col, row));
  }
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Each thread sums the dots of its own elements, in order.
void KernelEmitter::emitDot(DotOp op) {
  BlockedLayout blocked = blockedLayoutOf(op.getResult());
  auto aType = cast<TileType>(op.getA().getType());
  int64_t length = op.getTransposeA() ? aType.getRows() : aType.getCols();
  beginLayoutConversion();
  SharedTile lhs = localStore(op.getA());
  SharedTile rhs = localStore(op.getB());
  endLocalStores();

  SmallVector<std::pair<Value, Value>> places;
  for (int64_t k = 0; k < blocked.registers(); ++k)
    places.push_back(placeInside(blocked, k));
  auto read = [&](const SharedTile &tile, bool transposed, Value row,
                  Value col) {
    Value value =
        transposed ? readShared(tile, col, row) : readShared(tile, row, col);
    if (value.getType().isF32())
      return value;
    return Value(arith::ExtFOp::create(b, b.getF32Type(), value));
  };
  int64_t unroll = length % 4 == 0 ? 4 : 1;
  auto multiply = [&](Value i0, ValueRange carried) {
    SmallVector<Value> sums(carried);
    for (int64_t u = 0; u < unroll; ++u) {
      Value i = b.add(i0, u);
      // Registers of one thread often share their row or column.
      llvm::DenseMap<Value, Value> rows, cols;
      for (auto [sum, at] : llvm::zip_equal(sums, places)) {
        auto [row, col] = at;
        Value &x = rows[row], &y = cols[col];
        if (!x)
          x = read(lhs, op.getTransposeA(), row, i);
        if (!y)
          y = read(rhs, op.getTransposeB(), i, col);
        sum = math::FmaOp::create(b, x, y, sum);
      }
    }
    return sums;
  };
  registers[op.getResult()] = b.loop(b.i32(0), b.i32(length), b.i32(unroll),
                                     registersOf(op.getAcc()), multiply);
}

//===----------------------------------------------------------------------===//
// Votes
//===----------------------------------------------------------------------===//

/// All threads vote at a barrier.
void KernelEmitter::emitAny(AnyOp op) {
  Value some = b.constant(b.getI1Type(), 0);
  auto add = [&](Value value, Value exists) {
    some = b.createOrFold<arith::OrIOp>(some, b.both(value, exists));
  };
  if (hasMmaLayout(op.getInput().getType())) {
    MmaLayout layout(op.getInput());
    for (auto [r, value] : llvm::enumerate(elementsOf(op.getInput())))
      add(value, hasRow(layout, int64_t(r)));
    std::string obstacle = findWarpBranchObstacle(op);
    if (obstacle.empty())
      return scalars.map(op.getResult(), NVVM::VoteSyncOp::create(
                                             b, b.getI1Type(), b.i32(-1), some,
                                             NVVM::VoteSyncKind::any));
    remark::missed(op.getLoc(), remark::RemarkOpts::name("Branch")
                                    .category("nsa-tile-to-nvvm")
                                    .function(kernel.getSymName()))
        << remark::reason("not for each warp alone: {0}", obstacle);
  } else {
    BlockedLayout blocked = blockedLayoutOf(op.getInput());
    for (auto [k, value] : llvm::enumerate(registersOf(op.getInput())))
      add(value, isElement(blocked, int64_t(k)));
  }
  scalars.map(op.getResult(),
              tile_gpu::AnyThreadOp::create(b, b.getI1Type(), some));
}
