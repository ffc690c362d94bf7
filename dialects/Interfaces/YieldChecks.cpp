//===- YieldChecks.cpp - what operations that fuse others give ------------===//

#include "dialects/Interfaces/YieldChecks.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;

LogicalResult nsa::verifyYieldedValues(Operation *yield, TypeRange results) {
  if (TypeRange(yield->getOperandTypes()) != results)
    return yield->emitOpError("gives values of types ")
           << yield->getOperandTypes() << ", but the results have " << results;
  llvm::SmallPtrSet<Value, 8> seen;
  for (Value value : yield->getOperands()) {
    if (isa<BlockArgument>(value))
      return yield->emitOpError("gives an input as it is");
    if (!seen.insert(value).second)
      return yield->emitOpError("gives one value twice");
  }
  return success();
}
