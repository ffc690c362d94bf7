//===- TensorFiles.cpp - tensors from and to .npy arrays ------------------===//

#include "runtime/Core/TensorFiles.h"
#include "lib/Support/Float16.h"
#include "lib/Support/Text.h"

#include <cmath>
#include <cstring>
#include <limits>

using namespace nsa;

static std::string describe(const char *type,
                            const std::vector<uint64_t> &shape) {
  return std::string(type) + "[" + shapeText(shape) + "]";
}

/// Converts every element with `convert`, which says whether it was exact.
/// Returns the first that was not, or -1.
template <typename From, typename To, typename Convert>
static int64_t convertAll(const NpyArray &array, const TensorView &tensor,
                          Convert convert) {
  const From *source = array.as<From>();
  To *out = tensor.as<To>();
  for (uint64_t i = 0; i < tensor.elements(); ++i)
    if (!convert(source[i], out[i]))
      return int64_t(i);
  return -1;
}

template <typename From, typename To>
static int64_t convertIntegers(const NpyArray &array,
                               const TensorView &tensor) {
  return convertAll<From, To>(array, tensor, [](From from, To &to) {
    to = To(from);
    return int64_t(to) == int64_t(from);
  });
}

/// An integer array into an integer tensor. Returns the first element that
/// does not fit, or -1.
template <typename To>
static int64_t loadIntegers(const NpyArray &array, const TensorView &tensor) {
  switch (array.type) {
  case NpyType::I4:
    return convertIntegers<int32_t, To>(array, tensor);
  case NpyType::I8:
    return convertIntegers<int64_t, To>(array, tensor);
  default:
    return convertIntegers<uint16_t, To>(array, tensor);
  }
}

/// A float array into a float tensor. Returns the first element that fp32 does
/// not hold, or -1.
static int64_t loadFloats(const NpyArray &array, const TensorView &tensor) {
  auto store = [&](auto round) {
    using Element = decltype(round(0.0f));
    if (array.type == NpyType::F2)
      return convertAll<uint16_t, Element>(array, tensor,
                                           [&](uint16_t from, Element &to) {
                                             to = round(f16ToFloat(from));
                                             return true;
                                           });
    if (array.type == NpyType::F4)
      return convertAll<float, Element>(array, tensor,
                                        [&](float from, Element &to) {
                                          to = round(from);
                                          return true;
                                        });
    return convertAll<double, Element>(
        array, tensor, [&](double from, Element &to) {
          bool fits = !(std::fabs(from) > std::numeric_limits<float>::max()) ||
                      std::isinf(from);
          float single = fits ? float(from) : 0.0f;
          to = round(single);
          return double(single) == from || std::isnan(from);
        });
  };
  switch (tensor.type) {
  case DataType::BF16:
    return store(floatToBF16);
  case DataType::F16:
    return store(floatToF16);
  default:
    return store([](float value) { return value; });
  }
}

/// An element of an array in decimals.
static std::string elementText(const NpyArray &array, int64_t index) {
  switch (array.type) {
  case NpyType::F2:
    return shortest(f16ToFloat(array.as<uint16_t>()[index]));
  case NpyType::F4:
    return shortest(array.as<float>()[index]);
  case NpyType::F8:
    return shortest(array.as<double>()[index]);
  case NpyType::I4:
    return std::to_string(array.as<int32_t>()[index]);
  case NpyType::I8:
    return std::to_string(array.as<int64_t>()[index]);
  case NpyType::U2:
    return std::to_string(array.as<uint16_t>()[index]);
  }
  return "";
}

Status nsa::loadTensor(const NpyArray &array, const TensorView &tensor) {
  bool floats = array.type == NpyType::F2 || array.type == NpyType::F4 ||
                array.type == NpyType::F8;
  if (array.shape != tensor.shape || floats != isFloat(tensor.type))
    return Error{"tensor " + quote(tensor.name) + " is " +
                 describe(typeName(tensor.type), tensor.shape) +
                 ", but the array is " +
                 describe(npyTypeName(array.type), array.shape)};
  int64_t inexact =
      floats                         ? loadFloats(array, tensor)
      : tensor.type == DataType::I64 ? loadIntegers<int64_t>(array, tensor)
      : tensor.type == DataType::I32 ? loadIntegers<int32_t>(array, tensor)
                                     : loadIntegers<uint8_t>(array, tensor);
  if (inexact < 0)
    return {};
  // A bf16 tensor takes what fp32 holds.
  const char *exact = floats ? "f32" : typeName(tensor.type);
  return Error{"tensor " + quote(tensor.name) + " is " +
               describe(typeName(tensor.type), tensor.shape) +
               ", but element " + std::to_string(inexact) + " of the " +
               npyTypeName(array.type) + " array, " +
               elementText(array, inexact) + ", has no exact " + exact};
}

std::string nsa::formatTensor(const TensorView &tensor) {
  uint64_t count = tensor.elements();
  std::vector<float> wide;
  std::vector<int32_t> integers;
  switch (tensor.type) {
  case DataType::F32:
    return formatNpy(NpyType::F4, tensor.shape, tensor.data);
  case DataType::I32:
    return formatNpy(NpyType::I4, tensor.shape, tensor.data);
  case DataType::I64:
    return formatNpy(NpyType::I8, tensor.shape, tensor.data);
  case DataType::BF16:
  case DataType::F16:
    for (uint64_t i = 0; i < count; ++i)
      wide.push_back(tensor.type == DataType::BF16
                         ? bf16ToFloat(tensor.as<uint16_t>()[i])
                         : f16ToFloat(tensor.as<uint16_t>()[i]));
    return formatNpy(NpyType::F4, tensor.shape, wide.data());
  case DataType::U8:
    integers.assign(tensor.as<uint8_t>(), tensor.as<uint8_t>() + count);
    return formatNpy(NpyType::I4, tensor.shape, integers.data());
  }
  return "";
}
