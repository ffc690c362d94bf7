//===- NSAHandlers.cpp - the nsa operations in the evaluator --------------===//

#include "dialects/NSA/NSAOps.h"
#include "lib/Reference/Evaluator.h"
#include "lib/Reference/Kernels/Attention.h"
#include "lib/Reference/Kernels/Compression.h"
#include "lib/Reference/Kernels/NN.h"
#include "lib/Reference/Kernels/Statistics.h"
#include "lib/Reference/Packed.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::reference;

using Operands = ArrayRef<const Tensor *>;
using Results = SmallVectorImpl<Tensor>;

/// The keys, of `count` in all, that a visibility shows a query. `indices`,
/// null where it takes none, must outlive the result.
static VisibleKeys getVisibleKeys(VisibilityAttrInterface visibility,
                                  int64_t count, const Tensor *indices) {
  auto isIndexed = [=](int64_t b, int64_t h, int64_t t, int64_t key) {
    auto block = static_cast<double>(key / visibility.getIndexBlock());
    const double *row = indices->row({b, h, t});
    return llvm::is_contained(ArrayRef(row, indices->dim(3)), block);
  };
  return [=](int64_t b, int64_t h, int64_t t, std::vector<int64_t> &keys) {
    keys.clear();
    int64_t end = std::min(visibility.getEndKey(t).getNumber(), count);
    for (int64_t key = visibility.getFirstKey(t).getNumber(); key < end; ++key)
      if (visibility.isVisible(t, key).getNumber() != 0 &&
          (!indices || isIndexed(b, h, t, key)))
        keys.push_back(key);
  };
}

/// Appends what `evaluate` makes of the operands: of each sequence on its own
/// where the last operand is their `start`. `axes` and `outputs` say where the
/// sequences lie in operands and results.
static void
runSequences(Value start, BlockLengths lengths, Operands in,
             ArrayRef<PackedAxis> axes, ArrayRef<PackedOutput> outputs,
             Results &out,
             function_ref<std::vector<Tensor>(std::vector<Tensor>)> evaluate) {
  Operands own = start ? in.drop_back() : in;
  if (!start) {
    std::vector<Tensor> copies;
    for (const Tensor *tensor : own)
      copies.push_back(*tensor);
    llvm::append_range(out, evaluate(std::move(copies)));
    return;
  }
  std::vector<PackedInput> inputs;
  for (auto [tensor, axis] : llvm::zip(own, axes))
    inputs.push_back({tensor, axis});
  llvm::append_range(out,
                     runPacked(*in.back(), lengths, inputs, outputs, evaluate));
}

static constexpr PackedAxis kTokens = {PackedAxis::Tokens, 1};
static constexpr PackedAxis kBlocks = {PackedAxis::Blocks, 1};
/// Of what is [B, H, S, ...].
static constexpr PackedAxis kTokensOfHeads = {PackedAxis::Tokens, 2};

static PackedAxis getKeyAxis(VisibilityAttrInterface visibility) {
  return visibility.attendsToTokens() ? kTokens : kBlocks;
}
static BlockLengths getLengths(VisibilityAttrInterface visibility) {
  if (auto compressed = dyn_cast<CompressedAttr>(visibility))
    return {compressed.getBlock(), compressed.getStride()};
  return {};
}

static void runAttention(AttentionOp op, Operands in, Arithmetic arithmetic,
                         Results &out) {
  VisibilityAttrInterface visibility = op.getVisibility();
  PackedAxis keys = getKeyAxis(visibility);
  runSequences(op.getStart(), getLengths(visibility), in,
               {kTokens, keys, keys, kTokensOfHeads},
               {{shapeOf(op.getOutput()), kTokens},
                {shapeOf(op.getLse()), kTokensOfHeads}},
               out, [&](std::vector<Tensor> x) -> std::vector<Tensor> {
                 AttentionResult result = attention(
                     x[0], x[1], x[2], op.getScaleOrDefault(),
                     getVisibleKeys(visibility, x[1].dim(1),
                                    op.getIndices() ? &x[3] : nullptr),
                     arithmetic);
                 return {std::move(result.output), std::move(result.lse)};
               });
}

static void runAttentionBackward(AttentionBackwardOp op, Operands in,
                                 Arithmetic arithmetic, Results &out) {
  VisibilityAttrInterface visibility = op.getVisibility();
  PackedAxis keys = getKeyAxis(visibility);
  runSequences(
      op.getStart(), getLengths(visibility), in,
      {kTokens, kTokens, keys, keys, kTokens, kTokensOfHeads, kTokensOfHeads},
      {{shapeOf(op.getQuery()), kTokens},
       {shapeOf(op.getKey()), keys},
       {shapeOf(op.getValue()), keys}},
      out, [&](std::vector<Tensor> x) -> std::vector<Tensor> {
        AttentionGradients grads = attentionBackward(
            x[0], x[1], x[2], x[3], x[4], x[5], op.getScaleOrDefault(),
            getVisibleKeys(visibility, x[2].dim(1),
                           op.getIndices() ? &x[6] : nullptr),
            arithmetic);
        return {std::move(grads.q), std::move(grads.k), std::move(grads.v)};
      });
}

