//===- Describe.h - commands in words ---------------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CORE_DESCRIBE_H
#define NSA_RUNTIME_CORE_DESCRIBE_H

#include "nsa/Artifact/Artifact.h"

#include <string>

namespace nsa {

/// The command without its operands: "launch @k", "gemm 2x3x4", "fill",
/// "copy", "initialize @w".
std::string commandTitle(const artifact::Artifact &root,
                         const artifact::Command &command);

/// The source location of a command, or "unknown".
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

/// Bytes of all operands of the command.
uint64_t commandBytes(const artifact::Artifact &root,
                      const artifact::Command &command);

} // namespace nsa

#endif // NSA_RUNTIME_CORE_DESCRIBE_H
