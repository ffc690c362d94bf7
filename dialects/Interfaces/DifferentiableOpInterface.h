//===- DifferentiableOpInterface.h - adjoints of ops ------------*- C++ -*-===//
//
// The interface through which `nsa-differentiate` builds the backward graph of
// a training function.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_INTERFACES_DIFFERENTIABLEOPINTERFACE_H
#define NSA_INTERFACES_DIFFERENTIABLEOPINTERFACE_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/TypeUtilities.h"

#include "dialects/Interfaces/DifferentiableOpInterface.h.inc"

#endif // NSA_INTERFACES_DIFFERENTIABLEOPINTERFACE_H
