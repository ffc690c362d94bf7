//===- CompressLaunches.cpp - launches of compressions --------------------===//
//
// Of one tensor, each kernel is a launch. Of keys and values, the kernels of
// both that depend on no other are one launch. Compressed keys are rotated in
// place by the program that has just written them.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/KernelOperands.h"
#include "passes/Kernels/NSA/CompressKernels.h"
#include "passes/Kernels/NSA/NSAToTile.h"
#include "passes/Kernels/Passes.h"
#include "passes/Kernels/Rotation.h"

#include "mlir/Transforms/RegionUtils.h"

namespace nsa {
#define GEN_PASS_DEF_ROTATEWITHCOMPRESSION
#include "passes/Kernels/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// What the kernels of one compression read, all together.
CompressOperands getOperands(CompressionKind kind, Value input,
                             ValueRange parameters, Value start,
                             Value outputGrad = {}) {
  CompressOperands in;
  in.input = input;
  in.start = start;
  in.outputGrad = in.dotGrad = outputGrad;
  unsigned weights = getNumWeights(kind);
  SmallVector<Value *> slots = {&in.weight, &in.outputWeight};
  slots.truncate(weights);
  slots.push_back(&in.positions);
  for (auto [slot, value] : llvm::zip(slots, parameters))
    *slot = value;
  return in;
}

Type getGradType(Value parameter) {
  return RankedTensorType::get(getShape(parameter),
                               Float32Type::get(parameter.getContext()));
}

/// One compression. Each function makes one of its kernels.
struct Compression {
  using Build = void (CompressKernel::*)(TileBuilder &,
                                         const CompressOperands &,
                                         ArrayRef<Value>) const;

  LaunchPart make(KernelSpec spec, const CompressOperands &in,
                  SmallVector<Type> types, Build build) const {
    return makeLaunch(std::move(spec), in, std::move(types),
                      [kernel = kernel, build](TileBuilder &b,
                                               const CompressOperands &in,
                                               ArrayRef<Value> out) {
                        (kernel.*build)(b, in, out);
                      });
  }
  int64_t product() const { return 2 * kernel.width; }

  LaunchPart bias() const {
    CompressOperands own;
    own.weight = in.weight;
    own.positions = in.positions;
    return make(kernel.biasSpec(), own,
                {kernel.biasType(in.weight.getContext())},
                &CompressKernel::buildBias);
  }
  /// What takes the place of `y`.
  LaunchPart output(Value y) const;
  /// For the mlp: the gradient of the hidden rows and what SiLU makes of them.
  LaunchPart hiddenGrad() const {
    CompressOperands own = in;
    own.dotGrad = {};
    Type type = in.outputGrad.getType();
    return make(kernel.spec("dz", kernel.hiddenGradGrid(), product()), own,
                {type, type}, &CompressKernel::buildHiddenGrad);
  }
  LaunchPart inputGrad() const {
    CompressOperands own;
    own.start = in.start;
    if (kernel.kind == CompressionKind::Mean) {
      own.outputGrad = in.outputGrad;
      Extent tiles = ceilDiv(kernel.sequence, getTileSize(kernel.sequence));
      return make(kernel.spec("dx", {tiles, kernel.heads, kernel.batch}, 1),
                  own, {in.input.getType()},
                  &CompressKernel::buildMeanInputGrad);
    }
    own.dotGrad = in.dotGrad;
    own.weight = in.weight;
    return make(kernel.spec("dx", kernel.inputGradGrid(), product()), own,
                {in.input.getType()}, &CompressKernel::buildInputGrad);
  }
  /// Also that of the positions, if there are some.
  LaunchPart weightGrad() const {
    CompressOperands own;
    own.input = in.input;
    own.dotGrad = in.dotGrad;
    own.start = in.start;
    SmallVector<Type> types = {getGradType(in.weight)};
    if (kernel.hasPositions) {
      own.weight = in.weight;
      own.positions = positions;
      types.push_back(getGradType(positions));
    }
    return make(kernel.spec("dw", kernel.weightGradGrid(), product()), own,
                types, &CompressKernel::buildWeightGrad);
  }
  LaunchPart outputWeightGrad() const {
    KernelSpec spec =
        kernel.spec("dw2", {kernel.numHiddenTiles(), kernel.heads, 1}, 0);
    spec.flops = product() * int64_t(kernel.batch * kernel.blocks *
                                     kernel.heads * kernel.width);
    CompressOperands own;
    own.active = in.active;
    own.outputGrad = in.outputGrad;
    return make(spec, own, {getGradType(in.outputWeight)},
                &CompressKernel::buildOutputWeightGrad);
  }

