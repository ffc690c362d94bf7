//===- ArtifactWriter.h - a planned program as a .nsax file -----*- C++ -*-===//

#ifndef NSA_LIB_TARGET_ARTIFACT_ARTIFACTWRITER_H
#define NSA_LIB_TARGET_ARTIFACT_ARTIFACTWRITER_H

#include "mlir/IR/BuiltinOps.h"
#include <string>
#include <utility>
#include <vector>

namespace nsa {

/// What an artefact says besides its program.
struct ArtifactMetadata {
  /// Who wrote it, with a version.
  std::string producer;
  /// The kind of machine, see `nsa::artifact::cpuTarget`.
  std::string target;
  /// The processor and the features that the binary uses.
  std::string cpu;
  std::vector<std::string> cpuFeatures;
  /// What the compiler was asked for, as it resolved it.
  std::vector<std::pair<std::string, std::string>> options;
};

/// Serialises a module of the rt dialect that went through all phases, with
/// the images of its `rt.binary` in their order, to the contents of a .nsax
/// file. Equal inputs give equal bytes. Fails with a diagnostic on what is not
/// planned.
mlir::FailureOr<std::string>
writeArtifact(mlir::ModuleOp module,
              llvm::ArrayRef<llvm::ArrayRef<char>> images,
              const ArtifactMetadata &metadata);

/// A location as people write it, "model.mlir:12:8", without folders; a name
/// or tag around it follows in parentheses.
std::string formatLocation(mlir::Location location);

} // namespace nsa

#endif // NSA_LIB_TARGET_ARTIFACT_ARTIFACTWRITER_H
