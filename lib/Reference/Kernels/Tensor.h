//===- Tensor.h - a dense fp64 tensor ---------------------------*- C++ -*-===//
//
// The only data type of the reference: everything is fp64, integers included
// (they are exact). No LLVM here.
//
//===----------------------------------------------------------------------===//

#ifndef NSA_LIB_REFERENCE_KERNELS_TENSOR_H
#define NSA_LIB_REFERENCE_KERNELS_TENSOR_H

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace nsa::reference {

/// A row-major tensor.
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<double> data;

  Tensor() = default;
  explicit Tensor(std::vector<int64_t> shape, double value = 0.0)
      : shape(std::move(shape)) {
    data.assign(elements(), value);
  }

  int64_t dim(size_t i) const { return shape[i]; }
  size_t rank() const { return shape.size(); }

  size_t elements() const {
    size_t count = 1;
    for (int64_t size : shape)
      count *= static_cast<size_t>(size);
    return count;
  }

  /// Product of all dimensions but the last.
  int64_t rows() const {
    int64_t count = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i)
      count *= shape[i];
    return count;
  }

  /// The address of the innermost row at the leading coordinates.
  double *row(std::initializer_list<int64_t> coordinates) {
    return data.data() + offset(coordinates);
  }
  const double *row(std::initializer_list<int64_t> coordinates) const {
    return data.data() + offset(coordinates);
  }

  double &at(std::initializer_list<int64_t> coordinates) {
    return data[offset(coordinates)];
  }
  double at(std::initializer_list<int64_t> coordinates) const {
    return data[offset(coordinates)];
  }

private:
  size_t offset(std::initializer_list<int64_t> coordinates) const {
    assert(coordinates.size() <= shape.size() && "too many coordinates");
    size_t result = 0, i = 0;
    for (int64_t coordinate : coordinates) {
      assert(coordinate >= 0 && coordinate < shape[i] && "out of range");
      result = result * shape[i++] + coordinate;
    }
    for (; i < shape.size(); ++i)
      result *= shape[i];
    return result;
  }
};

} // namespace nsa::reference

#endif // NSA_LIB_REFERENCE_KERNELS_TENSOR_H
