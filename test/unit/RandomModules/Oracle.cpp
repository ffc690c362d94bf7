//===- Oracle.cpp - what a function may give ------------------------------===//

#include "test/unit/RandomModules/Oracle.h"
#include "dialects/Interfaces/RecomputeTraits.h"
#include "dialects/NN/NNOps.h"
#include "dialects/NSA/NSAOps.h"
#include "test/unit/CompiledModule.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace nsa;
using namespace nsa::test;
using namespace nsa::reference;

/// What rounding to bf16 changes at most, of the element itself.
static constexpr double kNarrowTolerance = 0x1p-8;
/// How much larger than with these errors a distance may be in bf16.
static constexpr double kNarrowFactor = 2.0;
/// Evaluations with errors: at first, and before a result is called wrong. Of
/// 100,000 results some are further off than a few evaluations reach.
static constexpr unsigned kEvaluations = 3, kMaxEvaluations = 64;

//===----------------------------------------------------------------------===//
// Errors of rounding
//===----------------------------------------------------------------------===//

using Operands = ArrayRef<const Tensor *>;
using Results = SmallVectorImpl<Tensor>;

Oracle::Oracle(func::FuncOp function) : function(function) {
  function.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      narrow |= getElementTypeOrSelf(type).isBF16();
  });
  for (Type type : function.getArgumentTypes())
    narrow |= getElementTypeOrSelf(type).isBF16();
  // Exact here: errors of rounding are added to results.
  evaluator.add<nn::CastOp>([](nn::CastOp, Operands in, Results &out) {
    out.push_back(*in[0]);
    return success();
  });
  evaluator.add<SelectOp>([this](SelectOp op, Operands in, Results &out) {
    SelectionRule rule{
        op.getBlock(),   op.getStride(), op.getSelectBlock(),   op.getCount(),
        op.getInitial(), op.getLocal(),  op.getScaleOrDefault()};
    out.push_back(select(op, *in[0], *in[1], *in[2], rule));
    return success();
  });
  // Probabilities and hidden rows are rounded between two products.
  evaluator.setArithmetic([this](Operation *op) {
    bool isNarrow = getElementTypeOrSelf(op->getResult(0)).isBF16();
    return mode == Mode::Errors && isNarrow ? Arithmetic::BF16
                                            : Arithmetic::F64;
  });
  evaluator.setResultHook(
      [this](Operation *op, MutableArrayRef<Tensor> tensors) {
        if (mode == Mode::Errors)
          disturb(op, tensors);
      });
}

/// A number of [-1, 1) that `value` has for this `salt`.
static double errorOf(double value, uint64_t salt) {
  // splitmix64
  uint64_t bits = llvm::bit_cast<uint64_t>(value) + salt;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return static_cast<double>((bits ^ (bits >> 31)) >> 11) * 0x1p-52 - 1.0;
}