  CompressKernel kernel;
  /// With the bias in place of the positions, once it is computed.
  CompressOperands in;
  Value positions;
};

/// The compressions of one operation.
class Compressions {
public:
  Compressions(CompressOp op, KernelCache &cache, OpBuilder &builder)
      : op(op), cache(cache), builder(builder) {
    add(op, op.getInput(), op.getParameters());
  }
  Compressions(CompressBackwardOp op, KernelCache &cache, OpBuilder &builder)
      : op(op), cache(cache), builder(builder) {
    add(op, op.getInput(), op.getParameters(), op.getOutputGrad());
  }
  Compressions(CompressKeyValueOp op, KernelCache &cache, OpBuilder &builder)
      : op(op), cache(cache), builder(builder) {
    add(op, op.getKey(), op.getKeyParameters());
    add(op, op.getValue(), op.getValueParameters());
    parts.front().in.table = op.getTable();
  }
  Compressions(CompressKeyValueBackwardOp op, KernelCache &cache,
               OpBuilder &builder)
      : op(op), cache(cache), builder(builder) {
    add(op, op.getKey(), op.getKeyParameters(), op.getKeyGrad());
    add(op, op.getValue(), op.getValueParameters(), op.getValueGrad());
  }

  /// What takes the place of `results`.
  std::vector<LaunchPart> makeOutputs(ValueRange results);
  SmallVector<Value> launchOutputs() {
    auto results = launch("", makeOutputs(op->getResults()));
    return llvm::map_to_vector(results, [](auto &own) { return own.front(); });
  }
  /// Those of the inputs, then of the parameters.
  SmallVector<Value> launchGrads();
  /// Launches kernels of one compression one by one, those of two together.
  SmallVector<SmallVector<Value>> launch(StringRef suffix,
                                         ArrayRef<LaunchPart> launches);

private:
  template <typename OpT>
  void add(OpT op, Value input, ValueRange parameters, Value outputGrad = {}) {
    CompressOperands in =
        getOperands(op.getKind(), input, parameters, op.getStart(), outputGrad);
    parts.push_back({{op.getKind(), op.getCompressed(), in, cache.getMachine()},
                     in,
                     in.positions});
  }
  void launchBiases();

  Operation *op;
  KernelCache &cache;
  OpBuilder &builder;
  SmallVector<Compression> parts;
};
} // namespace

LaunchPart Compression::output(Value y) const {
  bool isMean = kernel.kind == CompressionKind::Mean;
  KernelSpec spec = kernel.spec("", kernel.blockGrid(), isMean ? 1 : product());
  spec.takesExtents =
      spec.takesExtents && hasAnglesOfAll(in.table, getExtent(y, 1));
  return makeLaunch(
      spec, in, {y.getType()},
      [kernel = kernel, isMean](TileBuilder &b, const CompressOperands &in,
                                ArrayRef<Value> out) {
        isMean ? kernel.buildMean(b, in, out)
               : kernel.buildProjection(b, in, out);
        int64_t rows = kernel.blockTile();
        if (in.table)
          rotateRange(b, out.front(), out.front(), in.table, b.programId(2),
                      b.programId(1), b.programId(0) * rows, rows,
                      kernel.stride, /*inverse=*/false, in.start);
      });
}

SmallVector<SmallVector<Value>>
Compressions::launch(StringRef suffix, ArrayRef<LaunchPart> launches) {
  if (parts.size() > 1)
    return launchTogether(cache, builder, op, suffix, launches);
  SmallVector<SmallVector<Value>> results;
  for (const LaunchPart &part : launches)
    results.emplace_back(nsa::launch(cache, builder, op, part));
  return results;
}

void Compressions::launchBiases() {
  if (!parts.front().kernel.hasPositions)
    return;
  std::vector<LaunchPart> launches;
  for (const Compression &part : parts)
    launches.push_back(part.bias());
  for (auto [part, results] : llvm::zip_equal(parts, launch("bias", launches)))
    part.in.positions = results.front();
}

std::vector<LaunchPart> Compressions::makeOutputs(ValueRange results) {
  launchBiases();
  std::vector<LaunchPart> launches;
  for (auto [part, result] : llvm::zip_equal(parts, results))
    launches.push_back(part.output(result));
  return launches;
}

