//===- ElementwisePatterns.cpp - maps, selects and votes ------------------===//

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/Conversion/TileToNVVM/BlockedTiles.h"
#include "passes/Conversion/TileToNVVM/Patterns.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

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
  if (rounded && exp && exp.getType().isF32())
    return mapping.map(exp.getResult(),
                       createExp(b, mapping.lookupOrDefault(exp.getOperand())));
  Operation *copy = b.clone(op, mapping);
  if (auto division = dyn_cast<arith::DivFOp>(copy); division && rounded)
    division.setFastmath(arith::FastMathFlags::afn);
}

static Results lowerBlockedMap(MapOp op, TileReader &in) {
  ThreadBuilder &b = in.b;
  TileType shape = op.getShapeType();
  SmallVector<Source> sources = in.prepare(op.getInputs(), shape);
  BlockedLayout blocked = blockedLayoutOf(shape);
  Block &body = op.getBody().front();
  bool rounded = isRounded(op);
  Results results(op.getNumResults());
  IRMapping mapping = in.mapOuter(op);
  for (int64_t k = 0; k < blocked.registers(); ++k) {
    auto [row, col] = placeInside(b, blocked, k);
    for (auto [argument, source] :
         llvm::zip_equal(body.getArguments(), sources))
      mapping.map(argument, in.element(source, k, row, col));
    for (Operation &inner : body.without_terminator())
      emitElement(b, inner, mapping, rounded);
    for (auto &&[result, value] : llvm::zip_equal(results, op.getYielded()))
      result.push_back(mapping.lookup(value));
  }
  return results;
}

static Results lowerMap(MapOp op, TileReader &in) {
  return hasMmaLayout(op.getShapeType()) ? lowerMmaMap(op, in)
                                         : lowerBlockedMap(op, in);
}

/// Canonicalisation makes these of branches that compute nothing.
static Results lowerSelect(arith::SelectOp op, TileReader &in) {
  Value condition = in.scalar(op.getCondition());
  SmallVector<Value> result;
  for (auto [yes, no] : llvm::zip_equal(in.registersOf(op.getTrueValue()),
                                        in.registersOf(op.getFalseValue())))
    result.push_back(in.b.select(condition, yes, no));
  return {std::move(result)};
}

/// Whether an element that this thread has of a tile is true.
static Value someElement(Value tile, TileReader &in) {
  ThreadBuilder &b = in.b;
  Value some = b.constant(b.getI1Type(), 0);
  auto add = [&](Value value, Value exists) {
    some = b.createOrFold<arith::OrIOp>(some, b.both(value, exists));
  };
  if (hasMmaLayout(tile.getType())) {
    MmaLayout layout(tile);
    for (auto [r, value] : llvm::enumerate(in.elementsOf(tile)))
      add(value, b.hasRow(layout, int64_t(r)));
  } else {
    BlockedLayout blocked = blockedLayoutOf(tile);
    for (auto [k, value] : llvm::enumerate(in.registersOf(tile)))
      add(value, isElement(b, blocked, int64_t(k)));
  }
  return some;
}

/// All threads vote at a barrier.
static Results lowerAny(AnyOp op, TileReader &in) {
  return {{nsa::tile_gpu::AnyThreadOp::create(in.b, in.b.getI1Type(),
                                              someElement(op.getInput(), in))}};
}

/// The warp votes as soon as the rows are there, before it waits at a barrier
/// in front of the branch. Tiles become registers where the branch does.
static Results lowerWarpIf(nsa::tile_gpu::WarpIfOp op, TileReader &in) {
  auto votes = [&] {
    OpBuilder::InsertionGuard guard(in.b);
    in.b.setInsertionPointAfterValue(op.getRows());
    return in.b.vote(someElement(op.getRows(), in), NVVM::VoteSyncKind::any);
  };
  Value own = votes();
  auto branch = scf::IfOp::create(in.b, op.getResultTypes(), own);
  for (auto [from, to] : llvm::zip(op->getRegions(), branch->getRegions()))
    in.moveRegion(from, to);
  return llvm::map_to_vector(branch.getResults(), [](Value result) {
    return SmallVector<Value>{result};
  });
}

static Results lowerYield(nsa::tile_gpu::YieldOp op, TileReader &in) {
  scf::YieldOp::create(in.b, op.getOperands());
  return {};
}

/// The registers of one that loops carry; other users compute its elements.
template <typename OpTy>
static Results lowerCreation(OpTy op, TileReader &in) {
  return {in.registersOf(op.getResult())};
}

static Results lowerProgramId(ProgramIdOp op, TileReader &in) {
  return {{in.b.blockId(op.getAxis())}};
}

void nsa::cuda::populateElementwisePatterns(TilePatterns &patterns) {
  patterns.add(lowerMap, lowerSelect, lowerAny, lowerWarpIf, lowerYield,
               lowerCreation<SplatOp>, lowerCreation<RangeOp>, lowerProgramId);
}