void Oracle::disturb(Operation *op, MutableArrayRef<Tensor> tensors) {
  if (isa<nn::EmbeddingOp>(op) || op->hasTrait<ViewOfOperand>())
    return; // They copy elements.
  std::uniform_real_distribution<double> error(-1.0, 1.0);
  for (auto [value, tensor] : llvm::zip_equal(op->getResults(), tensors)) {
    Type type = getElementTypeOrSelf(value);
    if (!isa<FloatType>(type))
      continue;
    double single = kSingleTolerance * magnitude(tensor);
    double relative = type.isBF16() ? kNarrowTolerance : 0.0;
    // Rounding does the same to equal numbers: where a row is read often, its
    // errors add up.
    uint64_t salt = random();
    for (double &x : tensor.data)
      if (std::isfinite(x))
        x +=
            error(random) * single + errorOf(x, salt) * relative * std::fabs(x);
  }
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

Tensor Oracle::select(Operation *op, const Tensor &q, const Tensor &k,
                      const Tensor &lse, const SelectionRule &rule) {
  size_t index = nextSelection++;
  Tensor scores = blockScores(q, k, lse, rule);
  if (mode == Mode::Exact) {
    auto choice = given.find(index);
    Tensor indices =
        choice == given.end() ? selectBlocks(scores, rule) : choice->second;
    selections.push_back({op, rule, std::move(scores), std::move(indices)});
    return selections.back().indices;
  }
  Selection &selection = selections[index];
  if (mode == Mode::Errors)
    selection.deviation =
        std::max(selection.deviation, distance(scores, selection.scores));
  return selection.indices;
}

/// Calls `body(row of scores, row of indices, last block, place)` for each
/// query and group, until it returns false.
template <typename Body>
static bool forEachChoice(const Selection &selection, const Tensor &indices,
                          Body body) {
  const Tensor &scores = selection.scores;
  for (int64_t b = 0; b < scores.dim(0); ++b)
    for (int64_t h = 0; h < scores.dim(1); ++h)
      for (int64_t t = 0; t < scores.dim(2); ++t)
        if (!body(scores.row({b, h, t}), indices.row({b, h, t}),
                  t / selection.rule.selectBlock, t))
          return false;
  return true;
}

namespace {
/// The scores on both sides of a choice.
struct Gap {
  double worstChosen = std::numeric_limits<double>::infinity();
  double bestLeft = -std::numeric_limits<double>::infinity();

  double size() const { return worstChosen - bestLeft; }
  /// Nothing visible overlaps either block: exactly equal on any machine.
  bool isTieOfNothing() const { return worstChosen == 0 && bestLeft == 0; }
};
} // namespace

static Gap findGap(const double *scores, const double *indices, int64_t last,
                   const SelectionRule &rule) {
  Gap gap;
  std::vector<int64_t> forced = forcedBlocks(last, rule);
  for (int64_t j = 0; j <= last; ++j) {
    if (std::count(indices, indices + rule.count, static_cast<double>(j)) == 0)
      gap.bestLeft = std::max(gap.bestLeft, scores[j]);
    else if (std::count(forced.begin(), forced.end(), j) == 0)
      gap.worstChosen = std::min(gap.worstChosen, scores[j]);
  }
  return gap;
}

bool Oracle::isDecided(const Selection &selection) const {
  // Kernels in fp32 do much better than they are allowed to.
  double needed = (narrow ? 2.0 : 0.25) * selection.deviation;
  return forEachChoice(
      selection, selection.indices,
      [&](const double *scores, const double *indices, int64_t last, int64_t) {
        Gap gap = findGap(scores, indices, last, selection.rule);
        return gap.isTieOfNothing() || gap.size() > needed;
      });
}

std::string Oracle::findBadChoice(const Selection &selection,
                                  const Tensor &indices) const {
  const SelectionRule &rule = selection.rule;
  double allowed = (narrow ? 2.0 * kNarrowFactor : 1.0) * selection.deviation;
  std::string problem;
  forEachChoice(
      selection, indices,
      [&](const double *scores, const double *row, int64_t last, int64_t t) {
        int64_t number = std::min(rule.count, last + 1);
        for (int64_t i = 0; i < rule.count && problem.empty(); ++i)
          if (i >= number ? row[i] != -1
                          : row[i] < 0 || row[i] > last ||
                                (i > 0 && row[i] <= row[i - 1]))
            problem = "no list of blocks";
        for (int64_t block : forcedBlocks(last, rule))
          if (problem.empty() &&
              std::count(row, row + rule.count, double(block)) == 0)
            problem = "without forced block " + std::to_string(block);
        if (problem.empty() &&
            findGap(scores, row, last, rule).size() < -allowed)
          problem = "not the best blocks";
        if (!problem.empty())
          problem += " at token " + std::to_string(t);
        return problem.empty();
      });
  return problem;
}

std::vector<bool> Oracle::findDependent(const std::vector<Operation *> &open) {
  llvm::DenseSet<Value> tainted;
  for (Operation &op : function.getBody().front().without_terminator()) {
    bool depends = llvm::is_contained(open, &op) ||
                   llvm::any_of(op.getOperands(), [&](Value operand) {
                     return tainted.contains(operand);
                   });
    if (depends)
      tainted.insert_range(op.getResults());
  }
  std::vector<bool> dependent;
  for (Value value : function.getBody().front().getTerminator()->getOperands())
    dependent.push_back(tainted.contains(value));
  return dependent;
}

//===----------------------------------------------------------------------===//
// Evaluation
//===----------------------------------------------------------------------===//

std::vector<Tensor> Oracle::run(const std::vector<Tensor> &arguments) {
  nextSelection = 0;
  SmallVector<Tensor> values;
  if (failed(evaluator.run(function, arguments, values)))
    return {};
  return {values.begin(), values.end()};
}

LogicalResult Oracle::evaluate(const std::vector<Tensor> &arguments,
                               const std::map<size_t, Tensor> &choices) {
  mode = Mode::Exact;
  inputs = arguments;
  given = choices;
  selections.clear();
  evaluations = 0;
  results = run(inputs);
  distances.assign(results.size(), 0.0);
  return success(results.size() == function.getNumResults());
}

std::vector<Tensor> Oracle::evaluateNear(const std::vector<Tensor> &arguments) {
  mode = Mode::Near;
  return run(arguments);
}

void Oracle::addErrors(unsigned count, uint64_t seed) {
  mode = Mode::Errors;
  for (; evaluations < count; ++evaluations) {
    random.seed(seed + evaluations);
    std::vector<Tensor> disturbed = run(inputs);
    for (auto [worst, exact, other] :
         llvm::zip_equal(distances, results, disturbed))
      worst = std::max(worst, distance(exact, other));
  }
}

double Oracle::getTolerance(size_t index, double enough, uint64_t seed) {
  bool isNarrowResult =
      getElementTypeOrSelf(function.getResultTypes()[index]).isBF16();
  double least =
      isNarrowResult ? 0.0 : kSingleTolerance * magnitude(results[index]);
  auto bound = [&] {
    return std::max(least, (narrow ? kNarrowFactor : 1.0) * distances[index]);
  };
  addErrors(kEvaluations, seed);
  while (bound() < enough && evaluations < kMaxEvaluations)
    addErrors(evaluations + 1, seed);
  return bound();
}
