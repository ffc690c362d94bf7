//===- Arrays.cpp - NumPy arrays and tensors ------------------------------===//

#include "lib/Python/Arrays.h"
#include "lib/Support/Float16.h"

#include <cstring>

namespace py = pybind11;

using namespace nsa;

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

Result<py::array> nsa::arrayFor(const TensorView &tensor,
                                const py::array &value) {
  std::vector<py::ssize_t> shape = shapeOf(tensor);
  if (size_t(value.ndim()) != shape.size() ||
      !std::equal(shape.begin(), shape.end(), value.shape()))
    return Error{"'" + tensor.name + "' has shape " +
                 shapeText(shape.data(), shape.size()) + ", the array has " +
                 shapeText(value.shape(), value.ndim())};
  py::dtype expected = storageType(tensor.type);
  bool widened = tensor.type == DataType::BF16 &&
                 value.dtype().equal(py::dtype::of<float>());
  if (!widened && !value.dtype().equal(expected))
    return Error{
        "'" + tensor.name + "' is " + typeName(tensor.type) + " and takes " +
        (tensor.type == DataType::BF16
             ? std::string("float32 or uint16")
             : py::str(expected).cast<std::string>()) +
        ", the array has " + py::str(value.dtype()).cast<std::string>()};
  return py::array::ensure(value, py::array::c_style);
}

py::array nsa::emptyArray(const TensorView &tensor) {
  py::dtype type = tensor.type == DataType::BF16 ? py::dtype::of<float>()
                                                 : storageType(tensor.type);
  return py::array(type, shapeOf(tensor));
}

ArrayElements ArrayElements::of(const py::array &array) {
  return {const_cast<void *>(array.data()),
          array.dtype().equal(py::dtype::of<float>())};
}

void nsa::copyToTensor(ArrayElements from, const TensorView &tensor) {
  if (tensor.type == DataType::BF16 && from.isFloat) {
    const auto *values = static_cast<const float *>(from.data);
    auto *bits = tensor.as<uint16_t>();
    for (uint64_t i = 0; i < tensor.elements(); ++i)
      bits[i] = floatToBF16(values[i]);
  } else if (tensor.bytes > 0) {
    std::memcpy(tensor.data, from.data, tensor.bytes);
  }
}

void nsa::copyFromTensor(const TensorView &tensor, ArrayElements to) {
  if (tensor.type == DataType::BF16) {
    const auto *bits = tensor.as<uint16_t>();
    auto *values = static_cast<float *>(to.data);
    for (uint64_t i = 0; i < tensor.elements(); ++i)
      values[i] = bf16ToFloat(bits[i]);
  } else if (tensor.bytes > 0) {
    std::memcpy(to.data, tensor.data, tensor.bytes);
  }
}
