//===- ChooseTokens.cpp - the entry that needs no host --------------------===//
//
// What a step of generation chooses is where the next step reads it, so that
// many steps can be started at once.
//
//===----------------------------------------------------------------------===//

#include "dialects/Interfaces/ShapeChecks.h"
#include "dialects/NN/NNSampling.h"
#include "dialects/NSA/NSAOps.h"
#include "nsa/Artifact/TrainingContract.h"
#include "passes/Graph/FunctionUtils.h"
#include "passes/Graph/Passes.h"

namespace nsa {
#define GEN_PASS_DEF_CHOOSETOKENS
#include "passes/Graph/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

namespace {
struct ChooseTokensPass : nsa::impl::ChooseTokensBase<ChooseTokensPass> {
  using ChooseTokensBase::ChooseTokensBase;
  void runOnOperation() override;
};
} // namespace

/// Steps that may run before the host has read what they chose.
static constexpr int64_t kKeptTokens = 32;

static void chooseTokens(func::FuncOp next, int64_t context) {
  Signature signature(next);
  OpBuilder builder(next.front().getTerminator());
  Location loc = next.getLoc();
  auto makeState = [&](const char *input, const char *name) {
    BlockArgument argument = next.getArgument(*nn::findArgument(next, input));
    NamedAttrList &attributes = signature.getArgument(argument.getArgNumber());
    attributes =
        nameArgument(builder.getContext(), name, nn::ArgumentRole::State);
    attributes.set(
        nn::kInitAttr,
        nn::InitAttr::get(builder.getContext(), nn::InitKind::Constant, 0.0));
    return argument;
  };
  auto addState = [&](const char *name, ArrayRef<int64_t> shape, Type element) {
    return signature.addState(name, nn::ArgumentRole::State, 0.0,
                              RankedTensorType::get(shape, element), loc);
  };
  auto alias = [&](const char *name) {
    NamedAttrList attributes;
    attributes.set(nn::kAliasAttr, builder.getStringAttr(name));
    return attributes;
  };
  makeState(training::tokenInput, training::nextTokenState);
  BlockArgument positions =
      makeState(training::positionsInput, training::nextPositionsState);
  Value ids =
      addState(training::nextIdsState, {getDim(positions, 0), kKeptTokens},
               builder.getI32Type());
  Value end = addState(training::nextEndState, {1}, builder.getI32Type());
  unsigned result = *nn::findResult(next, training::nextLogitsOutput);
  OpOperand &logits = next.front().getTerminator()->getOpOperand(result);
  Type i32 = builder.getI32Type(), f32 = builder.getF32Type();
  int64_t batch = getDim(positions, 0), digits = nn::DrawOp::kDigits;
  Value bias =
      addState(training::nextBiasState, {getShape(logits.get()).back()}, f32);
  Value uniforms =
      addState(training::nextUniformsState, {batch, kKeptTokens, digits}, i32);
  Value inverse = addState(training::nextInverseState, {batch}, f32);
  Value topK = addState(training::nextTopKState, {batch}, i32);
  Value topP = addState(training::nextTopPState, {batch, digits}, i32);
  Value best = nn::ArgmaxOp::create(builder, loc, logits.get(), bias);
  Value token = nn::DrawOp::create(builder, loc, logits.get(), bias, best,
                                   uniforms, positions, inverse, topK, topP);
  auto advance =
      AdvanceOp::create(builder, loc, token, positions, ids, end, context);
  logits.set(token);
  signature.getResult(result) = alias(training::nextTokenState);
  signature.addResult(advance.getNext(), alias(training::nextPositionsState));
  signature.addResult(advance.getUpdated(), alias(training::nextIdsState));
  signature.update();
}

void ChooseTokensPass::runOnOperation() {
  auto decode =
      getOperation().lookupSymbol<func::FuncOp>(training::decodeEntry);
  if (!decode)
    return;
  // Of more tokens, a host chooses.
  int64_t vocab =
      getShape(decode.front().getTerminator()->getOperand(
                   *nn::findResult(decode, training::nextLogitsOutput)))
          .back();
  if (vocab > nn::DrawOp::kMostTokens)
    return;
  OpBuilder builder(decode->getContext());
  builder.setInsertionPointAfter(decode);
  auto next = cast<func::FuncOp>(builder.clone(*decode));
  next.setName(training::nextEntry);
  chooseTokens(next, context);
}
