//===- Fragment.cpp - tiles in the registers of mma.sync ------------------===//

#include "passes/Conversion/TileToNVVM/Fragment.h"

using namespace mlir;
using namespace nsa::cuda;
using namespace nsa::tile;

template <typename LayoutT>
static bool hasLayout(Type type) {
  auto tile = dyn_cast<TileType>(type);
  return tile && isa_and_nonnull<LayoutT>(tile.getLayout());
}

bool nsa::cuda::isFragment(Type type) { return hasLayout<FragmentAttr>(type); }
bool nsa::cuda::isShared(Type type) { return hasLayout<SharedAttr>(type); }
bool nsa::cuda::isOnDemand(Type type) { return hasLayout<OnDemandAttr>(type); }

Fragment::Fragment(TileType type)
    : rows(type.getRows()), cols(type.getCols()),
      warps(cast<FragmentAttr>(type.getLayout()).getWarps()),
      element(type.getElementType()) {}

Type Fragment::registerType() const {
  return isPacked() ? VectorType::get({2}, element) : element;
}
