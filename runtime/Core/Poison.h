//===- Poison.h - memory that must be written before it is read -*- C++ -*-===//

#ifndef NSA_RUNTIME_CORE_POISON_H
#define NSA_RUNTIME_CORE_POISON_H

#include "nsa/Artifact/Artifact.h"

#include <vector>

namespace nsa {

/// What a run of the entry has to write before it reads it: arena and
/// workspace, and outputs of the role output that are no inputs. A run with
/// RuntimeOptions::poison fills these bytes with 0xFF first.
std::vector<artifact::Slice> slicesToPoison(const artifact::Artifact &root,
                                            const artifact::Entry &entry);

} // namespace nsa

#endif // NSA_RUNTIME_CORE_POISON_H
