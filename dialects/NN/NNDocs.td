//===- NNDocs.td - all operations of the nn dialect -------------*- tablegen -*-===//
//
// For the generated documentation.
//
//===----------------------------------------------------------------------===//

include "dialects/NN/NNOps.td"
include "dialects/NN/NNActivations.td"
include "dialects/NN/NNSampling.td"
include "dialects/NN/NNOptimizers.td"
