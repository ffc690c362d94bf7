//===- SetInputShapes.cpp - micro-batch and sequence length ---------------===//

#include "dialects/Interfaces/Extents.h"
#include "passes/Graph/FunctionUtils.h"
#include "passes/Graph/Passes.h"

#include "mlir/IR/Remarks.h"

#define DEBUG_TYPE "nsa-set-input-shapes"

namespace nsa {
#define GEN_PASS_DEF_SETINPUTSHAPES
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {

/// A named dimension and the size that it gets.
struct NamedSize {
  StringRef dim;
  StringRef option;
  int64_t size;
  bool used = false;
};

struct SetInputShapesPass : nsa::impl::SetInputShapesBase<SetInputShapesPass> {
  using SetInputShapesBase::SetInputShapesBase;

  void runOnOperation() override;
  /// Resizes the arguments. Returns those that changed.
  DenseSet<Value> resizeArguments(func::FuncOp function,
                                  MutableArrayRef<NamedSize> sizes);
  /// Makes the users of the changed values follow them.
  LogicalResult propagate(func::FuncOp function, DenseSet<Value> changed);
};

} // namespace

DenseSet<Value>
SetInputShapesPass::resizeArguments(func::FuncOp function,
                                    MutableArrayRef<NamedSize> sizes) {
  DenseSet<Value> changed;
  for (BlockArgument argument : function.getArguments()) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    SmallVector<StringRef> dims =
        nn::getArgumentDims(function, argument.getArgNumber());
    if (!type || dims.empty())
      continue;
    SmallVector<int64_t> shape(type.getShape());
    for (auto [dim, size] : llvm::zip_equal(dims, shape))
      for (NamedSize &named : sizes)
        if (dim == named.dim) {
          size = named.size;
          named.used = true;
        }
    if (type.getShape() == ArrayRef(shape))
      continue;
    argument.setType(type.clone(shape));
    changed.insert(argument);
    ++numArguments;
  }
  return changed;
}

LogicalResult SetInputShapesPass::propagate(func::FuncOp function,
                                            DenseSet<Value> changed) {
  FailureOr<unsigned> inferred = inferResultTypes(function, std::move(changed));
  if (failed(inferred))
    return failure();
  numOps += *inferred;
  remark::analysis(function.getLoc(), remark::RemarkOpts::name("SetInputShapes")
                                          .category(DEBUG_TYPE)
                                          .function(function.getName()))
      << remark::add("micro-batch {0}, sequence length {1}",
                     microBatch.getValue(), seqLen.getValue());
  return success();
}

void SetInputShapesPass::runOnOperation() {
  SmallVector<NamedSize> sizes;
  for (NamedSize named : {NamedSize{nn::kBatchDim, "micro-batch", microBatch},
                          NamedSize{nn::kSequenceDim, "seq-len", seqLen}}) {
    if (named.size < 0) {
      getOperation().emitError("option ")
          << named.option << " (" << named.size << ") must be at least 0";
      return signalPassFailure();
    }
    if (named.size > 0)
      sizes.push_back(named);
  }
  for (auto function : getOperation().getOps<func::FuncOp>()) {
    if (function.isExternal())
      continue;
    DenseSet<Value> changed = resizeArguments(function, sizes);
    if (!changed.empty() && failed(propagate(function, std::move(changed))))
      return signalPassFailure();
  }
  // Extents with a size are constants from here on.
  ExtentTable before = ExtentTable::of(getOperation()), extents;
  for (const Extent &extent : before.getEntries())
    if (llvm::none_of(sizes, [&](const NamedSize &named) {
          unsigned index =
              named.dim == nn::kBatchDim ? kBatchExtent : kSequenceExtent;
          return extent.getMap().getResult(0) ==
                 getAffineSymbolExpr(index, &getContext());
        }))
      extents.add(extent);
  extents.writeTo(getOperation());
  for (const NamedSize &named : sizes)
    if (!named.used) {
      getOperation().emitError("option ")
          << named.option << " (" << named.size
          << ") has no effect: no argument has the dimension \"" << named.dim
          << "\" in nn.dims";
      return signalPassFailure();
    }
}
