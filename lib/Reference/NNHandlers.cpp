//===- NNHandlers.cpp - the nn operations in the evaluator ----------------===//

#include "dialects/NN/NNActivations.h"
#include "dialects/NN/NNOptimizers.h"
#include "lib/Reference/Evaluator.h"
#include "lib/Reference/Kernels/NN.h"
#include "nsa/Artifact/TrainingContract.h"

using namespace mlir;
using namespace nsa::nn;
using namespace nsa::reference;

using Operands = ArrayRef<const Tensor *>;
using Results = SmallVectorImpl<Tensor>;

/// Registers `body`, which returns the only result of an op.
template <typename OpTy, typename Body>
static void addSimple(Evaluator &evaluator, Body body) {
  evaluator.add<OpTy>([=](OpTy op, Operands in, Results &out) {
    out.push_back(body(op, in));
    return success();
  });
}

/// The operand with another shape, which has as many elements.
static Tensor reshaped(const Tensor &tensor, Value result) {
  Tensor out = tensor;
  out.shape = shapeOf(result);
  return out;
}

static Tensor scalar(double value) {
  return Tensor(std::vector<int64_t>{}, value);
}

static void addViews(Evaluator &evaluator) {
  addSimple<EmbeddingOp>(evaluator, [](EmbeddingOp, Operands in) {
    return embedding(*in[0], *in[1]);
  });
  addSimple<EmbeddingBackwardOp>(
      evaluator, [](EmbeddingBackwardOp op, Operands in) {
        return embeddingBackward(*in[0], *in[1], op.getVocab());
      });
  addSimple<SplitHeadsOp>(evaluator, [](SplitHeadsOp op, Operands in) {
    return reshaped(*in[0], op.getOutput());
  });
  addSimple<MergeHeadsOp>(evaluator, [](MergeHeadsOp op, Operands in) {
    return reshaped(*in[0], op.getOutput());
  });
  // The mean over one rank.
  addSimple<AllReduceOp>(evaluator,
                         [](AllReduceOp, Operands in) { return *in[0]; });
  addSimple<RecomputeBarrierOp>(
      evaluator, [](RecomputeBarrierOp, Operands in) { return *in[0]; });
  addSimple<CastOp>(evaluator, [](CastOp op, Operands in) {
    Tensor out = *in[0];
    for (double &x : out.data)
      x = roundTo(op.getElementType(), x);
    return out;
  });
  addSimple<FillOp>(evaluator, [](FillOp op, Operands) {
    return Tensor(shapeOf(op.getOutput()), op.getValue().convertToDouble());
  });
}

/// Copies between a tensor and its part from `begin` on along `axis`.
template <typename Copy>
static void forPart(const Tensor &whole, const Tensor &part, unsigned axis,
                    int64_t begin, Copy copy) {
  int64_t inner = 1, outer = 1;
  for (size_t d = 0; d < whole.shape.size(); ++d)
    (d < axis ? outer : inner) *= d == axis ? 1 : whole.shape[d];
  int64_t length = part.shape[axis] * inner;
  for (int64_t i = 0; i < outer; ++i)
    for (int64_t j = 0; j < length; ++j)
      copy((i * whole.shape[axis] + begin) * inner + j, i * length + j);
}

static void addParts(Evaluator &evaluator) {
  evaluator.add<SplitOp>([](SplitOp op, Operands in, Results &out) {
    int64_t begin = 0;
    for (Value result : op.getParts()) {
      Tensor part(shapeOf(result), 0.0);
      forPart(*in[0], part, op.getAxis(), begin,
              [&](int64_t i, int64_t j) { part.data[j] = in[0]->data[i]; });
      begin += part.shape[op.getAxis()];
      out.push_back(std::move(part));
    }
    return success();
  });
  addSimple<ConcatOp>(evaluator, [](ConcatOp op, Operands in) {
    Tensor whole(shapeOf(op.getOutput()), 0.0);
    int64_t begin = 0;
    for (const Tensor *part : in) {
      forPart(whole, *part, op.getAxis(), begin,
              [&](int64_t i, int64_t j) { whole.data[i] = part->data[j]; });
      begin += part->shape[op.getAxis()];
    }
    return whole;
  });
  addSimple<FlattenOp>(evaluator, [](FlattenOp op, Operands in) {
    Tensor whole(shapeOf(op.getOutput()), 0.0);
    size_t at = 0;
    for (const Tensor *part : in) {
      llvm::copy(part->data, whole.data.begin() + at);
      at += llvm::alignTo(part->data.size(), kFlatAlignment);
    }
    return whole;
  });
}

