//===- NNActivations.h - activations of the nn dialect ----------*- C++ -*-===//

#ifndef NSA_DIALECTS_NN_NNACTIVATIONS_H
#define NSA_DIALECTS_NN_NNACTIVATIONS_H

#include "dialects/NN/NNOps.h"

#define GET_OP_CLASSES
#include "dialects/NN/NNActivations.h.inc"

#endif // NSA_DIALECTS_NN_NNACTIVATIONS_H
