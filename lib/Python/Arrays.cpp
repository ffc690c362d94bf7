//===- Arrays.cpp - NumPy arrays and tensors ------------------------------===//

#include "lib/Python/Arrays.h"

#include <cstring>

namespace py = pybind11;

using namespace nsa;

static float widen(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

/// Rounds to nearest, ties to even; a NaN stays one.
static uint16_t narrow(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7FFFFFFF) > 0x7F800000)
    return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/// The NumPy type whose elements lie in memory as the tensor's do.
static py::dtype storageType(DataType type) {
  switch (type) {
  case DataType::F32:
    return py::dtype::of<float>();
  case DataType::BF16:
    return py::dtype::of<uint16_t>();
  case DataType::F16:
    return py::dtype("float16");
  case DataType::I32:
    return py::dtype::of<int32_t>();
  case DataType::I64:
    return py::dtype::of<int64_t>();
  case DataType::U8:
    break;
  }
  return py::dtype::of<uint8_t>();
}

static std::string shapeText(const py::ssize_t *begin, size_t rank) {
  std::string text = "(";
  for (size_t i = 0; i < rank; ++i)
    text += (i ? ", " : "") + std::to_string(begin[i]);
  return text + (rank == 1 ? ",)" : ")");
}

static std::vector<py::ssize_t> shapeOf(const TensorView &tensor) {
  return {tensor.shape.begin(), tensor.shape.end()};
}

py::array nsa::toArray(const TensorView &tensor) {
  std::vector<py::ssize_t> shape = shapeOf(tensor);
  if (tensor.type == DataType::BF16) {
    py::array_t<float> array(shape);
    const uint16_t *bits = tensor.as<uint16_t>();
    float *values = array.mutable_data();
    for (uint64_t i = 0; i < tensor.elements(); ++i)
      values[i] = widen(bits[i]);
    return std::move(array);
  }
  py::array array(storageType(tensor.type), shape);
  if (tensor.bytes > 0)
    std::memcpy(array.mutable_data(), tensor.data, tensor.bytes);
  return array;
}

Status nsa::fromArray(const TensorView &tensor, const py::array &value) {
  std::vector<py::ssize_t> shape = shapeOf(tensor);
  if (size_t(value.ndim()) != shape.size() ||
      !std::equal(shape.begin(), shape.end(), value.shape()))
    return Error{"'" + tensor.name + "' has shape " +
                 shapeText(shape.data(), shape.size()) + ", the array has " +
                 shapeText(value.shape(), value.ndim())};
  py::array dense = py::array::ensure(value, py::array::c_style);
  if (tensor.type == DataType::BF16 &&
      dense.dtype().equal(py::dtype::of<float>())) {
    const float *values = static_cast<const float *>(dense.data());
    uint16_t *bits = tensor.as<uint16_t>();
    for (uint64_t i = 0; i < tensor.elements(); ++i)
      bits[i] = narrow(values[i]);
    return {};
  }
  py::dtype expected = storageType(tensor.type);
  if (!dense.dtype().equal(expected))
    return Error{
        "'" + tensor.name + "' is " + typeName(tensor.type) + " and takes " +
        (tensor.type == DataType::BF16
             ? std::string("float32 or uint16")
             : py::str(expected).cast<std::string>()) +
        ", the array has " + py::str(dense.dtype()).cast<std::string>()};
  if (tensor.bytes > 0)
    std::memcpy(tensor.data, dense.data(), tensor.bytes);
  return {};
}
