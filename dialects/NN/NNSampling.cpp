//===- NNSampling.cpp - tokens that are drawn -----------------------------===//

#include "dialects/NN/NNSampling.h"
#include "dialects/Interfaces/ShapeChecks.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::nn;

#define GET_OP_CLASSES
#include "dialects/NN/NNSampling.cpp.inc"

void NNDialect::registerSampling() {
  addOperations<
#define GET_OP_LIST
#include "dialects/NN/NNSampling.cpp.inc"
      >();
}

LogicalResult DrawOp::verify() {
  int64_t batch = getDim(getLogits(), 0), vocab = getDim(getLogits(), 2);
  if (failed(checkNotEmpty(*this, "logits", getLogits())) ||
      failed(checkNotEmpty(*this, "uniforms", getUniforms())) ||
      failed(checkShape(*this, "logits", getLogits(), {batch, 1, vocab})) ||
      failed(checkShape(*this, "bias", getBias(), {vocab})) ||
      failed(checkShape(*this, "best", getBest(), {batch, 1})) ||
      failed(checkShape(*this, "uniforms", getUniforms(),
                        {batch, getDim(getUniforms(), 1), kDigits})) ||
      failed(checkShape(*this, "positions", getPositions(), {batch})) ||
      failed(checkShape(*this, "inverse", getInverse(), {batch})) ||
      failed(checkShape(*this, "top_k", getTopK(), {batch})) ||
      failed(checkShape(*this, "top_p", getTopP(), {batch, kDigits})))
    return failure();
  if (vocab > kMostTokens)
    return emitOpError("draws one of ")
           << vocab << " tokens, expected at most " << kMostTokens;
  return success();
}
