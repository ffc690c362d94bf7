//===- CompressKeyValue.cpp - compression of keys and values at once ------===//
//
// The kernels of nsa.compress as one launch. Compressed keys are rotated in
// place by the program that has just written them.
//
//===----------------------------------------------------------------------===//

#include "passes/Kernels/LaunchGroup.h"
#include "passes/Kernels/NSA/CompressKernels.h"
#include "passes/Kernels/NSA/NSAToTile.h"
#include "passes/Kernels/Rotation.h"

#include "mlir/Transforms/RegionUtils.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

namespace {
/// The keys' or the values' part of an operation, in the form of nsa.compress.
struct CompressPart {
  CompressionKind getKind() const { return kind; }
  Value getInput() const { return input; }
  Value getWeight() const { return parameters[0]; }
  Value getPositions() const {
    unsigned index = getNumWeights(kind);
    return index < parameters.size() ? parameters[index] : Value();
  }
  Value getStart() const { return start; }
  int64_t getBlock() const { return block; }
  int64_t getStride() const { return stride; }
  /// Inputs of a projection.
  SmallVector<Value> getProjected() const {
    SmallVector<Value> values = {input};
    llvm::append_range(values, parameters);
    if (bias)
      values.back() = bias;
    return withStart(values);
  }
  SmallVector<Value> withStart(SmallVector<Value> values) const {
    if (start)
      values.push_back(start);
    return values;
  }

  CompressionKind kind;
  Value input;
  ValueRange parameters;
  int64_t block, stride;
  /// Where packed sequences begin, or null.
  Value start;
  /// What the positions, if there are some, add to the dot with the weight.
  Value bias;
};

template <typename OpT>
std::array<CompressPart, 2> getParts(OpT op) {
  auto block = static_cast<int64_t>(op.getBlock());
  auto stride = static_cast<int64_t>(op.getStride());
  return {CompressPart{op.getKind(), op.getKey(), op.getKeyParameters(), block,
                       stride, op.getStart(), Value()},
          CompressPart{op.getKind(), op.getValue(), op.getValueParameters(),
                       block, stride, op.getStart(), Value()}};
}

using Build = void (CompressKernel::*)(TileBuilder &,
                                       CompressKernel::Args) const;

/// One kernel of a part.
LaunchPart makeLaunch(const CompressKernel &kernel, KernelSpec spec,
                      ArrayRef<Value> inputs, ArrayRef<Type> outputs,
                      Build build) {
  return {std::move(spec), llvm::to_vector(inputs), llvm::to_vector(outputs),
          [kernel, build](TileBuilder &b, ArrayRef<Value> args) {
            (kernel.*build)(b, args);
          }};
}

/// Launches what computes the bias of both parts.
void launchBiases(KernelCache &cache, OpBuilder &builder, Operation *op,
                  MutableArrayRef<CompressPart> parts) {
  std::vector<LaunchPart> launches;
  for (const CompressPart &part : parts) {
    CompressKernel kernel(part, cache.getSchedule());
    launches.push_back(makeLaunch(
        kernel, kernel.biasSpec(), {part.getWeight(), part.getPositions()},
        kernel.biasType(builder.getContext()), &CompressKernel::buildBias));
  }
  auto biases = launchTogether(cache, builder, op, "bias", launches);
  for (auto [part, results] : llvm::zip_equal(parts, biases))
    part.bias = results[0];
}

/// The parts of an operation whose projections are computed.
template <typename OpT>
std::array<CompressPart, 2> getProjectedParts(OpT op, KernelCache &cache,
                                              OpBuilder &builder) {
  std::array<CompressPart, 2> parts = getParts(op);
  if (parts[0].getPositions())
    launchBiases(cache, builder, op, parts);
  return parts;
}
} // namespace

