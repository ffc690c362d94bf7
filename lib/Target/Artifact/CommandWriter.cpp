//===- CommandWriter.cpp - the commands of an artefact --------------------===//

#include "lib/Target/Artifact/ProgramWriter.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace nsa;

namespace fb = flatbuffers;

ProgramWriter::Action ProgramWriter::writeAction(rt::LaunchOp op) {
  std::vector<artifact::Slice> operands;
  for (Value operand : op.getOperands())
    operands.push_back(writeMemory(op, operand));
  auto kernel = kernelNumbers.find(op.getKernelAttr().getAttr());
  if (kernel == kernelNumbers.end()) {
    fail(op, "launches ") << op.getKernelAttr() << ", which is not compiled";
    return {};
  }
  auto vector = builder.CreateVectorOfStructs(operands);
  return {artifact::Action::Launch,
          artifact::CreateLaunch(builder, kernel->second, vector).Union()};
}

static DataType getElementDataType(Value memory) {
  return getDataType(cast<MemRefType>(memory.getType()).getElementType());
}

ProgramWriter::Action ProgramWriter::writeAction(rt::GemmOp op) {
  artifact::Slice lhs = writeMemory(op, op.getLhs());
  artifact::Slice rhs = writeMemory(op, op.getRhs());
  artifact::Slice out = writeMemory(op, op.getOut());
  std::optional<artifact::Slice> addend, workspace;
  if (op.getAddend())
    addend = writeMemory(op, op.getAddend());
  if (op.getWorkspace() || op.getWorkspaceSize() > 0)
    workspace = writeSlice(op, op.getWorkspace());
  rt::GemmOp::Sizes sizes = op.getSizes();
  return {artifact::Action::Gemm,
          artifact::CreateGemm(
              builder, sizes.m, sizes.n, sizes.k, op.getTransposeLhs(),
              op.getTransposeRhs(), getElementDataType(op.getLhs()),
              getElementDataType(op.getRhs()), getElementDataType(op.getOut()),
              op.getBeta().convertToFloat(), &lhs, &rhs, &out,
              workspace ? &*workspace : nullptr, op.getAlpha().convertToFloat(),
              addend ? &*addend : nullptr, op.getBatch())
              .Union()};
}

ProgramWriter::Action ProgramWriter::writeAction(rt::FillOp op) {
  artifact::Slice out = writeMemory(op, op.getOut());
  return {artifact::Action::Fill,
          artifact::CreateFill(builder, getElementDataType(op.getOut()),
                               op.getValue().convertToDouble(), &out)
              .Union()};
}

void ProgramWriter::noteRanks(Operation *op, uint64_t count,
                              bool shareSequences) {
  uint32_t &known = shareSequences ? sequenceRanks : ranks;
  if (known > 1 && known != count)
    fail(op, "is for ") << count << " ranks, other operations are for "
                        << known;
  known = count;
}

ProgramWriter::Action ProgramWriter::writeCopy(Operation *op, Value source,
                                               Value out,
                                               artifact::CopyPart part) {
  artifact::Slice from = writeMemory(op, source), to = writeMemory(op, out);
  if (part != artifact::CopyPart::None) {
    // The shard of each rank.
    auto [own, whole] = std::minmax(from.size(), to.size());
    noteRanks(op, whole / own, /*shareSequences=*/false);
  }
  return {artifact::Action::Copy,
          artifact::CreateCopy(builder, &from, &to, part).Union()};
}

