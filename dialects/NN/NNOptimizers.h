//===- NNOptimizers.h - optimizers of the nn dialect ------------*- C++ -*-===//
//
// Passes ask OptimizerOpInterface and do not include this.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_DIALECTS_NN_NNOPTIMIZERS_H
#define NSA_DIALECTS_NN_NNOPTIMIZERS_H

#include "dialects/Interfaces/OptimizerOpInterface.h"
#include "dialects/NN/NNOps.h"

#define GET_OP_CLASSES
#include "dialects/NN/NNOptimizers.h.inc"

#endif // NSA_DIALECTS_NN_NNOPTIMIZERS_H
