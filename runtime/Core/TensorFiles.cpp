//===- TensorFiles.cpp - tensors from and to .npy arrays ------------------===//

#include "runtime/Core/TensorFiles.h"
#include "lib/Support/Float16.h"
#include "lib/Support/Text.h"
#include "runtime/CPU/Convert.h"

#include <cmath>
#include <limits>
#include <type_traits>

using namespace nsa;

static std::string describe(const char *type,
                            const std::vector<uint64_t> &shape) {
  return std::string(type) + "[" + shapeText(shape) + "]";
}

static double floatAt(const NpyArray &array, uint64_t index) {
  switch (array.type) {
  case NpyType::F2:
    return f16ToFloat(array.as<uint16_t>()[index]);
  case NpyType::F4:
    return array.as<float>()[index];
  default:
    return array.as<double>()[index];
  }
}

static int64_t integerAt(const NpyArray &array, uint64_t index) {
  switch (array.type) {
  case NpyType::I4:
    return array.as<int32_t>()[index];
  case NpyType::I8:
    return array.as<int64_t>()[index];
  default:
    return array.as<uint16_t>()[index];
  }
}

/// Sets an element of a tensor of floats; whether fp32 holds the value.
static bool setFloat(const TensorView &tensor, uint64_t index, double value) {
  bool fits = !(std::fabs(value) > std::numeric_limits<float>::max()) ||
              std::isinf(value);
  float single = fits ? float(value) : 0.0f;
  if (tensor.type == DataType::F32)
    tensor.as<float>()[index] = single;
  else
    tensor.as<uint16_t>()[index] = tensor.type == DataType::BF16
                                       ? floatToBF16(single)
                                       : floatToF16(single);
  return double(single) == value || std::isnan(value);
}

/// Sets an element of a tensor of integers; whether the type holds the value.
static bool setInteger(const TensorView &tensor, uint64_t index,
                       int64_t value) {
  auto set = [&](auto *elements) {
    elements[index] = std::decay_t<decltype(*elements)>(value);
    return int64_t(elements[index]) == value;
  };
  return tensor.type == DataType::I64   ? set(tensor.as<int64_t>())
         : tensor.type == DataType::I32 ? set(tensor.as<int32_t>())
                                        : set(tensor.as<uint8_t>());
}

Status nsa::loadTensor(const NpyArray &array, const TensorView &tensor) {
  bool floats = array.type == NpyType::F2 || array.type == NpyType::F4 ||
                array.type == NpyType::F8;
  if (array.shape != tensor.shape || floats != isFloat(tensor.type))
    return Error{"tensor " + quote(tensor.name) + " is " +
                 describe(typeName(tensor.type), tensor.shape) +
                 ", but the array is " +
                 describe(npyTypeName(array.type), array.shape)};
  uint64_t at = 0, count = tensor.elements();
  while (at < count && (floats ? setFloat(tensor, at, floatAt(array, at))
                               : setInteger(tensor, at, integerAt(array, at))))
    ++at;
  if (at == count)
    return {};
  // A bf16 tensor takes what fp32 holds.
  const char *exact = floats ? "f32" : typeName(tensor.type);
  return Error{"tensor " + quote(tensor.name) + " is " +
               describe(typeName(tensor.type), tensor.shape) +
               ", but element " + std::to_string(at) + " of the " +
               npyTypeName(array.type) + " array, " +
               (floats ? shortest(floatAt(array, at))
                       : std::to_string(integerAt(array, at))) +
               ", has no exact " + exact};
}

std::string nsa::formatTensor(const TensorView &tensor) {
  switch (tensor.type) {
  case DataType::F32:
    return formatNpy(NpyType::F4, tensor.shape, tensor.data);
  case DataType::I32:
    return formatNpy(NpyType::I4, tensor.shape, tensor.data);
  case DataType::I64:
    return formatNpy(NpyType::I8, tensor.shape, tensor.data);
  case DataType::BF16:
  case DataType::F16: {
    std::vector<float> wide(tensor.elements());
    widen(tensor.type, tensor.data, wide.data(), 0, int64_t(wide.size()));
    return formatNpy(NpyType::F4, tensor.shape, wide.data());
  }
  case DataType::U8: {
    const auto *bytes = tensor.as<uint8_t>();
    std::vector<int32_t> integers(bytes, bytes + tensor.elements());
    return formatNpy(NpyType::I4, tensor.shape, integers.data());
  }
  }
  return "";
}
