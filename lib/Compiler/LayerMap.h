//===- LayerMap.h - which layer a source location lies in -------*- C++ -*-===//

#ifndef NSA_LIB_COMPILER_LAYERMAP_H
#define NSA_LIB_COMPILER_LAYERMAP_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Location.h"

namespace nsa {

/// Where a command comes from.
struct CommandOrigin {
  /// The layer, from 0; nothing outside of layers.
  std::optional<unsigned> layer;
  /// Whether it belongs to the backward graph, recomputation included.
  bool backward = false;
};

/// The layers of a trained model by source location, which survives every
/// phase: commands of later phases are attributed to layers by it.
class LayerMap {
public:
  /// Reads the differentiated function of a module after the gradient phase.
  /// Without one there are no layers.
  void read(mlir::ModuleOp module);

  unsigned size() const { return numLayers; }

  /// The layer of the first location within `location` that has one.
  CommandOrigin find(mlir::Location location) const;

private:
  unsigned numLayers = 0;
  /// Locations in several layers, as of operations made in a loop, have none.
  llvm::DenseMap<mlir::Attribute, std::optional<unsigned>> layers;
};

} // namespace nsa

#endif // NSA_LIB_COMPILER_LAYERMAP_H
