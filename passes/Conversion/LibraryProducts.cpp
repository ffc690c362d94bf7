//===- LibraryProducts.cpp - products as a GPU's library has them ---------===//

#include "passes/Conversion/LibraryProducts.h"
#include "dialects/NN/NNOps.h"

using namespace mlir;
using namespace nsa;

static void makeInSingle(nn::MatmulOp product) {
  auto type = cast<RankedTensorType>(product.getOutput().getType());
  OpBuilder b(product);
  Type single = b.getF32Type();
  Value sum = product.getAccumulator();
  if (sum)
    sum = nn::CastOp::create(b, product.getLoc(), sum, single);
  auto inSingle = nn::MatmulOp::create(
      b, product.getLoc(), type.clone(single), product.getLhs(),
      product.getRhs(), sum, product.getTransposeLhs(),
      product.getTransposeRhs(), TypeAttr::get(single));
  Value result = nn::CastOp::create(b, product.getLoc(), inSingle.getOutput(),
                                    type.getElementType());
  product.getOutput().replaceAllUsesWith(result);
  product.erase();
}

void nsa::useTypesOfLibrary(ModuleOp module) {
  module.walk([](nn::MatmulOp product) {
    Type result = getElementTypeOrSelf(product.getOutput());
    if (!result.isF32() && result != getElementTypeOrSelf(product.getLhs()))
      makeInSingle(product);
  });
}
