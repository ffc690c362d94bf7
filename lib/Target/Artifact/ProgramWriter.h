//===- ProgramWriter.h - the payload of a .nsax file ------------*- C++ -*-===//

#ifndef NSA_LIB_TARGET_ARTIFACT_PROGRAMWRITER_H
#define NSA_LIB_TARGET_ARTIFACT_PROGRAMWRITER_H

#include "dialects/RT/RTOps.h"
#include "lib/Target/Artifact/ArtifactWriter.h"
#include "nsa/Artifact/DataType.h"
#include "llvm/ADT/StringMap.h"
#include <optional>

namespace nsa {

/// The element type of a tensor in an artefact.
DataType getDataType(mlir::Type type);

/// Builds the payload from the module's operations, in their order.
class ProgramWriter {
public:
  /// Without an identity, leaves out what changes nothing that is computed: the
  /// identity is the hash of that.
  ProgramWriter(mlir::ModuleOp module,
                llvm::ArrayRef<llvm::ArrayRef<char>> images,
                const ArtifactMetadata &metadata,
                std::optional<uint64_t> identity)
      : module(module), images(images), metadata(metadata), identity(identity) {
  }

  /// Returns the payload.
  mlir::FailureOr<llvm::StringRef> run();

private:
  using TensorMapList = flatbuffers::Offset<
      flatbuffers::Vector<flatbuffers::Offset<artifact::TensorMap>>>;

  /// Reports the first error. Output after it is useless.
  mlir::InFlightDiagnostic fail(mlir::Operation *op,
                                const llvm::Twine &message) {
    return std::exchange(hasFailed, true) ? mlir::InFlightDiagnostic()
                                          : op->emitOpError(message);
  }
  void checkName(mlir::Operation *op, llvm::StringRef name);
  artifact::Slice writeSlice(mlir::Operation *user,
                             std::optional<rt::SliceAttr> slice);
  artifact::Slice writeRoot(mlir::Operation *user, mlir::Value root);
  artifact::Slice writeMemory(mlir::Operation *user, mlir::Value value);
  void writeTensor(rt::TensorOp op);
  void writeSegment(rt::SegmentOp op);
  void writeKernel(rt::KernelOp op);
  TensorMapList writeTensorMaps(mlir::ArrayAttr maps);
  std::vector<artifact::Selection> getSelections(rt::KernelOp op);
  void writeEntry(rt::EntryOp op);
  void writeBuffers(rt::EntryOp op);
  flatbuffers::Offset<artifact::Command> writeCommand(mlir::Operation *op);
  flatbuffers::Offset<flatbuffers::Vector<uint32_t>>
  writeTensorList(mlir::ArrayAttr names);
  uint32_t getLocation(mlir::Location location);
  mlir::LogicalResult finish();

  struct Action {
    artifact::Action type = artifact::Action::NONE;
    flatbuffers::Offset<void> value;
  };
  Action writeAction(rt::LaunchOp op);
  Action writeAction(rt::GemmOp op);
  Action writeAction(rt::FillOp op);
  void noteRanks(mlir::Operation *op, uint64_t count, bool shareSequences);
  Action writeCopy(mlir::Operation *op, mlir::Value source, mlir::Value out,
                   artifact::CopyPart part);
  template <typename OpT>
  Action writeChunks(OpT op, mlir::Value source, mlir::Value out,
                     artifact::CopyPart part);
  Action writeAction(rt::CopyOp op);
  Action writeAction(rt::SliceShardOp op);
  Action writeAction(rt::WriteShardOp op);
  Action writeAction(rt::SliceSequenceOp op);
  Action writeAction(rt::WriteSequenceOp op);
  Action writeAction(rt::InitializeOp op);
  Action writeAction(rt::CollectiveStartOp op);
  Action writeAction(rt::CollectiveDoneOp op);

  mlir::ModuleOp module;
  llvm::ArrayRef<llvm::ArrayRef<char>> images;
  const ArtifactMetadata &metadata;
  std::optional<uint64_t> identity;

  flatbuffers::FlatBufferBuilder builder;
  std::vector<flatbuffers::Offset<artifact::Segment>> segments;
  std::vector<flatbuffers::Offset<artifact::Tensor>> tensors;
  std::vector<flatbuffers::Offset<artifact::Kernel>> kernels;
  std::vector<flatbuffers::Offset<artifact::Entry>> entries;
  std::vector<flatbuffers::Offset<artifact::Buffer>> buffers;
  llvm::DenseMap<mlir::StringAttr, uint32_t> segmentNumbers;
  llvm::DenseMap<mlir::StringAttr, uint32_t> tensorNumbers;
  llvm::DenseMap<mlir::StringAttr, uint32_t> kernelNumbers;
  llvm::DenseMap<mlir::StringAttr, rt::TensorOp> tensorOps;
  std::vector<std::string> locations;
  llvm::StringMap<uint32_t> locationNumbers;
  /// Ranks that have parts of memory; 0 if none have.
  uint32_t ranks = 0;
  /// Ranks that share a sequence.
  uint32_t sequenceRanks = 1;
  bool hasFailed = false;
};

} // namespace nsa

#endif // NSA_LIB_TARGET_ARTIFACT_PROGRAMWRITER_H
