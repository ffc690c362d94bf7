//===- PrecisionOpInterface.h - element types of operands -------*- C++ -*-===//
//
// The interface through which `nsa-precision` decides where a mixed-precision
// program converts between f32 and the compute type.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_INTERFACES_PRECISIONOPINTERFACE_H
#define NSA_INTERFACES_PRECISIONOPINTERFACE_H

#include "mlir/IR/OpDefinition.h"

namespace nsa {

/// The precision in which an operand is taken under mixed precision.
enum class OperandPrecision {
  /// The compute type (bf16 or f16): operands of dot products, activations.
  Compute,
  /// f32 always: statistics, tables of angles, gates.
  Full,
  /// Whatever type the operand already has.
  Any,
};

} // namespace nsa

#include "dialects/Interfaces/PrecisionOpInterface.h.inc"

#endif // NSA_INTERFACES_PRECISIONOPINTERFACE_H
