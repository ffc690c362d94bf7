//===- ExtentWriter.h - fields that follow from extents ---------*- C++ -*-===//

#ifndef NSA_TARGET_ARTIFACT_EXTENTWRITER_H
#define NSA_TARGET_ARTIFACT_EXTENTWRITER_H

#include "mlir/IR/BuiltinOps.h"
#include "nsa/Artifact/Artifact_generated.h"

namespace nsa {

/// Whether tensors of the module have extents that are known at the call.
bool hasExtents(mlir::ModuleOp module);

/// Writes how the fields of an artefact of the planned `module` follow from
/// these. Tables are numbered in the order of the module's operations;
/// `hasBuffers` says whether the artefact has those of live ranges. Fails for
/// what the artefact cannot say.
mlir::FailureOr<flatbuffers::Offset<artifact::Extents>>
writeExtents(flatbuffers::FlatBufferBuilder &builder, mlir::ModuleOp module,
             bool hasBuffers);

} // namespace nsa

#endif // NSA_TARGET_ARTIFACT_EXTENTWRITER_H