static void addLinear(Evaluator &evaluator) {
  addSimple<MatmulOp>(evaluator, [](MatmulOp op, Operands in) {
    Tensor out = matmul(*in[0], *in[1], op.getTransposeLhs(),
                        op.getTransposeRhs(), shapeOf(op.getOutput()));
    if (op.getAccumulator())
      for (auto [sum, term] : llvm::zip_equal(out.data, in[2]->data))
        sum += term;
    return out;
  });
  evaluator.add<RMSNormOp>([](RMSNormOp op, Operands in, Results &out) {
    RmsNormResult result =
        rmsNorm(*in[0], *in[1], op.getEps().convertToDouble());
    out.push_back(std::move(result.output));
    out.push_back(std::move(result.rstd));
    return success();
  });
  evaluator.add<RMSNormBackwardOp>([](RMSNormBackwardOp, Operands in,
                                      Results &out) {
    RmsNormGradients grads = rmsNormBackward(*in[0], *in[1], *in[2], *in[3]);
    out.push_back(std::move(grads.input));
    out.push_back(std::move(grads.weight));
    return success();
  });
  addSimple<RotaryOp>(evaluator, [](RotaryOp op, Operands in) {
    return rotary(*in[0], *in[1], op.getStride(), op.getInverse(),
                  op.getStart() ? in[2] : nullptr);
  });
}

static void addGates(Evaluator &evaluator) {
  addSimple<GateOp>(evaluator, [](GateOp op, Operands in) {
    return gate(*in[0], in.size() > 1 ? *in[1] : Tensor(),
                op.getActivation() == GateActivation::Softmax,
                op.getBranches());
  });
  evaluator.add<GateBackwardOp>(
      [](GateBackwardOp op, Operands in, Results &out) {
        GateGradients grads = gateBackward(
            *in[0], *in[1], op.getActivation() == GateActivation::Softmax);
        out.push_back(std::move(grads.logits));
        out.push_back(std::move(grads.bias));
        return success();
      });
}

static void addElementwise(Evaluator &evaluator) {
  addSimple<SiluOp>(evaluator,
                    [](SiluOp, Operands in) { return silu(*in[0]); });
  addSimple<SiluBackwardOp>(evaluator, [](SiluBackwardOp, Operands in) {
    return siluBackward(*in[0], *in[1]);
  });
  addSimple<SwiGLUOp>(
      evaluator, [](SwiGLUOp, Operands in) { return swiglu(*in[0], *in[1]); });
  evaluator.add<SwiGLUBackwardOp>(
      [](SwiGLUBackwardOp, Operands in, Results &out) {
        SwigluGradients grads = swigluBackward(*in[0], *in[1], *in[2]);
        out.push_back(std::move(grads.gate));
        out.push_back(std::move(grads.up));
        return success();
      });
  addSimple<AddOp>(evaluator, [](AddOp, Operands in) {
    return nsa::reference::add(*in[0], *in[1]);
  });
}

static void addActivations(Evaluator &evaluator) {
  addSimple<GeluOp>(evaluator,
                    [](GeluOp, Operands in) { return gelu(*in[0]); });
  addSimple<GeluBackwardOp>(evaluator, [](GeluBackwardOp, Operands in) {
    return geluBackward(*in[0], *in[1]);
  });
  addSimple<SquaredReluOp>(evaluator, [](SquaredReluOp, Operands in) {
    return squaredRelu(*in[0]);
  });
  addSimple<SquaredReluBackwardOp>(evaluator,
                                   [](SquaredReluBackwardOp, Operands in) {
                                     return squaredReluBackward(*in[0], *in[1]);
                                   });
  addSimple<SoftcapOp>(evaluator, [](SoftcapOp op, Operands in) {
    return softcap(*in[0], op.getCap().convertToDouble());
  });
  addSimple<SoftcapBackwardOp>(
      evaluator, [](SoftcapBackwardOp op, Operands in) {
        return softcapBackward(*in[0], *in[1], op.getCap().convertToDouble());
      });
}

