//===- Format.h - the file around the payload -------------------*- C++ -*-===//
//
// An artefact file is a 32-byte little-endian header and the FlatBuffer of
// Artifact.fbs. Compiler and runtime both include this header, so it holds
// declarations of the format and nothing else.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_ARTIFACT_FORMAT_H
#define NSA_ARTIFACT_FORMAT_H

#include <cstdint>
#include <cstring>

namespace nsa::artifact {

/// The first bytes of every file.
constexpr char fileMagic[8] = {'N', 'S', 'A', 'X', 'F', 'I', 'L', 'E'};

/// The version that this source writes and reads. It grows when a reader of
/// the old version would misunderstand a new file; added optional fields of the
/// schema do not change it.
constexpr uint32_t fileVersion = 3;

/// The version of a file whose tensors have extents that are known at the call,
/// which readers of other files would take for constants.
constexpr uint32_t extentsFileVersion = 4;

/// The version of a file that has matmuls of a batch, with a factor or with an
/// addend in memory of its own, which readers of other files would leave out.
constexpr uint32_t batchFileVersion = 5;

/// The version of a file with sequences that ranks share. Those of older files,
/// where collectives are in place, are not read.
constexpr uint32_t rowsFileVersion = 6;

/// The header as it lies in the file.
struct FileHeader {
  char magic[8];
  uint32_t version;
  uint32_t flags;
  uint64_t payloadBytes;
  uint64_t payloadHash;
};
static_assert(sizeof(FileHeader) == 32, "the header has 32 bytes");

/// The header of a payload of `bytes` bytes with the XXH3-64 hash `hash`.
inline FileHeader makeFileHeader(uint64_t bytes, uint64_t hash,
                                 uint32_t version = fileVersion) {
  FileHeader header = {};
  std::memcpy(header.magic, fileMagic, sizeof fileMagic);
  header.version = version;
  header.payloadBytes = bytes;
  header.payloadHash = hash;
  return header;
}

/// `Artifact.target` of a program for the processor.
constexpr char cpuTarget[] = "cpu";

/// `Binary.format` of an archive (ar) of relocatable ELF objects for x86-64,
/// which define the symbols of the kernels.
constexpr char objectsFormat[] = "objects-x86-64";

/// Base addresses of launch operands, gemm operands, tensors and segments are
/// multiples of this many bytes.
constexpr uint64_t sliceAlignment = 64;

/// `Binary.format` of code for an NVIDIA GPU: PTX text, or a cubin for the
/// target of the artefact. Where an artefact has both, the cubin is first.
constexpr char ptxFormat[] = "ptx";
constexpr char cubinFormat[] = "cubin";

/// The stack that one kernel may use, in bytes. The runtime's threads have
/// twice as much.
constexpr uint64_t maxKernelStack = 4u << 20;

} // namespace nsa::artifact

#endif // NSA_ARTIFACT_FORMAT_H
