//===- NSAHandlers.cpp - the nsa operations in the evaluator --------------===//

#include "dialects/NSA/NSAOps.h"
#include "lib/Reference/Evaluator.h"
#include "lib/Reference/Kernels/Attention.h"
#include "lib/Reference/Kernels/Compression.h"
#include "lib/Reference/Kernels/Statistics.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::reference;

using Operands = ArrayRef<const Tensor *>;
using Results = SmallVectorImpl<Tensor>;

/// Adds an attention op and its backward op. `visible` gives the visible keys
/// from the op and its operands; k is operand `key`.
template <typename Forward, typename Backward, typename Visible>
static void addAttention(Evaluator &evaluator, Visible visible) {
  evaluator.add<Forward>([=](Forward op, Operands in, Results &out) {
    AttentionResult result =
        attention(*in[0], *in[1], *in[2], op.getScaleOrDefault(),
                  visible(op, in, /*query=*/0));
    out.push_back(std::move(result.output));
    out.push_back(std::move(result.lse));
    return success();
  });
  evaluator.add<Backward>([=](Backward op, Operands in, Results &out) {
    AttentionGradients grads =
        attentionBackward(*in[0], *in[1], *in[2], *in[3], *in[4], *in[5],
                          op.getScaleOrDefault(), visible(op, in, /*query=*/1));
    out.push_back(std::move(grads.q));
    out.push_back(std::move(grads.k));
    out.push_back(std::move(grads.v));
    return success();
  });
}

static void addAttentions(Evaluator &evaluator) {
  addAttention<CompressedAttentionOp, CompressedAttentionBackwardOp>(
      evaluator, [](auto op, Operands in, unsigned query) {
        return compressedKeys(in[query + 1]->dim(1), op.getBlock(),
                              op.getStride());
      });
  addAttention<WindowAttentionOp, WindowAttentionBackwardOp>(
      evaluator, [](auto op, Operands in, unsigned query) {
        return windowKeys(op.getWindow());
      });
  addAttention<SelectedAttentionOp, SelectedAttentionBackwardOp>(
      evaluator, [](auto op, Operands in, unsigned query) {
        return selectedKeys(*in.back(), op.getSelectBlock(), in[query]->dim(1));
      });
  evaluator.add<SelectOp>([](SelectOp op, Operands in, Results &out) {
    SelectionRule rule{static_cast<int64_t>(op.getBlock()),
                       static_cast<int64_t>(op.getStride()),
                       static_cast<int64_t>(op.getSelectBlock()),
                       static_cast<int64_t>(op.getCount()),
                       static_cast<int64_t>(op.getInitial()),
                       static_cast<int64_t>(op.getLocal()),
                       op.getScaleOrDefault()};
    out.push_back(
        selectBlocks(blockScores(*in[0], *in[1], *in[2], rule), rule));
    return success();
  });
}

/// The parameters of a compression from the operands behind the input.
static Projection getProjection(CompressionKind kind, Operands parameters) {
  Projection phi;
  unsigned weights = getNumWeights(kind);
  phi.weight = *parameters[0];
  if (weights == 2)
    phi.outputWeight = *parameters[1];
  if (parameters.size() > weights)
    phi.positions = *parameters[weights];
  return phi;
}

static void addCompression(Evaluator &evaluator) {
  evaluator.add<CompressOp>([](CompressOp op, Operands in, Results &out) {
    int64_t block = op.getBlock(), stride = op.getStride();
    if (op.getKind() == CompressionKind::Mean)
      out.push_back(compressMean(*in[0], block, stride));
    else
      out.push_back(compressProjected(
          *in[0], getProjection(op.getKind(), in.drop_front()), block, stride));
    return success();
  });
  evaluator.add<CompressBackwardOp>(
      [](CompressBackwardOp op, Operands in, Results &out) {
        int64_t block = op.getBlock(), stride = op.getStride();
        if (op.getKind() == CompressionKind::Mean) {
          out.push_back(compressMeanBackward(*in[0], *in[1], block, stride));
          return success();
        }
        ProjectionGradients grads = compressProjectedBackward(
            *in[0], *in[1], getProjection(op.getKind(), in.drop_front(2)),
            block, stride);
        out.push_back(std::move(grads.input));
        for (Tensor *grad :
             {&grads.phi.weight, &grads.phi.outputWeight, &grads.phi.positions})
          if (!grad->shape.empty())
            out.push_back(std::move(*grad));
        return success();
      });
}

static void addCombination(Evaluator &evaluator) {
  evaluator.add<CombineOp>([](CombineOp op, Operands in, Results &out) {
    out.push_back(combine(*in[0], *in[1], *in[2], *in[3]));
    return success();
  });
  evaluator.add<CombineBackwardOp>(
      [](CombineBackwardOp op, Operands in, Results &out) {
        CombineGradients grads =
            combineBackward(*in[0], *in[1], *in[2], *in[3], *in[4]);
        out.push_back(std::move(grads.gates));
        out.push_back(std::move(grads.compressed));
        out.push_back(std::move(grads.selected));
        out.push_back(std::move(grads.window));
        return success();
      });
}

static void addStatistics(Evaluator &evaluator) {
  evaluator.add<GateStatisticsOp>(
      [](GateStatisticsOp op, Operands in, Results &out) {
        out.push_back(gateStatistics(*in[0]));
        return success();
      });
  evaluator.add<SelectionStatisticsOp>(
      [](SelectionStatisticsOp op, Operands in, Results &out) {
        out.push_back(selectionStatistics(*in[0], op.getSelectBlock()));
        return success();
      });
}

void nsa::reference::addNSAHandlers(Evaluator &evaluator) {
  addAttentions(evaluator);
  addCompression(evaluator);
  addCombination(evaluator);
  addStatistics(evaluator);
}
