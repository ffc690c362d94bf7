//===- NNOpsChunks.cpp - the loss in chunks of rows -----------------------===//

#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NN/NNOps.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::nn;

//===----------------------------------------------------------------------===//
// Constraints
//===----------------------------------------------------------------------===//

/// The parts together are the whole.
static LogicalResult verifyRows(Operation *op, ValueRange parts, Value whole) {
  int64_t rows = 0;
  for (Value part : parts) {
    if (nsa::getElementType(part) != nsa::getElementType(whole))
      return op->emitOpError("has a part of type ")
             << part.getType() << ", but the whole has " << whole.getType();
    if (failed(checkEqual(op, "width of a part", getDim(part, 1),
                          "width of the whole", getShape(whole).back())))
      return failure();
    rows += getDim(part, 0);
  }
  return checkEqual(op, "rows of the parts", rows, "rows of the whole",
                    ShapedType::getNumElements(getShape(whole).drop_back()));
}

LogicalResult SplitRowsOp::verify() {
  return verifyRows(*this, getParts(), getInput());
}

LogicalResult ConcatRowsOp::verify() {
  return verifyRows(*this, getParts(), getOutput());
}

LogicalResult CrossEntropyChunkOp::verify() {
  if (failed(checkNotEmpty(*this, "logits", getLogits())))
    return failure();
  int64_t rows = getDim(getLogits(), 0), first = getFirst();
  int64_t tokens = ShapedType::getNumElements(getShape(getTargets()));
  // The sum of what is written may overflow.
  if (first > tokens || rows > tokens - first)
    return emitOpError("has ") << rows << " rows from token " << first
                               << " on, but there are " << tokens << " targets";
  return success();
}

//===----------------------------------------------------------------------===//
// Names of results
//===----------------------------------------------------------------------===//

void SplitRowsOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  if (!getParts().empty())
    setName(getParts().front(), "rows");
}

void ConcatRowsOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getOutput(), "rows");
}
