//===- Dump.h - artefacts as text -------------------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CORE_DUMP_H
#define NSA_RUNTIME_CORE_DUMP_H

#include "nsa/Artifact/Artifact.h"

#include <string>

namespace nsa {

/// Which parts of an artefact to print.
struct DumpOptions {
  /// Header, segments, tensors and the entries' command lists.
  bool program = false;
  /// Bytes by role and, per entry, what the arena holds at each command.
  bool memory = false;
  /// Grid, stack, work and symbol of each kernel.
  bool kernels = false;
};

/// The parts asked for, in the order of DumpOptions. Depends on the payload
/// alone, not on the file's name or the machine.
std::string dumpArtifact(const Artifact &artifact, const DumpOptions &options);

} // namespace nsa

#endif // NSA_RUNTIME_CORE_DUMP_H
