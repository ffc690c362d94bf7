//===- Describe.h - commands in words ---------------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CORE_DESCRIBE_H
#define NSA_RUNTIME_CORE_DESCRIBE_H

#include "nsa/Artifact/Artifact.h"

#include <string>
#include <vector>

namespace nsa {

/// The command without its operands: "launch @k", "gemm 2x3x4", "fill",
/// "copy", "initialize @w", "all_reduce_start".
std::string commandTitle(const artifact::Artifact &root,
                         const artifact::Command &command);

/// The source location of a command on one line, or "unknown".
std::string commandLocation(const artifact::Artifact &root,
                            const artifact::Command &command);

/// What happened at command number `index` of an entry: "command 3 (fill):
/// WHAT, from model.mlir:12:8".
std::string describeCommand(const artifact::Artifact &root, size_t index,
                            const artifact::Command &command,
                            const std::string &what);

/// Floating-point operations of one run of the command.
uint64_t commandFlops(const artifact::Artifact &root,
                      const artifact::Command &command);

/// An array that a command writes: rows of `width` elements, `pitch` elements
/// apart, from the first element of the slice to the last.
struct WrittenArray {
  DataType type;
  artifact::Slice slice;
  int64_t count, width, pitch;
};

/// The arrays that a command computes; none where their types are not known, as
/// for a copy.
std::vector<WrittenArray> writtenArrays(const artifact::Artifact &root,
                                        const artifact::Command &command);

/// Whether the command reads or writes bf16 or f16.
bool commandHasHalf(const artifact::Artifact &root,
                    const artifact::Command &command);

/// persistent, io, arena or workspace.
const char *segmentName(artifact::SegmentKind kind);

/// Bytes of all operands of the command.
uint64_t commandBytes(const artifact::Artifact &root,
                      const artifact::Command &command);

} // namespace nsa

#endif // NSA_RUNTIME_CORE_DESCRIBE_H
