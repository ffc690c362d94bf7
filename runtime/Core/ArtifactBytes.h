//===- ArtifactBytes.h - memory for artefacts -------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CORE_ARTIFACTBYTES_H
#define NSA_RUNTIME_CORE_ARTIFACTBYTES_H

#include <cstddef>
#include <cstdint>
#include <memory>

namespace nsa {

/// Uninitialised bytes at an address that suits the payload's scalars, or null.
std::shared_ptr<uint8_t> allocateBytes(size_t size);

} // namespace nsa

#endif // NSA_RUNTIME_CORE_ARTIFACTBYTES_H