SmallVector<Value> Compressions::launchGrads() {
  CompressionKind kind = parts.front().kernel.kind;
  bool isMean = kind == CompressionKind::Mean;
  bool isMlp = kind == CompressionKind::Mlp;
  std::vector<LaunchPart> launches;
  if (isMlp) {
    // Only the mlp computes projections again.
    launchBiases();
    for (const Compression &part : parts)
      launches.push_back(part.hiddenGrad());
    for (auto [part, results] :
         llvm::zip_equal(parts, launch("dz", launches))) {
      auto [dotGrad, active] = named<2>(results);
      part.in.dotGrad = dotGrad;
      part.in.active = active;
    }
    launches.clear();
  }
  for (const Compression &part : parts) {
    launches.push_back(part.inputGrad());
    if (!isMean)
      launches.push_back(part.weightGrad());
    if (isMlp)
      launches.push_back(part.outputWeightGrad());
  }
  auto results = launch(isMean ? "dx" : "dxdw", launches);
  SmallVector<Value> inputs, parameters;
  for (auto *next = results.begin(); next != results.end();) {
    inputs.push_back((next++)->front());
    if (isMean)
      continue;
    ArrayRef<Value> weightGrads = *next++;
    parameters.push_back(weightGrads.front());
    if (isMlp)
      parameters.push_back((next++)->front());
    llvm::append_range(parameters, weightGrads.drop_front());
  }
  llvm::append_range(inputs, parameters);
  return inputs;
}

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

template <typename OpT>
static LogicalResult convertOutputs(OpT op, KernelCache &cache,
                                    PatternRewriter &rewriter) {
  rewriter.replaceOp(op, Compressions(op, cache, rewriter).launchOutputs());
  return success();
}

template <typename OpT>
static LogicalResult convertGrads(OpT op, KernelCache &cache,
                                  PatternRewriter &rewriter) {
  rewriter.replaceOp(op, Compressions(op, cache, rewriter).launchGrads());
  return success();
}

/// Launches `compress` with programs that rotate what `attention` would, and
/// replaces both.
static void rotateWith(CompressKeyValueOp compress, RotaryAttentionOp attention,
                       KernelCache &cache) {
  IRRewriter rewriter(compress);
  Compressions compressions(compress, cache, rewriter);
  std::vector<LaunchPart> parts =
      compressions.makeOutputs(compress.getResults());
  SmallVector<Value> tokens = {attention.getQuery()};
  llvm::append_range(tokens, attention.getKeys());
  for (Value x : tokens)
    parts.push_back(rotateTensor(x, attention.getTable(), attention.getStart(),
                                 /*inverse=*/false));
  auto results = llvm::map_to_vector(compressions.launch("rotary", parts),
                                     [](auto &own) { return own.front(); });
  ArrayRef<Value> rotated = ArrayRef(results).drop_front(2);
  rewriter.replaceOp(compress, ArrayRef(results).take_front(2));

  rewriter.setInsertionPoint(attention);
  auto apart = AttentionOp::create(
      rewriter, attention.getLoc(), rotated.front(), attention.getKey(),
      attention.getValue(), /*indices=*/Value(), attention.getStart(),
      /*at=*/Value(), attention.getVisibility(), attention.getScaleAttr(),
      attention.getSoftcapAttr());
  apart->setDiscardableAttrs(attention->getDiscardableAttrDictionary());
  SmallVector<Value> all = {apart.getOutput(), apart.getLse()};
  llvm::append_range(all, rotated);
  rewriter.replaceOp(attention, all);
}

namespace {
struct RotateWithCompression
    : nsa::impl::RotateWithCompressionBase<RotateWithCompression> {
  void runOnOperation() override;
};
} // namespace

void RotateWithCompression::runOnOperation() {
  ModuleOp module = getOperation();
  KernelCache cache(module);
  if (!cache.getMachine().isParallel())
    return;
  SmallVector<RotaryAttentionOp> attentions;
  module.walk([&](RotaryAttentionOp op) { attentions.push_back(op); });
  for (RotaryAttentionOp attention : attentions) {
    auto compress = attention.getKey().getDefiningOp<CompressKeyValueOp>();
    if (!compress)
      continue;
    SmallVector<Value> inputs(attention.getKeys());
    inputs.append({attention.getQuery(), attention.getTable()});
    if (attention.getStart())
      inputs.push_back(attention.getStart());
    IRRewriter rewriter(module.getContext());
    if (succeeded(moveValueDefinitions(rewriter, inputs, compress)))
      rotateWith(compress, attention, cache);
  }
  if (cache.hasFailed())
    signalPassFailure();
}

void nsa::populateCompressPatterns(KernelPatterns &patterns) {
  patterns.add(convertOutputs<CompressOp>, convertOutputs<CompressKeyValueOp>,
               convertGrads<CompressBackwardOp>,
               convertGrads<CompressKeyValueBackwardOp>);
}