/// Copies between `memory` and rows of sequences that ranks share.
template <typename OpT>
ProgramWriter::Action ProgramWriter::writeChunks(OpT op, Value source,
                                                 Value out,
                                                 artifact::CopyPart part) {
  artifact::Slice from = writeMemory(op, source), to = writeMemory(op, out);
  noteRanks(op, op.getRanks(), /*shareSequences=*/true);
  auto type = cast<MemRefType>(op.getMemory().getType());
  auto rows = cast<MemRefType>(op.getRows().getType());
  int64_t tokens = 0;
  if (op.getPattern() == rt::ChunkPattern::Own)
    tokens = type.getDimSize(1) - rows.getDimSize(1);
  else
    tokens = type.getDimSize(1) / int64_t(2 * op.getRanks());
  uint64_t tokenBytes =
      rt::getByteSize(rows) / uint64_t(rows.getDimSize(0) * rows.getDimSize(1));
  return {artifact::Action::Copy,
          artifact::CreateCopy(
              builder, &from, &to, part, uint64_t(rows.getDimSize(0)) / 2,
              static_cast<artifact::ChunkPattern>(op.getPattern()),
              uint64_t(tokens) * tokenBytes)
              .Union()};
}

ProgramWriter::Action ProgramWriter::writeAction(rt::CopyOp op) {
  return writeCopy(op, op.getSource(), op.getOut(), artifact::CopyPart::None);
}

ProgramWriter::Action ProgramWriter::writeAction(rt::SliceShardOp op) {
  return writeCopy(op, op.getMemory(), op.getPart(),
                   artifact::CopyPart::Source);
}

ProgramWriter::Action ProgramWriter::writeAction(rt::WriteShardOp op) {
  return writeCopy(op, op.getPart(), op.getMemory(), artifact::CopyPart::Out);
}

ProgramWriter::Action ProgramWriter::writeAction(rt::SliceSequenceOp op) {
  return writeChunks(op, op.getMemory(), op.getRows(),
                     artifact::CopyPart::Source);
}

ProgramWriter::Action ProgramWriter::writeAction(rt::WriteSequenceOp op) {
  return writeChunks(op, op.getRows(), op.getMemory(), artifact::CopyPart::Out);
}

ProgramWriter::Action ProgramWriter::writeAction(rt::InitializeOp op) {
  auto get = op.getOut().getDefiningOp<rt::GetOp>();
  auto tensor = tensorNumbers.find(get.getTensorAttr().getAttr());
  if (tensor == tensorNumbers.end()) {
    fail(op, "names ") << get.getTensorAttr() << ", which is not a tensor";
    return {};
  }
  return {artifact::Action::Initialize,
          artifact::CreateInitialize(builder, tensor->second).Union()};
}

ProgramWriter::Action ProgramWriter::writeAction(rt::CollectiveStartOp op) {
  artifact::Slice memory = writeMemory(op, op.getMemory()), rows;
  if (op.getRows())
    rows = writeMemory(op, op.getRows());
  uint64_t sequences = 0;
  if (op.isOfSequences()) {
    noteRanks(op, *op.getRanks(), /*shareSequences=*/true);
    sequences = cast<MemRefType>(op.getMemory().getType()).getDimSize(0);
  }
  return {artifact::Action::CollectiveStart,
          artifact::CreateCollectiveStart(
              builder, &memory, getElementDataType(op.getMemory()),
              static_cast<CollectiveKind>(op.getKind()), sequences,
              op.getRows() ? &rows : nullptr, op.getGrouped())
              .Union()};
}

ProgramWriter::Action ProgramWriter::writeAction(rt::CollectiveDoneOp op) {
  artifact::Slice memory = writeMemory(op, op.getMemory());
  return {artifact::Action::CollectiveDone,
          artifact::CreateCollectiveDone(builder, &memory).Union()};
}

fb::Offset<artifact::Command> ProgramWriter::writeCommand(Operation *op) {
  auto action =
      llvm::TypeSwitch<Operation *, Action>(op)
          .Case<rt::LaunchOp, rt::GemmOp, rt::FillOp, rt::CopyOp,
                rt::SliceShardOp, rt::WriteShardOp, rt::SliceSequenceOp,
                rt::WriteSequenceOp, rt::InitializeOp, rt::CollectiveStartOp,
                rt::CollectiveDoneOp>(
              [&](auto command) { return writeAction(command); })
          .Default([&](Operation *op) {
            fail(op, "has no form in an artefact");
            return Action();
          });
  return artifact::CreateCommand(builder, action.type, action.value,
                                 getLocation(op->getLoc()));
}
