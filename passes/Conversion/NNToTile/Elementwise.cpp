//===- Elementwise.cpp - activations, sums and casts ----------------------===//

#include "dialects/NN/NNOps.h"
#include "passes/Conversion/NNToTile/NNToTile.h"

using namespace mlir;
using namespace nsa;
using namespace nsa::tile;

//===----------------------------------------------------------------------===//
// Formulas: operands of one element to its results, in f32
//===----------------------------------------------------------------------===//

static SmallVector<Value> silu(ArrayRef<Expr> x) {
  return {x[0] * sigmoid(x[0])};
}

/// d/dx silu(x), given s = sigmoid(x).
static Expr siluSlope(Expr x, Expr s) { return s * (1 + x * (1 - s)); }

static SmallVector<Value> siluBackward(ArrayRef<Expr> x) {
  Expr dy = x[0], input = x[1];
  return {dy * siluSlope(input, sigmoid(input))};
}

static SmallVector<Value> swiglu(ArrayRef<Expr> x) {
  Expr gate = x[0], up = x[1];
  return {gate * sigmoid(gate) * up};
}

static SmallVector<Value> swigluBackward(ArrayRef<Expr> x) {
  Expr dy = x[0], gate = x[1], up = x[2];
  Expr s = sigmoid(gate);
  return {dy * up * siluSlope(gate, s), dy * gate * s};
}

static SmallVector<Value> sum(ArrayRef<Expr> x) { return {x[0] + x[1]}; }

static SmallVector<Value> identity(ArrayRef<Expr> x) { return {x[0]}; }

//===----------------------------------------------------------------------===//
// Pattern
//===----------------------------------------------------------------------===//

namespace {
/// Programs are stretches of the flat tensors. Each tile is read before it is
/// written, so a result may take the memory of an operand.
template <typename OpT>
class ConvertElementwise : public KernelPattern<OpT> {
public:
  using Formula = SmallVector<Value> (*)(ArrayRef<Expr>);

  ConvertElementwise(MLIRContext *context, KernelCache &cache, Formula formula,
                     int64_t flops)
      : KernelPattern<OpT>(context, cache), formula(formula), flops(flops) {}

  LogicalResult matchAndRewrite(OpT op,
                                PatternRewriter &rewriter) const override {
    FlatGrid grid(ShapedType::getNumElements(getShape(op->getResult(0))));
    if (!grid.fits())
      return rewriter.notifyMatchFailure(op, "too many elements");
    KernelSpec spec = {
        "", grid.name(), {grid.programs, 1, 1}, flops * grid.elements};
    rewriter.replaceOp(
        op, this->cache.launch(rewriter, op, spec, op->getOperands(),
                               op->getResultTypes(),
                               [&](TileBuilder &b, ArrayRef<Value> args) {
                                 build(b, grid, args, op->getNumOperands());
                               }));
    return success();
  }

private:
  void build(TileBuilder &b, const FlatGrid &grid, ArrayRef<Value> args,
             unsigned numInputs) const;

  Formula formula;
  /// Per element.
  int64_t flops;
};
} // namespace

template <typename OpT>
void ConvertElementwise<OpT>::build(TileBuilder &b, const FlatGrid &grid,
                                    ArrayRef<Value> args,
                                    unsigned numInputs) const {
  auto flat =
      llvm::map_to_vector(args, [&](Value ref) { return grid.view(b, ref); });
  SmallVector<Type> types;
  for (Value output : ArrayRef(flat).drop_front(numInputs))
    types.push_back(cast<MemRefType>(output.getType()).getElementType());
  grid.forEachTile(b, {}, [&](Value i, ArrayRef<Value>) -> SmallVector<Value> {
    SmallVector<Value> inputs;
    for (Value input : ArrayRef(flat).take_front(numInputs))
      inputs.push_back(b.load(input, {i}));
    SmallVector<Value> results = b.map(inputs, types, formula);
    for (auto [result, output] :
         llvm::zip_equal(results, ArrayRef(flat).drop_front(numInputs)))
      b.store(result, output, {i});
    return {};
  });
}

void nsa::populateElementwisePatterns(RewritePatternSet &patterns,
                                      KernelCache &cache) {
  MLIRContext *context = patterns.getContext();
  patterns.add<ConvertElementwise<nn::SiluOp>>(context, cache, silu, 5);
  patterns.add<ConvertElementwise<nn::SiluBackwardOp>>(context, cache,
                                                       siluBackward, 9);
  patterns.add<ConvertElementwise<nn::SwiGLUOp>>(context, cache, swiglu, 6);
  patterns.add<ConvertElementwise<nn::SwiGLUBackwardOp>>(context, cache,
                                                         swigluBackward, 12);
  patterns.add<ConvertElementwise<nn::AddOp>>(context, cache, sum, 1);
  patterns.add<ConvertElementwise<nn::CastOp>>(context, cache, identity, 0);
}
