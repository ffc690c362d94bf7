//===- Reduction.cpp - make functions smaller while they fail -------------===//

#include "lib/Compiler/Reduction.h"
#include "dialects/NN/NNOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Reducer/Tester.h"

namespace nsa {
#define GEN_PASS_DEF_REDUCEFUNCTIONS
#include "lib/Compiler/Reduction.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {

/// Changes a module step by step as long as it stays interesting.
class Reducer {
public:
  Reducer(ModuleOp module, const Tester &tester)
      : module(module), tester(tester) {}

  bool isInteresting(ModuleOp candidate) const {
    return tester.isInteresting(candidate).first ==
           Tester::Interestingness::True;
  }

  /// One round over everything. Returns whether something went.
  bool run();

private:
  /// Changes a function; returns false where there is nothing to change.
  using Edit = function_ref<bool(func::FuncOp)>;

  SmallVector<func::FuncOp> getFunctions(ModuleOp from) const {
    return llvm::to_vector(from.getOps<func::FuncOp>());
  }
  /// Makes the change if the module that it gives is interesting.
  bool attempt(unsigned function, Edit edit);
  bool reduceOperations(unsigned function);
  bool reduceSignature(unsigned function);

  ModuleOp module;
  const Tester &tester;
};

struct ReduceFunctionsPass
    : nsa::impl::ReduceFunctionsBase<ReduceFunctionsPass> {
  using ReduceFunctionsBase::ReduceFunctionsBase;
  void runOnOperation() override;
};

} // namespace

//===----------------------------------------------------------------------===//
// Changes
//===----------------------------------------------------------------------===//

static bool isFillable(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape())
    return false;
  Type element = tensor.getElementType();
  return element.isF32() || element.isBF16() || element.isF16() ||
         element.isInteger(32);
}

/// Makes the operation useless: zeros take the place of its results.
static bool fillResults(Operation &op) {
  if (isa<nn::FillOp>(op) || op.use_empty() ||
      !llvm::all_of(op.getResultTypes(), isFillable))
    return false;
  OpBuilder builder(&op);
  for (Value result : op.getResults())
    result.replaceAllUsesWith(
        nn::FillOp::create(builder, op.getLoc(), builder.getF64FloatAttr(0.0),
                           TypeAttr::get(result.getType())));
  return true;
}

/// Removes operations from `begin` to before `end`, and what only they used.
static bool removeOperations(func::FuncOp function, unsigned begin,
                             unsigned end) {
  SmallVector<Operation *> operations;
  for (Operation &op : function.front().without_terminator())
    operations.push_back(&op);
  bool changed = false;
  for (unsigned i = end; i-- > begin;) {
    changed |= fillResults(*operations[i]);
    if (!operations[i]->use_empty())
      continue;
    operations[i]->erase();
    changed = true;
  }
  for (auto fill : llvm::make_early_inc_range(function.getOps<nn::FillOp>()))
    if (fill.use_empty())
      fill.erase();
  return changed;
}

/// Removes one operation whose results may be operands of the same types.
static bool bypassOperation(func::FuncOp function, unsigned index) {
  Operation *op = &*std::next(function.front().begin(), index);
  SmallVector<Value> values;
  for (Value result : op->getResults()) {
    auto same = llvm::find_if(op->getOperands(), [&](Value operand) {
      return operand.getType() == result.getType();
    });
    if (same == op->getOperands().end() && !result.use_empty())
      return false;
    values.push_back(result.use_empty() ? Value() : *same);
  }
  for (auto [result, value] : llvm::zip_equal(op->getResults(), values))
    if (value)
      result.replaceAllUsesWith(value);
  op->erase();
  return true;
}

static bool eraseResult(func::FuncOp function, unsigned index) {
  llvm::BitVector dropped(function.getNumResults());
  dropped.set(index);
  function.front().getTerminator()->eraseOperand(index);
  return succeeded(function.eraseResults(dropped));
}

static bool eraseUnusedArguments(func::FuncOp function) {
  llvm::BitVector unused(function.getNumArguments());
  for (BlockArgument argument : function.getArguments())
    if (argument.use_empty())
      unused.set(argument.getArgNumber());
  return unused.any() && succeeded(function.eraseArguments(unused));
}

//===----------------------------------------------------------------------===//
// Search
//===----------------------------------------------------------------------===//

bool Reducer::attempt(unsigned function, Edit edit) {
  OwningOpRef<ModuleOp> candidate(module.clone());
  if (!edit(getFunctions(*candidate)[function]))
    return false;
  // Diagnostics about a candidate are dropped.
  ScopedDiagnosticHandler quiet(module.getContext(),
                                [](Diagnostic &) { return success(); });
  if (failed(verify(*candidate)) || !isInteresting(*candidate))
    return false;
  module.getBodyRegion().takeBody(candidate->getBodyRegion());
  return true;
}

bool Reducer::reduceOperations(unsigned number) {
  auto count = [&] {
    return static_cast<unsigned>(
        getFunctions(module)[number].front().getOperations().size() - 1);
  };
  bool changed = false;
  for (unsigned size = count(); size > 0; size /= 2)
    for (unsigned end = count(); end > 0;) {
      unsigned begin = end > size ? end - size : 0;
      changed |= attempt(number, [&](func::FuncOp function) {
        return removeOperations(function, begin, end);
      });
      end = std::min(begin, count());
    }
  for (unsigned i = count(); i-- > 0;)
    changed |= attempt(number, [&](func::FuncOp function) {
      return bypassOperation(function, i);
    });
  return changed;
}

bool Reducer::reduceSignature(unsigned number) {
  bool changed = false;
  for (unsigned i = getFunctions(module)[number].getNumResults(); i-- > 0;)
    changed |= attempt(number, [&](func::FuncOp function) {
      return eraseResult(function, i);
    });
  return attempt(number, eraseUnusedArguments) || changed;
}

bool Reducer::run() {
  bool changed = false;
  for (unsigned i = getFunctions(module).size(); i-- > 0;) {
    if (attempt(i, [](func::FuncOp function) {
          function.erase();
          return true;
        })) {
      changed = true;
      continue;
    }
    if (!getFunctions(module)[i].getBody().hasOneBlock())
      continue;
    changed |= reduceOperations(i);
    changed |= reduceSignature(i);
  }
  return changed;
}

void ReduceFunctionsPass::runOnOperation() {
  if (test.getValue().empty()) {
    getOperation().emitError("nsa-reduce-functions needs test=PROGRAM");
    return signalPassFailure();
  }
  SmallVector<std::string> arguments(testArgs.begin(), testArgs.end());
  Tester tester(test.getValue(), arguments);
  Reducer reducer(getOperation(), tester);
  if (!reducer.isInteresting(getOperation())) {
    getOperation().emitError("the module is not interesting: '")
        << test.getValue() << "' exits with 0 for it";
    return signalPassFailure();
  }
  while (reducer.run())
    ;
}
