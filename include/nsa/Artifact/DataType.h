//===- DataType.h - element types of an artefact ----------------*- C++ -*-===//

#ifndef NSA_ARTIFACT_DATATYPE_H
#define NSA_ARTIFACT_DATATYPE_H

#include "nsa/Artifact/Artifact_generated.h"

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
  switch (kind) {
  case CollectiveKind::AllReduce:
    return "all_reduce";
  case CollectiveKind::ReduceScatter:
    return "reduce_scatter";
  case CollectiveKind::AllGather:
    return "all_gather";
  }
  return "unknown";
}

/// "f32", "bf16", ..., as MLIR spells the types.
constexpr const char *typeName(DataType type) {
  switch (type) {
  case DataType::F32:
    return "f32";
  case DataType::BF16:
    return "bf16";
  case DataType::F16:
    return "f16";
  case DataType::I32:
    return "i32";
  case DataType::I64:
    return "i64";
  case DataType::U8:
    return "u8";
  }
  return "unknown";
}

/// Whether elements are floating-point numbers.
constexpr bool isFloat(DataType type) {
  return type == DataType::F32 || type == DataType::BF16 ||
         type == DataType::F16;
}

/// "input", "parameter", ..., as `nn.role` spells the roles.
constexpr const char *roleName(TensorRole role) {
  switch (role) {
  case TensorRole::Input:
    return "input";
  case TensorRole::Output:
    return "output";
  case TensorRole::Parameter:
    return "parameter";
  case TensorRole::Constant:
    return "constant";
  case TensorRole::Gradient:
    return "gradient";
  case TensorRole::State:
    return "state";
  }
  return "unknown";
}

} // namespace nsa

#endif // NSA_ARTIFACT_DATATYPE_H
