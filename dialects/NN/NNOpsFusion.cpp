//===- NNOpsFusion.cpp - what one kernel may compute of the nn dialect ----===//

#include "dialects/Interfaces/Expr.h"
#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/Interfaces/YieldChecks.h"
#include "dialects/NN/NNOps.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::nn;

//===----------------------------------------------------------------------===//
// Formulas: operands of one element to its results, in f32
//===----------------------------------------------------------------------===//

/// d/dx silu(x), given s = sigmoid(x).
static Expr siluSlope(Expr x, Expr s) { return s * (1 + x * (1 - s)); }

SmallVector<Value> SiluOp::buildElements(ImplicitLocOpBuilder &b,
                                         ValueRange x) {
  Expr input(b, x[0]);
  return {input * sigmoid(input)};
}

SmallVector<Value> SiluBackwardOp::buildElements(ImplicitLocOpBuilder &b,
                                                 ValueRange x) {
  Expr dy(b, x[0]), input(b, x[1]);
  return {dy * siluSlope(input, sigmoid(input))};
}

SmallVector<Value> SwiGLUOp::buildElements(ImplicitLocOpBuilder &b,
                                           ValueRange x) {
  Expr gate(b, x[0]), up(b, x[1]);
  return {gate * sigmoid(gate) * up};
}

SmallVector<Value> SwiGLUBackwardOp::buildElements(ImplicitLocOpBuilder &b,
                                                   ValueRange x) {
  Expr dy(b, x[0]), gate(b, x[1]), up(b, x[2]);
  Expr s = sigmoid(gate);
  return {dy * up * siluSlope(gate, s), dy * gate * s};
}

SmallVector<Value> AddOp::buildElements(ImplicitLocOpBuilder &b, ValueRange x) {
  return {Expr(b, x[0]) + Expr(b, x[1])};
}

SmallVector<Value> CastOp::buildElements(ImplicitLocOpBuilder &, ValueRange x) {
  return {x[0]};
}

int64_t SiluOp::getFlopsPerElement() { return 5; }
int64_t SiluBackwardOp::getFlopsPerElement() { return 9; }
int64_t SwiGLUOp::getFlopsPerElement() { return 6; }
int64_t SwiGLUBackwardOp::getFlopsPerElement() { return 12; }
int64_t AddOp::getFlopsPerElement() { return 1; }
int64_t CastOp::getFlopsPerElement() { return 0; }

//===----------------------------------------------------------------------===//
// Operations that elementwise ones may join
//===----------------------------------------------------------------------===//

bool RMSNormOp::isElementOperand(unsigned index) { return index == 0; }
bool RMSNormOp::isElementResult(unsigned index) { return index == 0; }

bool RMSNormBackwardOp::isElementOperand(unsigned index) { return index < 2; }
bool RMSNormBackwardOp::isElementResult(unsigned index) { return index == 0; }

bool AddBiasOp::isElementOperand(unsigned index) { return index == 0; }
bool AddBiasOp::isElementResult(unsigned index) { return true; }

bool SumRowsOp::isElementOperand(unsigned index) { return true; }
bool SumRowsOp::isElementResult(unsigned index) { return false; }

bool RotaryOp::isElementOperand(unsigned index) { return index == 0; }
bool RotaryOp::isElementResult(unsigned index) { return true; }

/// The angles of a position serve any number of heads.
bool RotaryOp::sharesIterationSpace(Operation *other) {
  auto rotary = dyn_cast<RotaryOp>(other);
  return rotary && rotary.getTable() == getTable() &&
         rotary.getStart() == getStart() && rotary.getAt() == getAt() &&
         rotary.getStride() == getStride() &&
         rotary.getInverse() == getInverse() &&
         getDim(rotary.getInput(), 0) == getDim(getInput(), 0) &&
         getDim(rotary.getInput(), 1) == getDim(getInput(), 1) &&
         getDim(rotary.getInput(), 3) == getDim(getInput(), 3);
}

//===----------------------------------------------------------------------===//
// Sums over rows
//===----------------------------------------------------------------------===//

int64_t nn::countRowSums(int64_t rows, int64_t width, int64_t most) {
  constexpr int64_t elementsPerSum = 16384;
  int64_t rowsPerSum =
      std::max({elementsPerSum / std::max<int64_t>(width, 1),
                int64_t(llvm::divideCeil(rows, most)), int64_t(1)});
  return std::max<int64_t>(llvm::divideCeil(rows, rowsPerSum), 1);
}

OpResult RMSNormBackwardOp::getRowSum() {
  return getPartialSums() ? OpResult() : cast<OpResult>(getWeightGrad());
}

/// Gives `sum`, over `rows` rows, a first dimension for its parts, at most
/// `most`, whose number is returned.
static int64_t splitRowSum(Value sum, int64_t rows, int64_t most) {
  int64_t width = getDim(sum, 0), parts = countRowSums(rows, width, most);
  sum.setType(RankedTensorType::get({parts, width}, getElementType(sum)));
  return parts;
}

void RMSNormBackwardOp::makeRowSumPartial(int64_t most) {
  int64_t rows = ShapedType::getNumElements(getShape(getRstd()));
  setPartialSums(splitRowSum(getWeightGrad(), rows, most));
}

OpResult SumRowsOp::getRowSum() {
  return getPartialSums() ? OpResult() : cast<OpResult>(getSum());
}

void SumRowsOp::makeRowSumPartial(int64_t most) {
  ArrayRef<int64_t> rows = getShape(getInput()).drop_back();
  setPartialSums(splitRowSum(getSum(), ShapedType::getNumElements(rows), most));
}

