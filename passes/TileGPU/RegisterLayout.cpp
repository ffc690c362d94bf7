//===- RegisterLayout.cpp - tiles in the registers of threads -------------===//

#include "passes/TileGPU/RegisterLayout.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

RegisterLayout::RegisterLayout(TileType type)
    : rows(type.getRows()), cols(type.getCols()),
      element(type.getElementType()) {
  auto mma = dyn_cast<MmaLayoutAttr>(type.getLayout());
  isMma = bool(mma);
  if (isMma) {
    threads = kWarp * mma.getWarps();
    threadsPerRow = 4;
    width = 2;
    return;
  }
  auto blocked = cast<nsa::tile_gpu::BlockedAttr>(type.getLayout());
  threads = blocked.getThreads();
  threadsPerRow = blocked.getThreadsPerRow();
  width = blocked.getWidth();
}

Type RegisterLayout::registerType() const {
  return isPacked() ? VectorType::get({2}, element) : element;
}

bool RegisterLayout::hasElementsOf(const RegisterLayout &larger) const {
  bool alongCols = cols == 1 && larger.cols > 1;
  bool isOne = rows == 1 && cols == 1;
  return isOne || (threadsPerRow == larger.threadsPerRow &&
                   (alongCols || width == larger.width));
}
