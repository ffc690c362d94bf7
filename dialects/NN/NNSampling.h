//===- NNSampling.h - tokens that are drawn ---------------------*- C++ -*-===//

#ifndef NSA_DIALECTS_NN_NNSAMPLING_H
#define NSA_DIALECTS_NN_NNSAMPLING_H

#include "dialects/NN/NNOps.h"
#include "nsa/Artifact/TrainingContract.h"

#define GET_OP_CLASSES
#include "dialects/NN/NNSampling.h.inc"

#endif // NSA_DIALECTS_NN_NNSAMPLING_H