OpResult GateBackwardOp::getRowSum() {
  return getPartialSums() ? OpResult() : cast<OpResult>(getBiasGrad());
}

void GateBackwardOp::makeRowSumPartial(int64_t most) {
  int64_t rows = ShapedType::getNumElements(getShape(getGates()).take_front(2));
  setPartialSums(splitRowSum(getBiasGrad(), rows, most));
}

LogicalResult AccumulateRowsOp::verify() {
  for (auto [index, sum, rows] : llvm::enumerate(getSums(), getRows()))
    if (getDim(sum, 0) != getDim(rows, 1))
      return emitOpError("adds rows of ")
             << getDim(rows, 1) << " elements to sum " << index << " of "
             << getDim(sum, 0);
  return success();
}

//===----------------------------------------------------------------------===//
// Fused operations
//===----------------------------------------------------------------------===//

OperandRange FusedOp::getYielded() {
  return cast<YieldOp>(getBody().front().getTerminator()).getValues();
}

void FusedOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  if (!getOutputs().empty())
    setName(getOutputs().front(), "fused");
}

LogicalResult FusedOp::verify() {
  if (getNumResults() == 0)
    return emitOpError("must have at least one output");
  if (getInputs().getTypes() != getBody().getArgumentTypes())
    return emitOpError("has inputs of types ")
           << getInputs().getTypes() << ", but its body takes "
           << getBody().getArgumentTypes();
  return success();
}

/// What a root reads otherwise than element by element comes from outside, and
/// what it gives otherwise leaves at once.
static LogicalResult verifyPassedOn(Operation *op) {
  for (OpOperand &operand : op->getOpOperands()) {
    auto result = dyn_cast<OpResult>(operand.get());
    if (!result)
      continue;
    auto producer = cast<FusibleOpInterface>(result.getOwner());
    if (!cast<FusibleOpInterface>(op).isElementOperand(
            operand.getOperandNumber()) ||
        !producer.isElementResult(result.getResultNumber()))
      return op->emitOpError("operand ")
             << operand.getOperandNumber()
             << " is not passed on element by element";
  }
  return success();
}

/// What shares elements with the operation, maybe through others.
static llvm::SetVector<Operation *> getConnected(Operation *op) {
  llvm::SetVector<Operation *> found;
  found.insert(op);
  for (unsigned i = 0; i < found.size(); ++i) {
    for (Value operand : found[i]->getOperands())
      if (Operation *producer = operand.getDefiningOp();
          producer && producer->getBlock() == op->getBlock())
        found.insert(producer);
    for (Operation *user : found[i]->getUsers())
      if (isa<FusibleOpInterface>(user))
        found.insert(user);
  }
  return found;
}

static SmallVector<Operation *> getRoots(ArrayRef<Operation *> connected) {
  SmallVector<Operation *> roots;
  for (Operation *op : connected)
    if (isa<FusibleOpInterface>(op) && !isa<ElementwiseOpInterface>(op))
      roots.push_back(op);
  return roots;
}

SmallVector<Operation *> nn::getConnectedRoots(Operation *op) {
  return getRoots(getConnected(op).getArrayRef());
}

/// Elementwise operations alone iterate over tensors of one shape.
static LogicalResult verifyOneShape(FusedOp fused) {
  if (fused.getOutputs().empty())
    return success();
  ArrayRef<int64_t> shape = getShape(fused.getOutputs().front());
  for (Operation &op : fused.getBody().front().without_terminator())
    for (Value result : op.getResults())
      if (getShape(result) != shape)
        return op.emitOpError("has a result of shape ")
               << formatShape(getShape(result)) << " in a kernel of shape "
               << formatShape(shape);
  return success();
}

LogicalResult FusedOp::verifyRegions() {
  auto yield = dyn_cast<YieldOp>(getBody().front().getTerminator());
  if (!yield)
    return emitOpError("must end with 'nn.yield'");
  if (failed(verifyYieldedValues(yield, getOutputs().getTypes())))
    return failure();
  Operation *root = nullptr;
  for (Operation &op : getBody().front().without_terminator()) {
    if (!isa<FusibleOpInterface>(op))
      return op.emitOpError("cannot be fused");
    if (failed(verifyPassedOn(&op)))
      return failure();
    if (!isa<ElementwiseOpInterface>(op) && !root)
      root = &op;
  }
  // Of each operation, the roots that are connected with it.
  std::vector<SmallVector<Operation *>> rootsOf;
  DenseMap<Operation *, size_t> parts;
  for (Operation &op : getBody().front().without_terminator()) {
    auto [part, isNew] = parts.try_emplace(&op, rootsOf.size());
    if (isNew) {
      llvm::SetVector<Operation *> connected = getConnected(&op);
      rootsOf.push_back(getRoots(connected.getArrayRef()));
      for (Operation *other : connected)
        parts[other] = rootsOf.size() - 1;
    }
    ArrayRef<Operation *> roots = rootsOf[parts[&op]];
    if (roots.empty() && root)
      return op.emitOpError("has no elements in common with the kernel of ")
             << root->getName();
    Operation *other = roots.size() < 2  ? root
                       : roots[0] == &op ? roots[1]
                                         : roots[0];
    if (isa<ElementwiseOpInterface>(op) || other == &op ||
        (roots.size() == 1 &&
         cast<FusibleOpInterface>(other).sharesIterationSpace(&op)))
      continue;
    InFlightDiagnostic diagnostic =
        op.emitOpError("is not elementwise and cannot share a kernel");
    diagnostic.attachNote(other->getLoc()) << "with this one";
    return diagnostic;
  }
  return root ? success() : verifyOneShape(*this);
}
