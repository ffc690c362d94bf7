//===- TileBounds.cpp - what is known about coordinates -------------------===//

#include "passes/Analysis/TileBounds.h"
#include "mlir/Analysis/DataFlow/IntegerRangeAnalysis.h"
#include "mlir/Analysis/DataFlow/Utils.h"

using namespace mlir;
using namespace nsa::tile;
using nsa::TileBounds;

static unsigned bitsOf(Type type) {
  if (auto tile = dyn_cast<TileType>(type))
    type = tile.getElementType();
  return ConstantIntRanges::getStorageBitwidth(type);
}

/// Other values have no range: one of no bits is an assertion.
static bool hasRange(Type type) { return bitsOf(type) != 0; }

TileBounds::TileBounds(KernelOp kernel)
    : kernel(kernel), extents(ExtentTable::of(kernel)),
      solver(DataFlowConfig().setInterprocedural(false)) {
  dataflow::loadBaselineAnalyses(solver);
  solver.load<dataflow::IntegerRangeAnalysis>();
  // Without a result every coordinate is checked, which is always correct.
  (void)solver.initializeAndRun(kernel);
}

bool TileBounds::isInside(Value index, const Extent &extent) {
  if (!extent.isConstant()) {
    // The number says nothing; but a grid may have as many programs.
    auto id = index.getDefiningOp<ProgramIdOp>();
    return id &&
           getGridExtent(kernel, id.getAxis()).getMap() == extent.getMap();
  }
  ConstantIntRanges range = rangeOf(index);
  return range.smin().sge(0) && range.smax().slt(int64_t(extent));
}

/// The values start, start + step, ... of `count` elements.
static ConstantIntRanges extend(const ConstantIntRanges &start, int64_t step,
                                int64_t count) {
  int64_t reach = step * (count - 1);
  int64_t low = start.smin().getSExtValue() + std::min<int64_t>(reach, 0);
  int64_t high = start.smax().getSExtValue() + std::max<int64_t>(reach, 0);
  if (!llvm::isInt<32>(low) || !llvm::isInt<32>(high))
    return ConstantIntRanges::maxRange(32);
  return ConstantIntRanges::fromSigned(APInt(32, low, /*isSigned=*/true),
                                       APInt(32, high, /*isSigned=*/true));
}

ConstantIntRanges TileBounds::rangeOf(Value value) {
  if (auto known = tiles.find(value); known != tiles.end())
    return known->second;
  auto remember = [&](ConstantIntRanges range) {
    tiles.try_emplace(value, range);
    return range;
  };
  if (auto range = value.getDefiningOp<RangeOp>())
    return remember(extend(rangeOf(range.getStart()), range.getStep(),
                           range.getType().getNumElements()));
  if (auto splat = value.getDefiningOp<SplatOp>())
    return remember(rangeOf(splat.getValue()));
  if (auto map = value.getDefiningOp<MapOp>())
    return remember(rangeOfMap(map, cast<OpResult>(value).getResultNumber()));
  if (auto *state =
          solver.lookupState<dataflow::IntegerValueRangeLattice>(value))
    if (!state->getValue().isUninitialized() && !isa<TileType>(value.getType()))
      return state->getValue().getValue();
  return ConstantIntRanges::maxRange(bitsOf(value.getType()));
}

ConstantIntRanges TileBounds::rangeOfMap(MapOp op, unsigned result) {
  llvm::DenseMap<Value, ConstantIntRanges> local;
  auto find = [&](Value value) {
    auto known = local.find(value);
    return known == local.end() ? rangeOf(value) : known->second;
  };
  Block &body = op.getBody().front();
  for (auto [argument, input] : llvm::zip(body.getArguments(), op.getInputs()))
    if (hasRange(argument.getType()))
      local.try_emplace(argument, rangeOf(input));
  for (Operation &inner : body.without_terminator()) {
    auto inferable = dyn_cast<InferIntRangeInterface>(inner);
    if (!inferable || !llvm::all_of(inner.getOperandTypes(), hasRange))
      continue;
    SmallVector<ConstantIntRanges> operands =
        llvm::map_to_vector(inner.getOperands(), find);
    inferable.inferResultRanges(
        operands, [&](Value value, const ConstantIntRanges &range) {
          local.try_emplace(value, range);
        });
  }
  return find(op.getYielded()[result]);
}