static void addAttentions(Evaluator &evaluator) {
  evaluator.add<AttentionOp>([&](AttentionOp op, Operands in, Results &out) {
    runAttention(op, in, evaluator.getArithmetic(op), out);
    return success();
  });
  evaluator.add<AttentionBackwardOp>(
      [&](AttentionBackwardOp op, Operands in, Results &out) {
        runAttentionBackward(op, in, evaluator.getArithmetic(op), out);
        return success();
      });
  evaluator.add<SelectOp>([](SelectOp op, Operands in, Results &out) {
    SelectionRule rule{
        op.getBlock(),   op.getStride(), op.getSelectBlock(),   op.getCount(),
        op.getInitial(), op.getLocal(),  op.getScaleOrDefault()};
    runSequences(op.getStart(), {rule.block, rule.stride}, in,
                 {kTokens, kBlocks, kTokensOfHeads},
                 {{shapeOf(op.getIndices()), kTokensOfHeads, -1.0}}, out,
                 [&](std::vector<Tensor> x) -> std::vector<Tensor> {
                   return {
                       selectBlocks(blockScores(x[0], x[1], x[2], rule), rule)};
                 });
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

/// Compressed rows of `x` by the parameters of `op`'s kind.
template <typename OpTy>
static Tensor runCompress(OpTy op, const Tensor &x, Operands parameters,
                          Arithmetic arithmetic) {
  int64_t block = op.getBlock(), stride = op.getStride();
  CompressionKind kind = op.getKind();
  if (kind == CompressionKind::Mean)
    return compressMean(x, block, stride);
  return compressProjected(x, getProjection(kind, parameters), block, stride,
                           arithmetic);
}

/// Appends the gradient of `x` to `inputGrads` and those of the parameters to
/// `parameterGrads`.
template <typename OpTy>
static void runCompressBackward(OpTy op, const Tensor &outputGrad,
                                const Tensor &x, Operands parameters,
                                Arithmetic arithmetic, Results &inputGrads,
                                Results &parameterGrads) {
  int64_t block = op.getBlock(), stride = op.getStride();
  CompressionKind kind = op.getKind();
  if (kind == CompressionKind::Mean) {
    inputGrads.push_back(compressMeanBackward(outputGrad, x, block, stride));
    return;
  }
  ProjectionGradients grads =
      compressProjectedBackward(outputGrad, x, getProjection(kind, parameters),
                                block, stride, arithmetic);
  inputGrads.push_back(std::move(grads.input));
  for (Tensor *grad :
       {&grads.phi.weight, &grads.phi.outputWeight, &grads.phi.positions})
    if (!grad->shape.empty())
      parameterGrads.push_back(std::move(*grad));
}

static SmallVector<const Tensor *> pointTo(const std::vector<Tensor> &tensors) {
  return llvm::map_to_vector(tensors,
                             [](const Tensor &tensor) { return &tensor; });
}

static void runCompressKeyValue(CompressKeyValueOp op, Operands in,
                                Arithmetic arithmetic, Results &out) {
  size_t count = op.getKeyParameters().size();
  SmallVector<PackedAxis> axes = {kTokens, kTokens};
  axes.append(2 * count + (op.getTable() ? 1 : 0), PackedAxis());
  runSequences(
      op.getStart(), {op.getBlock(), op.getStride()}, in, axes,
      {{shapeOf(op.getCompressedKey()), kBlocks},
       {shapeOf(op.getCompressedValue()), kBlocks}},
      out, [&](std::vector<Tensor> x) -> std::vector<Tensor> {
        SmallVector<const Tensor *> pointers = pointTo(x);
        Operands own = pointers;
        Tensor keys = runCompress(op, x[0], own.slice(2, count), arithmetic);
        if (op.getTable())
          keys = rotary(keys, x.back(), op.getStride(),
                        /*inverse=*/false);
        return {std::move(keys),
                runCompress(op, x[1], own.slice(2 + count, count), arithmetic)};
      });
}

static void runCompressKeyValueBackward(CompressKeyValueBackwardOp op,
                                        Operands in, Arithmetic arithmetic,
                                        Results &out) {
  size_t count = op.getKeyParameters().size();
  SmallVector<PackedAxis> axes = {kBlocks, kBlocks, kTokens, kTokens};
  axes.append(2 * count, PackedAxis());
  SmallVector<PackedOutput> outputs = {
      {shapeOf(op.getKeyInputGrad()), kTokens},
      {shapeOf(op.getValueInputGrad()), kTokens}};
  for (Value grad : op.getParameterGrads())
    outputs.push_back({shapeOf(grad), PackedAxis()});
  runSequences(op.getStart(), {op.getBlock(), op.getStride()}, in, axes,
               outputs, out, [&](std::vector<Tensor> x) -> std::vector<Tensor> {
                 SmallVector<const Tensor *> pointers = pointTo(x);
                 Operands own = pointers;
                 SmallVector<Tensor> grads, parameters;
                 for (size_t i : {0, 1})
                   runCompressBackward(op, x[i], x[2 + i],
                                       own.slice(4 + i * count, count),
                                       arithmetic, grads, parameters);
                 std::move(parameters.begin(), parameters.end(),
                           std::back_inserter(grads));
                 return {grads.begin(), grads.end()};
               });
}

static void addCompression(Evaluator &evaluator) {
  evaluator.add<CompressOp>([&](CompressOp op, Operands in, Results &out) {
    SmallVector<PackedAxis> axes = {kTokens};
    axes.append(op.getParameters().size(), PackedAxis());
    runSequences(op.getStart(), {op.getBlock(), op.getStride()}, in, axes,
                 {{shapeOf(op.getOutput()), kBlocks}}, out,
                 [&](std::vector<Tensor> x) -> std::vector<Tensor> {
                   SmallVector<const Tensor *> operands = pointTo(x);
                   return {runCompress(op, x[0],
                                       ArrayRef(operands).drop_front(),
                                       evaluator.getArithmetic(op))};
                 });
    return success();
  });
  evaluator.add<CompressBackwardOp>([&](CompressBackwardOp op, Operands in,
                                        Results &out) {
    SmallVector<PackedAxis> axes = {kBlocks, kTokens};
    axes.append(op.getParameters().size(), PackedAxis());
    SmallVector<PackedOutput> outputs = {{shapeOf(op.getInputGrad()), kTokens}};
    for (Value grad : op.getParameterGrads())
      outputs.push_back({shapeOf(grad), PackedAxis()});
    runSequences(
        op.getStart(), {op.getBlock(), op.getStride()}, in, axes, outputs, out,
        [&](std::vector<Tensor> x) -> std::vector<Tensor> {
          SmallVector<Tensor> grads, parameters;
          SmallVector<const Tensor *> operands = pointTo(x);
          runCompressBackward(op, x[0], x[1], ArrayRef(operands).drop_front(2),
                              evaluator.getArithmetic(op), grads, parameters);
          std::move(parameters.begin(), parameters.end(),
                    std::back_inserter(grads));
          return {grads.begin(), grads.end()};
        });
    return success();
  });
  evaluator.add<CompressKeyValueOp>(
      [&](CompressKeyValueOp op, Operands in, Results &out) {
        runCompressKeyValue(op, in, evaluator.getArithmetic(op), out);
        return success();
      });
  evaluator.add<CompressKeyValueBackwardOp>(
      [&](CompressKeyValueBackwardOp op, Operands in, Results &out) {
        runCompressKeyValueBackward(op, in, evaluator.getArithmetic(op), out);
        return success();
      });
}

static void addCombination(Evaluator &evaluator) {
  evaluator.add<CombineOp>([](CombineOp op, Operands in, Results &out) {
    out.push_back(combine(*in[0], in.drop_front().vec()));
    return success();
  });
  evaluator.add<CombineBackwardOp>(
      [](CombineBackwardOp op, Operands in, Results &out) {
        CombineGradients grads =
            combineBackward(*in[0], *in[1], in.drop_front(2).vec());
        out.push_back(std::move(grads.gates));
        llvm::append_range(out, std::move(grads.branches));
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
        out.push_back(selectionStatistics(*in[0], op.getSelectBlock(),
                                          op.getStart() ? in[1] : nullptr));
        return success();
      });
}

static LogicalResult runRotaryAttention(RotaryAttentionOp op, Operands in,
                                        Results &out) {
  VisibilityAttrInterface visibility = op.getVisibility();
  size_t numKeys = op.getKeys().size();
  PackedAxis rows = getKeyAxis(visibility);
  SmallVector<PackedAxis> axes = {kTokens, rows, rows};
  axes.append(numKeys, kTokens);
  axes.push_back(PackedAxis());
  SmallVector<PackedOutput> outputs = {
      {shapeOf(op.getOutput()), kTokens},
      {shapeOf(op.getLse()), kTokensOfHeads},
      {shapeOf(op.getRotatedQuery()), kTokens}};
  for (Value key : op.getRotatedKeys())
    outputs.push_back({shapeOf(key), kTokens});
  runSequences(
      op.getStart(), getLengths(visibility), in, axes, outputs, out,
      [&](std::vector<Tensor> x) -> std::vector<Tensor> {
        auto rotate = [&](const Tensor &tokens) {
          return rotary(tokens, x.back(), /*stride=*/1,
                        /*inverse=*/false);
        };
        Tensor q = rotate(x[0]);
        AttentionResult result =
            attention(q, x[1], x[2], op.getScaleOrDefault(),
                      getVisibleKeys(visibility, x[1].dim(1), nullptr));
        std::vector<Tensor> own = {std::move(result.output),
                                   std::move(result.lse), std::move(q)};
        for (size_t i = 0; i < numKeys; ++i)
          own.push_back(rotate(x[3 + i]));
        return own;
      });
  return success();
}

void nsa::reference::addNSAHandlers(Evaluator &evaluator) {
  addAttentions(evaluator);
  addCompression(evaluator);
  addCombination(evaluator);
  addStatistics(evaluator);
  evaluator.add<RotaryAttentionOp>(runRotaryAttention);
}