/// The kernels of the keys and of the values.
static std::vector<LaunchPart>
makeParts(CompressKeyValueOp op, KernelCache &cache, OpBuilder &builder) {
  const KernelSchedule &schedule = cache.getSchedule();
  std::array<CompressPart, 2> parts = getProjectedParts(op, cache, builder);
  std::vector<LaunchPart> launches;
  bool mean = op.getKind() == CompressionKind::Mean;
  for (auto [part, result] : llvm::zip_equal(parts, op.getResults())) {
    CompressKernel kernel(part, schedule);
    launches.push_back(makeLaunch(
        kernel,
        kernel.spec("", kernel.blockGrid(), mean ? 1 : 2 * kernel.width),
        part.getProjected(), result.getType(),
        mean ? &CompressKernel::buildMean : &CompressKernel::buildProjection));
  }
  if (Value table = op.getTable()) {
    LaunchPart &keys = launches.front();
    CompressKernel kernel(parts.front(), schedule);
    keys.spec.takesExtents =
        keys.spec.takesExtents &&
        hasAnglesOfAll(table, getExtent(op.getCompressedKey(), 1));
    keys.inputs.push_back(table);
    keys.build = [kernel, compress = keys.build](TileBuilder &b,
                                                 ArrayRef<Value> args) {
      // The kernel of nsa.compress knows no table.
      SmallVector<Value> own(args.drop_back(2));
      Value start = kernel.isPacked ? own.back() : Value();
      own.push_back(args.back());
      compress(b, own);
      int64_t rows = kernel.blockTile();
      rotateRange(b, args.back(), args.back(), args[args.size() - 2],
                  b.programId(2), b.programId(1), b.programId(0) * rows, rows,
                  kernel.stride, /*inverse=*/false, start);
    };
  }
  return launches;
}

static LogicalResult convertCompressKeyValue(CompressKeyValueOp op,
                                             KernelCache &cache,
                                             PatternRewriter &rewriter) {
  auto results =
      launchTogether(cache, rewriter, op, "", makeParts(op, cache, rewriter));
  rewriter.replaceOp(op, ValueRange{results[0][0], results[1][0]});
  return success();
}

/// Launches `compress` with programs that rotate what `attention` would, and
/// replaces both.
static void rotateWith(CompressKeyValueOp compress, RotaryAttentionOp attention,
                       KernelCache &cache) {
  IRRewriter rewriter(compress);
  std::vector<LaunchPart> parts = makeParts(compress, cache, rewriter);
  SmallVector<Value> tokens = {attention.getQuery()};
  llvm::append_range(tokens, attention.getKeys());
  for (Value x : tokens)
    parts.push_back(rotateTensor(x, attention.getTable(), attention.getStart(),
                                 /*inverse=*/false));
  auto results = launchTogether(cache, rewriter, compress, "rotary", parts);
  rewriter.replaceOp(compress, ValueRange{results[0][0], results[1][0]});
  SmallVector<Value> rotated;
  for (const SmallVector<Value> &result : ArrayRef(results).drop_front(2))
    rotated.push_back(result[0]);

  rewriter.setInsertionPoint(attention);
  auto apart = AttentionOp::create(
      rewriter, attention.getLoc(), rotated[0], attention.getKey(),
      attention.getValue(), /*indices=*/Value(), attention.getStart(),
      attention.getVisibility(), attention.getScaleAttr(),
      attention.getSoftcapAttr());
  SmallVector<Value> all = {apart.getOutput(), apart.getLse()};
  llvm::append_range(all, rotated);
  rewriter.replaceOp(attention, all);
}

void nsa::rotateWithCompression(ModuleOp module, KernelCache &cache) {
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
}

static Type getGradType(Value parameter) {
  return RankedTensorType::get(getShape(parameter),
                               Float32Type::get(parameter.getContext()));
}

namespace {
/// The gradients of one part of a learned compression.
struct ProjectionGrads {
  ProjectionGrads(const CompressPart &part, Value dY,
                  const KernelSchedule &schedule)
      : part(part), kernel(part, schedule), dY(dY), dZ(dY) {}

