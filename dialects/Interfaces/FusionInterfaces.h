//===- FusionInterfaces.h - what one kernel may compute ---------*- C++ -*-===//
//
// The interfaces through which `nsa-fuse` puts several operations into one
// kernel, and through which that kernel is built.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_INTERFACES_FUSIONINTERFACES_H
#define NSA_INTERFACES_FUSIONINTERFACES_H

#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/OpDefinition.h"

#include "dialects/Interfaces/FusionInterfaces.h.inc"

#endif // NSA_INTERFACES_FUSIONINTERFACES_H
