//===- FuseCompression.cpp - keys and values compressed at once -----------===//

#include "dialects/NN/NNOps.h"
#include "passes/Graph/FuseAttention.h"

#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace nsa;

/// Why the compression of keys and of values cannot be one operation.
template <typename OpT>
static StringRef findDifferentCompression(OpT key, OpT value) {
  if (key.getKind() != value.getKind() ||
      key.getParameters().size() != value.getParameters().size())
    return "keys and values are compressed in different ways";
  if (key.getBlock() != value.getBlock() ||
      key.getStride() != value.getStride())
    return "keys and values are compressed in different blocks";
  if (key.getStart() != value.getStart())
    return "keys and values are compressed in different sequences";
  return "";
}

/// Moves the operands of the later of two operations before the earlier
/// one, and returns that; null if they depend on it.
static Operation *moveTogether(Operation *first, Operation *second,
                               ValueRange more = {}) {
  if (second->isBeforeInBlock(first))
    std::swap(first, second);
  SmallVector<Value> operands(second->getOperands());
  llvm::append_range(operands, more);
  IRRewriter rewriter(first->getContext());
  return succeeded(moveValueDefinitions(rewriter, operands, first)) ? first
                                                                    : nullptr;
}

/// The rotation of compressed keys, if it can be part of the compression.
static nn::RotaryOp getRotation(Value key, CompressOp compress) {
  auto rotation = key.getDefiningOp<nn::RotaryOp>();
  if (!rotation || rotation.getInverse() || rotation.getAt() ||
      rotation.getStride() != uint64_t(compress.getStride()) ||
      rotation.getStart() != compress.getStart() ||
      !rotation.getInput().hasOneUse())
    return nullptr;
  return rotation;
}

bool nsa::fuseCompression(Value key, Value value) {
  auto rotated = key.getDefiningOp<nn::RotaryOp>();
  auto compressKey =
      (rotated ? rotated.getInput() : key).getDefiningOp<CompressOp>();
  auto compressValue = value.getDefiningOp<CompressOp>();
  if (!compressKey || !compressValue || compressKey == compressValue)
    return false;
  StringRef obstacle = findDifferentCompression(compressKey, compressValue);
  nn::RotaryOp rotation = getRotation(key, compressKey);
  Operation *place = nullptr;
  if (obstacle.empty()) {
    SmallVector<Value> table;
    if (rotation)
      table.push_back(rotation.getTable());
    place = moveTogether(compressKey, compressValue, table);
    if (!place)
      obstacle = "the tokens of one compression follow from the other";
  }
  reportFusion(compressKey, "Compression", obstacle);
  if (!obstacle.empty())
    return false;
  if (rotated && !rotation)
    reportFusion(
        rotated, "Rotation",
        "the compressed keys are read before they are rotated, or rotated "
        "for other positions");
  OpBuilder builder(place);
  auto fused = CompressKeyValueOp::create(
      builder, compressKey.getLoc(), compressKey.getKind(),
      compressKey.getInput(), compressValue.getInput(),
      compressKey.getParameters(), compressValue.getParameters(),
      rotation ? rotation.getTable() : Value(), compressKey.getStart(),
      compressKey.getCompressed());
  if (rotation) {
    rotation.getOutput().replaceAllUsesWith(fused.getCompressedKey());
    rotation.erase();
  } else {
    compressKey.getOutput().replaceAllUsesWith(fused.getCompressedKey());
  }
  compressValue.getOutput().replaceAllUsesWith(fused.getCompressedValue());
  compressKey.erase();
  compressValue.erase();
  return true;
}

bool nsa::fuseCompressionBackward(Value keyGrad, Value valueGrad) {
  if (auto rotation = getOnlyReader<nn::RotaryOp>(keyGrad))
    keyGrad = rotation.getOutput();
  auto key = getOnlyReader<CompressBackwardOp>(keyGrad);
  auto value = getOnlyReader<CompressBackwardOp>(valueGrad);
  if (!key || !value || key.getOutputGrad() != keyGrad ||
      value.getOutputGrad() != valueGrad)
    return false;
  StringRef obstacle = findDifferentCompression(key, value);
  Operation *place = nullptr;
  if (obstacle.empty()) {
    place = moveTogether(key, value);
    if (!place)
      obstacle = "the tokens of one compression follow from the other";
  }
  reportFusion(key, "CompressionGradient", obstacle);
  if (!obstacle.empty())
    return false;
  OpBuilder builder(place);
  auto fused = CompressKeyValueBackwardOp::create(
      builder, key.getLoc(), key.getKind(), key.getOutputGrad(),
      value.getOutputGrad(), key.getInput(), value.getInput(),
      key.getParameters(), value.getParameters(), key.getStart(),
      key.getCompressed());
  key.getInputGrad().replaceAllUsesWith(fused.getKeyInputGrad());
  value.getInputGrad().replaceAllUsesWith(fused.getValueInputGrad());
  ValueRange grads = fused.getParameterGrads();
  size_t count = key.getParameters().size();
  key.getParameterGrads().replaceAllUsesWith(grads.take_front(count));
  value.getParameterGrads().replaceAllUsesWith(grads.drop_front(count));
  key.erase();
  value.erase();
  return true;
}