  int64_t product() const { return 2 * kernel.width; }
  /// For the mlp: the gradient of the hidden rows and what SiLU makes of them.
  LaunchPart hidden() const {
    SmallVector<Value> inputs = {dY};
    llvm::append_range(inputs, part.getProjected());
    return makeLaunch(
        kernel, kernel.spec("dz", kernel.hiddenGradGrid(), product()), inputs,
        {dY.getType(), dY.getType()}, &CompressKernel::buildHiddenGrad);
  }
  LaunchPart input() const {
    return makeLaunch(kernel,
                      kernel.spec("dx", kernel.inputGradGrid(), product()),
                      part.withStart({dZ, part.getWeight()}),
                      part.input.getType(), &CompressKernel::buildInputGrad);
  }
  /// Also that of the positions, if there are some.
  LaunchPart weight() const {
    SmallVector<Value> inputs = {part.input, dZ};
    SmallVector<Type> types = {getGradType(part.getWeight())};
    if (Value positions = part.getPositions()) {
      inputs.append({part.getWeight(), positions});
      types.push_back(getGradType(positions));
    }
    return makeLaunch(
        kernel, kernel.spec("dw", kernel.weightGradGrid(), product()),
        part.withStart(inputs), types, &CompressKernel::buildWeightGrad);
  }
  LaunchPart outputWeight() const {
    KernelSpec spec =
        kernel.spec("dw2", {kernel.numHiddenTiles(), kernel.heads, 1}, 0);
    spec.flops = product() * int64_t(kernel.batch * kernel.blocks *
                                     kernel.heads * kernel.width);
    return makeLaunch(kernel, spec, {active, dY},
                      getGradType(part.parameters[1]),
                      &CompressKernel::buildOutputWeightGrad);
  }

  CompressPart part;
  CompressKernel kernel;
  /// The gradients of the compressed rows and of the dot with the weight.
  Value dY, dZ, active;
};
} // namespace

/// Values in place of the results of an operation with a learned compression.
static SmallVector<Value> launchProjections(KernelCache &cache,
                                            PatternRewriter &rewriter,
                                            CompressKeyValueBackwardOp op) {
  bool mlp = op.getKind() == CompressionKind::Mlp;
  // Only the mlp computes projections again.
  std::array<CompressPart, 2> parts =
      mlp ? getProjectedParts(op, cache, rewriter) : getParts(op);
  ProjectionGrads grads[] = {
      ProjectionGrads(parts[0], op.getKeyGrad(), cache.getSchedule()),
      ProjectionGrads(parts[1], op.getValueGrad(), cache.getSchedule())};
  if (mlp) {
    auto hidden = launchTogether(cache, rewriter, op, "dz",
                                 {grads[0].hidden(), grads[1].hidden()});
    for (auto [part, results] : llvm::zip_equal(grads, hidden)) {
      part.dZ = results[0];
      part.active = results[1];
    }
  }
  std::vector<LaunchPart> launches;
  for (const ProjectionGrads &part : grads) {
    launches.push_back(part.input());
    launches.push_back(part.weight());
    if (mlp)
      launches.push_back(part.outputWeight());
  }
  auto results = launchTogether(cache, rewriter, op, "dxdw", launches);
  size_t perPart = launches.size() / 2;
  SmallVector<Value> values = {results[0][0], results[perPart][0]};
  for (size_t first : {size_t(0), perPart}) {
    values.push_back(results[first + 1][0]);
    if (mlp)
      values.push_back(results[first + 2][0]);
    llvm::append_range(values, ArrayRef(results[first + 1]).drop_front());
  }
  return values;
}

static LogicalResult
convertCompressKeyValueBackward(CompressKeyValueBackwardOp op,
                                KernelCache &cache, PatternRewriter &rewriter) {
  if (op.getKind() != CompressionKind::Mean) {
    rewriter.replaceOp(op, launchProjections(cache, rewriter, op));
    return success();
  }
  std::array<Value, 2> grads = {op.getKeyGrad(), op.getValueGrad()};
  std::vector<LaunchPart> launches;
  for (auto [part, dY] : llvm::zip_equal(getParts(op), grads)) {
    CompressKernel kernel(part, cache.getSchedule());
    Extent tiles = ceilDiv(kernel.sequence, getTileSize(kernel.sequence));
    launches.push_back(makeLaunch(
        kernel, kernel.spec("dx", {tiles, kernel.heads, kernel.batch}, 1),
        part.withStart({dY}), part.input.getType(),
        &CompressKernel::buildMeanInputGrad));
  }
  auto results = launchTogether(cache, rewriter, op, "dx", launches);
  rewriter.replaceOp(op, ValueRange{results[0][0], results[1][0]});
  return success();
}

void nsa::populateCompressKeyValuePatterns(KernelPatterns &patterns) {
  patterns.add(convertCompressKeyValue, convertCompressKeyValueBackward);
}
