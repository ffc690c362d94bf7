//===- Artifact.h - reading .nsax files -------------------------*- C++ -*-===//
//
// An artefact that has been opened is safe to use: every offset of the
// FlatBuffer, every index, name and slice has been checked, whatever the bytes
// were. Whether this machine can run it is another question, which
// Program::create asks.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_ARTIFACT_ARTIFACT_H
#define NSA_ARTIFACT_ARTIFACT_H

#include "nsa/Artifact/DataType.h"
#include "nsa/Artifact/Format.h"
#include "nsa/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace nsa {

/// A checked artefact in memory. Immutable; copies share the bytes.
class Artifact {
public:
  /// Reads a file. Errors start with its path.
  static Result<Artifact> open(const std::string &path);

  /// Copies a file's contents out of memory. Errors start with `name`.
  static Result<Artifact> fromBytes(const void *data, size_t size,
                                    const std::string &name = "artefact");

  /// Names of the extents that are known at the call ("batch", "seq"), in the
  /// order in which withExtents takes them; empty if all are constants.
  std::vector<std::string> extentNames() const;

  /// Whether some extents are not known yet: such an artefact cannot run.
  bool needsExtents() const;

  /// The same program for tensors of these extents, with the same machine code.
  /// Fails where this has none, where one is missing or too large, and where
  /// they have been given before.
  Result<Artifact> withExtents(const std::vector<uint64_t> &values) const;

  /// The same, with extents that follow from the shapes of tensors, by name.
  /// Fails where they contradict each other or leave an extent open.
  Result<Artifact>
  withShapes(const std::map<std::string, std::vector<uint64_t>> &shapes) const;

  /// The payload. Valid as long as this object or a copy of it lives.
  const artifact::Artifact &root() const { return *payload; }
  const artifact::Artifact *operator->() const { return payload; }

  /// The path or name it was opened with.
  const std::string &name() const { return label; }

  /// XXH3-64 of the payload: of every byte, which damage changes.
  uint64_t hash() const { return header.payloadHash; }
  uint32_t version() const { return header.version; }

  /// Equal programs have equal identities: tensors, kernels and commands
  /// decide, not the configuration, nor the names of files that they came
  /// from. The hash of the payload where the compiler wrote none.
  uint64_t identity() const {
    return payload->identity() != 0 ? payload->identity() : hash();
  }

  /// The whole file, of fileBytes() bytes. Valid as `root`.
  const uint8_t *fileData() const { return bytes.get(); }
  uint64_t fileBytes() const {
    return sizeof(artifact::FileHeader) + header.payloadBytes;
  }

private:
  Artifact() = default;
  static Result<Artifact> read(std::shared_ptr<const uint8_t> bytes,
                               size_t size, const std::string &name);

  std::shared_ptr<const uint8_t> bytes;
  artifact::FileHeader header = {};
  const artifact::Artifact *payload = nullptr;
  std::string label;
};

} // namespace nsa

#endif // NSA_ARTIFACT_ARTIFACT_H
