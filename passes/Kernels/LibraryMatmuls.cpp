//===- LibraryMatmuls.cpp - matmuls as a GPU's library has them -----------===//

#include "dialects/NN/NNOps.h"
#include "dialects/NSA/NSADialect.h"
#include "passes/Kernels/Passes.h"

namespace nsa {
#define GEN_PASS_DEF_USELIBRARYTYPES
#include "passes/Kernels/Passes.h.inc"
} // namespace nsa

using namespace mlir;
using namespace nsa;

static void makeInSingle(nn::MatmulOp matmul) {
  auto type = cast<RankedTensorType>(matmul.getOutput().getType());
  OpBuilder b(matmul);
  Type single = b.getF32Type();
  Value sum = matmul.getAccumulator();
  if (sum)
    sum = nn::CastOp::create(b, matmul.getLoc(), sum, single);
  auto inSingle = nn::MatmulOp::create(
      b, matmul.getLoc(), type.clone(single), matmul.getLhs(), matmul.getRhs(),
      sum, matmul.getTransposeLhs(), matmul.getTransposeRhs(),
      TypeAttr::get(single));
  Value result = nn::CastOp::create(b, matmul.getLoc(), inSingle.getOutput(),
                                    type.getElementType());
  matmul.getOutput().replaceAllUsesWith(result);
  matmul.erase();
}

namespace {
struct UseLibraryTypes : nsa::impl::UseLibraryTypesBase<UseLibraryTypes> {
  void runOnOperation() override {
    if (!MachineAttr::of(getOperation()).isParallel())
      return;
    getOperation().walk([](nn::MatmulOp matmul) {
      Type result = getElementTypeOrSelf(matmul.getOutput());
      if (!result.isF32() && result != getElementTypeOrSelf(matmul.getLhs()))
        makeInSingle(matmul);
    });
  }
};
} // namespace
