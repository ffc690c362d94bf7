//===- MmaLayout.cpp - tiles in the registers of mma.sync -----------------===//

#include "passes/Conversion/TileToNVVM/MmaLayout.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

bool nsa::cuda::contains(Operation *op, function_ref<bool(Operation *)> is) {
  return op
      ->walk([&](Operation *inner) {
        return is(inner) ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

bool nsa::cuda::hasTiles(Operation *op) {
  return llvm::any_of(op->getOperands(), isTile) ||
         llvm::any_of(op->getResults(), isTile);
}

bool nsa::cuda::hasMmaTiles(KernelOp kernel) {
  return contains(kernel, [](Operation *op) {
    return llvm::any_of(op->getResultTypes(), hasMmaLayout);
  });
}

MmaLayout::MmaLayout(TileType type)
    : rows(type.getRows()), cols(type.getCols()),
      warps(cast<MmaLayoutAttr>(type.getLayout()).getWarps()),
      element(type.getElementType()) {}

Type MmaLayout::registerType() const {
  return isPacked() ? VectorType::get({2}, element) : element;
}
