//===- LayerKinds.h - what the layers of a model attend to ------*- C++ -*-===//

#ifndef NSA_LIB_SUPPORT_LAYERKINDS_H
#define NSA_LIB_SUPPORT_LAYERKINDS_H

#include "lib/Support/Config.h"

#include <string>
#include <vector>

namespace nsa {

/// The attention of one layer.
struct LayerKind {
  /// nsa, dense or window.
  std::string attention;
  /// Tokens that a query sees, its own included; of a window.
  int64_t window = 0;
  /// Whether queries and keys are rotated, where the model does that.
  bool isRotated = true;
};

/// The kinds of all `model.n_layers` layers: those that `model.layers` lists
/// ("dense/nope, nsa*10, window:256"), or `model.attention` for all of them
/// where it is empty. A window without a width has `nsa.w` tokens; "/nope"
/// stands for no rotary embedding. The message of an error names no key.
Result<std::vector<LayerKind>> getLayerKinds(const RunConfig &config);

} // namespace nsa

#endif // NSA_LIB_SUPPORT_LAYERKINDS_H
