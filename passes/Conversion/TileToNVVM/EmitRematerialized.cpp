//===- EmitRematerialized.cpp - elements computed where they are used -----===//

#include "dialects/Interfaces/AttributeNames.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "passes/Conversion/TileToNVVM/Combine.h"
#include "passes/Conversion/TileToNVVM/KernelEmitter.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

static bool isInfinity(Value value, bool isNegative) {
  FloatAttr number;
  return matchPattern(value, m_Constant(&number)) &&
         number.getValue().isInfinity() &&
         number.getValue().isNegative() == isNegative;
}

/// Of `x == -inf ? a : b`, x and b.
static std::pair<Value, Value> matchGuard(arith::SelectOp select) {
  auto compare = select.getCondition().getDefiningOp<arith::CmpFOp>();
  if (!compare || compare.getPredicate() != arith::CmpFPredicate::OEQ ||
      !isInfinity(compare.getRhs(), /*isNegative=*/true))
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
  if (isInfinity(select.getFalseValue(), /*isNegative=*/false))
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

/// The map's values may overwrite those of an earlier run.
SmallVector<Value> KernelEmitter::runBody(MapOp op, ValueRange elements,
                                          const llvm::SmallBitVector &wide) {
  Block &body = op.getBody().front();
  for (auto [argument, element] :
       llvm::zip_equal(body.getArguments(), elements))
    scalars.map(argument, element);
  for (Operation &inner : body.without_terminator())
    emitInner(inner);
  SmallVector<Value> yielded;
  for (auto [i, value] : llvm::enumerate(op.getYielded())) {
    if (!wide.empty() && wide[i])
      value = value.getDefiningOp<arith::TruncFOp>().getIn();
    yielded.push_back(scalars.lookupOrDefault(value));
  }
  return yielded;
}

void KernelEmitter::emitInner(Operation &op) {
  if (auto exp = dyn_cast<math::ExpOp>(op);
      exp && warps && exp.getType().isF32())
    return scalars.map(exp.getResult(), emitExp(exp));
  if (auto exp = dyn_cast<math::Exp2Op>(op);
      exp && warps && exp.getType().isF32())
    return scalars.map(exp.getResult(),
                       emitExp2(scalars.lookupOrDefault(exp.getOperand())));
  auto select = dyn_cast<arith::SelectOp>(op);
  if (select && assumed.contains(select))
    return scalars.map(select.getResult(),
                       scalars.lookupOrDefault(select.getTrueValue()));
  if (select && warps)
    if (Value value = findExpOfFinite(select))
      return scalars.map(select.getResult(), scalars.lookupOrDefault(value));
  if (auto max = dyn_cast<arith::MaxNumFOp>(op); max && warps)
    return scalars.map(max.getResult(),
                       getMaximum(b, scalars.lookupOrDefault(max.getLhs()),
                                  scalars.lookupOrDefault(max.getRhs())));
  Operation *copy = b.clone(op, scalars);
  // A dot and its sum are rounded once, as on tensor cores. Exponents are not:
  // the difference of equal scores is 0, however large they are.
  if (warps && !isExponent(op) &&
      isa<arith::MulFOp, arith::AddFOp, arith::SubFOp>(copy))
    copy->setAttr("fastmath",
                  arith::FastMathFlagsAttr::get(
                      b.getContext(), arith::FastMathFlags::contract));
}

/// 2^power by the special function unit.
Value KernelEmitter::emitExp2(Value power) {
  Type f32 = b.getF32Type();
  return LLVM::CallIntrinsicOp::create(
             b, f32, b.getStringAttr("llvm.nvvm.ex2.approx.ftz.f"),
             ValueRange{power})
      .getResult(0);
}

/// exp(x) = 2^(x log2(e)). The factor must not be folded into the difference
/// that x often is: the rounding error of a large number times log2(e) would be
/// one of the exponent.
Value KernelEmitter::emitExp(math::ExpOp op) {
  return emitExp2(
      arith::MulFOp::create(b, scalars.lookupOrDefault(op.getOperand()),
                            b.constant(b.getF32Type(), 1.44269504088896341)));
}

Value KernelEmitter::evaluate(Value operand, Value row, Value col, Memo &memo) {
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
    SmallVector<Value> yielded = runBody(map, elements);
    for (auto [result, value] : llvm::zip_equal(map.getResults(), yielded))
      memo[{result, row, col}] = value;
    return memo[key];
  }
  if (auto select = dyn_cast<arith::SelectOp>(def))
    return remember(b.select(scalar(select.getCondition()),
                             evaluate(select.getTrueValue(), row, col, memo),
                             evaluate(select.getFalseValue(), row, col, memo)));
  auto load = cast<LoadOp>(def);
  SmallVector<Value> coordinates;
  for (Value index : load.getIndices())
    coordinates.push_back(evaluate(index, row, col, memo));
  return remember(loadElement(
      load.getRef(), addressOf(load.getRef(), load.getIndices(), coordinates)));
}
