//===- Artifact.cpp - reading .nsax files ---------------------------------===//

#include "nsa/Artifact/Artifact.h"
#include "lib/Support/Files.h"
#include "lib/Support/Hash.h"
#include "runtime/Core/ArtifactBytes.h"
#include "runtime/Core/ArtifactChecks.h"

#include <cstdlib>

using namespace nsa;
using artifact::FileHeader;

std::shared_ptr<uint8_t> nsa::allocateBytes(size_t size) {
  size_t rounded = (size + 63) / 64 * 64 + 64;
  if (rounded < size)
    return nullptr;
  auto *bytes = static_cast<uint8_t *>(std::aligned_alloc(64, rounded));
  if (!bytes)
    return nullptr;
  return std::shared_ptr<uint8_t>(bytes, std::free);
}

static std::string bytesText(uint64_t count) {
  return std::to_string(count) + (count == 1 ? " byte" : " bytes");
}

/// Checks the header of a file of `size` bytes.
static Status checkHeader(const FileHeader &header, size_t size) {
  if (std::memcmp(header.magic, artifact::fileMagic, sizeof header.magic) != 0)
    return Error{"not an artefact: it does not begin with NSAXFILE"};
  if (header.version < artifact::fileVersion ||
      header.version > artifact::rowsFileVersion)
    return Error{"has format version " + std::to_string(header.version) +
                 ", but this runtime reads versions " +
                 std::to_string(artifact::fileVersion) + " to " +
                 std::to_string(artifact::rowsFileVersion)};
  if (header.flags != 0)
    return Error{"has format flags " + std::to_string(header.flags) +
                 ", but this runtime knows none"};
  if (header.payloadBytes != size - sizeof header)
    return Error{"is truncated or has extra bytes: the header promises " +
                 bytesText(header.payloadBytes) + " of payload, found " +
                 bytesText(size - sizeof header)};
  return {};
}

/// Checks that `payload` is a well-formed FlatBuffer of the schema.
static Status checkBuffer(const uint8_t *payload, size_t size) {
  if (size >= FLATBUFFERS_MAX_BUFFER_SIZE)
    return Error{"has a payload of " + bytesText(size) + ", the limit is " +
                 bytesText(FLATBUFFERS_MAX_BUFFER_SIZE)};
  // A writer shares no tables, and each takes 4 bytes at least.
  flatbuffers::Verifier verifier(payload, size, /*max_depth=*/16,
                                 /*max_tables=*/unsigned(size / 4 + 1));
  if (!artifact::VerifyArtifactBuffer(verifier))
    return Error{"is corrupted: its payload is not a valid NSAX buffer"};
  return {};
}

Result<Artifact> Artifact::read(std::shared_ptr<const uint8_t> bytes,
                                size_t size, const std::string &name) {
  auto fail = [&](const std::string &message) {
    return Error{name + ": " + message};
  };
  Artifact result;
  if (size < sizeof result.header)
    return fail("not an artefact: " + bytesText(size) +
                " are fewer than the header's " +
                std::to_string(sizeof result.header));
  std::memcpy(&result.header, bytes.get(), sizeof result.header);
  if (Status status = checkHeader(result.header, size); !status)
    return fail(status.message());
  const uint8_t *payload = bytes.get() + sizeof result.header;
  size_t payloadSize = size - sizeof result.header;
  uint64_t hash = hashBytes(payload, payloadSize);
  if (hash != result.header.payloadHash)
    return fail("is corrupted: its payload has the hash " + toHex(hash) +
                ", the header says " + toHex(result.header.payloadHash));
  if (Status status = checkBuffer(payload, payloadSize); !status)
    return fail(status.message());
  result.payload = artifact::GetArtifact(payload);
  if (Status status = checkArtifact(*result.payload); !status)
    return fail("is invalid: " + status.message());
  result.bytes = std::move(bytes);
  result.label = name;
  return result;
}

Result<Artifact> Artifact::fromBytes(const void *data, size_t size,
                                     const std::string &name) {
  std::shared_ptr<uint8_t> bytes = allocateBytes(size);
  if (!bytes)
    return Error{name + ": no memory for " + bytesText(size)};
  if (size > 0)
    std::memcpy(bytes.get(), data, size);
  return read(std::move(bytes), size, name);
}

// The file is read, not mapped: a file that shrinks while it is mapped kills
// the process.
Result<Artifact> Artifact::open(const std::string &path) {
  NSA_ASSIGN_OR_RETURN(InputFile file, InputFile::open(path));
  size_t size = file.size();
  // Before memory for all of it: a path may be that of anything.
  FileHeader header;
  if (size >= sizeof header) {
    NSA_RETURN_IF_ERROR(file.readAt(0, &header, sizeof header));
    if (Status status = checkHeader(header, size); !status)
      return Error{path + ": " + status.message()};
  }
  std::shared_ptr<uint8_t> bytes = allocateBytes(size);
  if (!bytes)
    return Error{path + ": no memory for " + bytesText(size)};
  NSA_RETURN_IF_ERROR(file.readAt(0, bytes.get(), size));
  return read(std::move(bytes), size, path);
}
