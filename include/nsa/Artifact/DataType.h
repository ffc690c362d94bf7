//===- DataType.h - element types of an artefact ----------------*- C++ -*-===//

#ifndef NSA_ARTIFACT_DATATYPE_H
#define NSA_ARTIFACT_DATATYPE_H

#include "nsa/Artifact/Artifact_generated.h"

#include <iterator>

namespace nsa {

using artifact::CollectiveKind;
using artifact::DataType;
using artifact::TensorRole;

/// Bytes of one element, or 0 for a value outside the enumeration.
constexpr uint64_t elementBytes(DataType type) {
  switch (type) {
  case DataType::F32:
  case DataType::I32:
    return 4;
  case DataType::BF16:
  case DataType::F16:
    return 2;
  case DataType::I64:
    return 8;
  case DataType::U8:
    return 1;
  }
  return 0;
}

/// "all_reduce", ...
constexpr const char *collectiveName(CollectiveKind kind) {
  constexpr const char *names[] = {"all_reduce", "reduce_scatter", "all_gather",
                                   "gather_sequence",
                                   "reduce_scatter_sequence"};
  static_assert(std::size(names) == size_t(CollectiveKind::MAX) + 1);
  return kind <= CollectiveKind::MAX ? names[size_t(kind)] : "unknown";
}

/// Whether ranks that share sequences do it.
constexpr bool isOfSequences(CollectiveKind kind) {
  return kind == CollectiveKind::GatherSequence ||
         kind == CollectiveKind::ReduceScatterSequence;
}

/// The chunk, of 2 * ranks, that row `row` of a rank's chunks of sequences is,
/// of `ranks` ranks that share each: causal attention to the first and to the
/// last is as much work as to two in the middle.
constexpr uint64_t chunkOf(uint64_t row, uint64_t rank, uint64_t ranks) {
  return row % 2 == 0 ? rank % ranks : 2 * ranks - 1 - rank % ranks;
}

/// Bytes that move between two memories, and where they begin.
struct ChunkRange {
  uint64_t inMemory = 0, inRow = 0, count = 0;
};

/// What `pattern` says of row `row` of a rank, where chunks have `bytes` bytes
/// and their last tokens `halo`.
constexpr ChunkRange chunkRange(artifact::ChunkPattern pattern, uint64_t row,
                                uint64_t rank, uint64_t ranks, uint64_t bytes,
                                uint64_t halo) {
  using artifact::ChunkPattern;
  uint64_t chunks = 2 * ranks, first = row / 2 * chunks;
  uint64_t chunk = chunkOf(row, rank, ranks), joined = bytes + halo;
  switch (pattern) {
  case ChunkPattern::Own:
    return {row * joined + (chunk ? halo : 0), row * bytes, bytes};
  case ChunkPattern::Halo:
    return {(first + (chunk + chunks - 1) % chunks) * halo,
            row * joined + (chunk ? 0 : bytes), halo};
  }
  return {};
}

/// "f32", "bf16", ..., as MLIR spells the types.
constexpr const char *typeName(DataType type) {
  constexpr const char *names[] = {"f32", "bf16", "f16", "i32", "i64", "u8"};
  static_assert(std::size(names) == size_t(DataType::MAX) + 1);
  return type <= DataType::MAX ? names[size_t(type)] : "unknown";
}

/// Whether elements are floating-point numbers.
constexpr bool isFloat(DataType type) {
  return type == DataType::F32 || type == DataType::BF16 ||
         type == DataType::F16;
}

/// "input", "parameter", ..., as `nn.role` spells the roles.
constexpr const char *roleName(TensorRole role) {
  constexpr const char *names[] = {"input",    "output",   "parameter",
                                   "constant", "gradient", "state"};
  static_assert(std::size(names) == size_t(TensorRole::MAX) + 1);
  return role <= TensorRole::MAX ? names[size_t(role)] : "unknown";
}

} // namespace nsa

#endif // NSA_ARTIFACT_DATATYPE_H
