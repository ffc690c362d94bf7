//===- Tensor.h - a dense fp64 tensor ---------------------------*- C++ -*-===//
//
// Everything is fp64, integers included (they are exact).
//
//===----------------------------------------------------------------------===//

#ifndef NSA_TEST_UNIT_TENSOR_H
#define NSA_TEST_UNIT_TENSOR_H

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace nsa::test {

/// A row-major tensor.
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<double> data;

  Tensor() = default;
  explicit Tensor(std::vector<int64_t> shape, double value = 0.0)
      : shape(std::move(shape)) {
    data.assign(elements(), value);
  }

  size_t elements() const {
    size_t count = 1;
    for (int64_t size : shape)
      count *= static_cast<size_t>(size);
    return count;
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

} // namespace nsa::test

#endif // NSA_TEST_UNIT_TENSOR_H