static void addTraining(Evaluator &evaluator) {
  evaluator.add<CrossEntropyOp>(
      [](CrossEntropyOp op, Operands in, Results &out) {
        CrossEntropyResult result = crossEntropy(*in[0], *in[1]);
        if (op.getOverAll()) {
          result.count.data[0] /= double(op.getNumTargets());
          result.loss.data[0] *= result.count.data[0];
        }
        out.push_back(std::move(result.loss));
        out.push_back(std::move(result.lse));
        out.push_back(std::move(result.count));
        return success();
      });
  addSimple<CrossEntropyBackwardOp>(
      evaluator, [](CrossEntropyBackwardOp, Operands in) {
        return crossEntropyBackward(*in[0], *in[1], *in[2], *in[3], *in[4]);
      });
  addSimple<GradientNormOp>(evaluator, [](GradientNormOp op, Operands in) {
    double norm =
        gradientNorm(std::vector<const Tensor *>(in.begin(), in.end()));
    return scalar(op.getSquared() ? norm * norm : norm);
  });
  evaluator.add<AverageStepOp>([](AverageStepOp, Operands in, Results &out) {
    Tensor hyper = *in[0];
    hyper.data[nsa::training::gradScaleSlot] /= in[2]->data[0];
    out.push_back(std::move(hyper));
    out.push_back(scalar(in[1]->data[0] / in[2]->data[0]));
    return success();
  });
  evaluator.add<UpdateLossScaleOp>([](UpdateLossScaleOp op, Operands in,
                                      Results &out) {
    Tensor hyper = *in[0];
    double norm = in[1]->data[0];
    LossScale state = {in[3]->data[0], in[4]->data[0], in[5]->data[0]};
    updateLossScale(state, hyper, norm, in[2]->data[0], op.getGrowthInterval());
    out.push_back(std::move(hyper));
    for (double value : {norm, state.scale, state.streak, state.skipped})
      out.push_back(scalar(value));
    return success();
  });
  evaluator.add<LionOp>([](LionOp op, Operands in, Results &out) {
    Tensor weight = *in[0], ema = *in[1];
    lion(weight, ema, *in[2], in[3]->data[0], in[4]->data[0], *in[5],
         op.getDecay());
    out.push_back(std::move(weight));
    out.push_back(std::move(ema));
    return success();
  });
  evaluator.add<MuonOp>([](MuonOp op, Operands in, Results &out) {
    Tensor weight = *in[0], momentum = *in[1];
    std::optional<Type> element = op.getElementType();
    muon(weight, momentum, *in[2], in[3]->data[0], in[4]->data[0], *in[5],
         op.getDecay(),
         [&](double x) { return element ? roundTo(*element, x) : x; });
    out.push_back(std::move(weight));
    out.push_back(std::move(momentum));
    return success();
  });
  addSimple<NormalizeOp>(evaluator, [](NormalizeOp op, Operands in) {
    std::optional<Type> element = op.getResultType();
    return normalizeMatrices(*in[0], op.getBatch(), [&](double x) {
      return element ? roundTo(*element, x) : x;
    });
  });
  addSimple<BatchMatmulOp>(evaluator, [](BatchMatmulOp op, Operands in) {
    Tensor out =
        batchMatmul(*in[0], *in[1], op.getTransposeLhs(), op.getTransposeRhs(),
                    op.getBatch(), shapeOf(op.getOutput()));
    for (size_t i = 0; i < out.data.size(); ++i) {
      out.data[i] *= op.getAlpha().convertToDouble();
      if (op.getAddend())
        out.data[i] += op.getBeta().convertToDouble() * in[2]->data[i];
    }
    return out;
  });
  evaluator.add<AdamWOp>([](AdamWOp op, Operands in, Results &out) {
    Tensor weight = *in[0], moment1 = *in[1], moment2 = *in[2];
    adamw(weight, moment1, moment2, *in[3], in[4]->data[0], in[5]->data[0],
          *in[6], op.getDecay());
    out.push_back(std::move(weight));
    out.push_back(std::move(moment1));
    out.push_back(std::move(moment2));
    return success();
  });
}

void nsa::reference::addNNHandlers(Evaluator &evaluator) {
  addViews(evaluator);
  addParts(evaluator);
  addLinear(evaluator);
  addGates(evaluator);
  addElementwise(evaluator);
  addActivations(evaluator);
  addTraining(evaluator);
}
