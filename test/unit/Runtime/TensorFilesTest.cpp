//===- TensorFilesTest.cpp - tensors from and to .npy arrays --------------===//

#include "runtime/Core/TensorFiles.h"
#include "test/unit/Expect.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

using namespace nsa;

namespace {

template <typename T>
NpyArray makeArray(NpyType type, const std::vector<uint64_t> &shape,
                   const std::vector<T> &values) {
  NpyArray array;
  array.type = type;
  array.shape = shape;
  array.data.assign(reinterpret_cast<const char *>(values.data()),
                    values.size() * sizeof(T));
  return array;
}

/// A tensor of four elements with memory of its own.
struct Tensor {
  explicit Tensor(DataType type) {
    view.name = "t";
    view.type = type;
    view.shape = {2, 2};
    view.bytes = 4 * elementBytes(type);
    view.data = memory;
  }
  alignas(64) char memory[64] = {};
  TensorView view;
};

} // namespace

TEST(TensorFiles, Floats_RoundToBF16) {
  Tensor tensor(DataType::BF16);
  ASSERT_TRUE(loadTensor(makeArray<float>(NpyType::F4, {2, 2},
                                          {1, 1.00390625f, -2, NAN}),
                         tensor.view)
                  .ok());
  NpyArray back = take(parseNpy(formatTensor(tensor.view)));
  EXPECT_EQ(back.type, NpyType::F4);
  EXPECT_EQ(back.as<float>()[1], 1.0f);
  EXPECT_EQ(back.as<float>()[2], -2.0f);
  EXPECT_TRUE(std::isnan(back.as<float>()[3]));
}

// What numpy.save(x.astype(numpy.float16)) holds: every bit pattern has an f32.
TEST(TensorFiles, LoadTensor_HalfArray_ValuesAreExact) {
  const std::vector<uint16_t> halves = {0x3C00, 0xC100, 0x0001, 0x7C00};
  const std::vector<float> values = {1.0f, -2.5f, 0x1p-24f, INFINITY};
  Tensor tensor(DataType::F32);
  ASSERT_TRUE(
      loadTensor(makeArray<uint16_t>(NpyType::F2, {2, 2}, halves), tensor.view)
          .ok());
  Tensor same(DataType::F16);
  ASSERT_TRUE(
      loadTensor(makeArray<uint16_t>(NpyType::F2, {2, 2}, halves), same.view)
          .ok());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(tensor.view.as<float>()[i], values[i]);
    EXPECT_EQ(same.view.as<uint16_t>()[i], halves[i]);
  }
  Tensor integers(DataType::I32);
  EXPECT_EQ(loadTensor(makeArray<uint16_t>(NpyType::F2, {2, 2}, halves),
                       integers.view)
                .message(),
            "tensor 't' is i32[2x2], but the array is f16[2x2]");
}

TEST(TensorFiles, Doubles_MustBeExact) {
  Tensor tensor(DataType::F32);
  EXPECT_TRUE(loadTensor(makeArray<double>(NpyType::F8, {2, 2},
                                           {1, 0.5, -INFINITY, NAN}),
                         tensor.view)
                  .ok());
  EXPECT_EQ(loadTensor(makeArray<double>(NpyType::F8, {2, 2}, {1, 2, 0.1, 3}),
                       tensor.view)
                .message(),
            "tensor 't' is f32[2x2], but element 2 of the f64 array, 0.1, has "
            "no exact f32");
  EXPECT_FALSE(
      loadTensor(makeArray<double>(NpyType::F8, {2, 2}, {1e300, 2, 0, 3}),
                 tensor.view)
          .ok());
}

TEST(TensorFiles, Integers_MustFit) {
  Tensor tensor(DataType::I32);
  ASSERT_TRUE(loadTensor(makeArray<int64_t>(NpyType::I8, {2, 2}, {1, -2, 3, 4}),
                         tensor.view)
                  .ok());
  EXPECT_EQ(tensor.view.as<int32_t>()[1], -2);
  ASSERT_TRUE(
      loadTensor(makeArray<uint16_t>(NpyType::U2, {2, 2}, {1, 65535, 3, 4}),
                 tensor.view)
          .ok());
  EXPECT_EQ(tensor.view.as<int32_t>()[1], 65535);
  EXPECT_EQ(
      loadTensor(makeArray<int64_t>(NpyType::I8, {2, 2}, {1, 5000000000, 3, 4}),
                 tensor.view)
          .message(),
      "tensor 't' is i32[2x2], but element 1 of the i64 array, "
      "5000000000, has no exact i32");
}

TEST(TensorFiles, ShapesAndKinds_MustMatch) {
  Tensor tensor(DataType::F32);
  EXPECT_EQ(
      loadTensor(makeArray<float>(NpyType::F4, {4}, {1, 2, 3, 4}), tensor.view)
          .message(),
      "tensor 't' is f32[2x2], but the array is f32[4]");
  EXPECT_EQ(loadTensor(makeArray<int32_t>(NpyType::I4, {2, 2}, {1, 2, 3, 4}),
                       tensor.view)
                .message(),
            "tensor 't' is f32[2x2], but the array is i32[2x2]");
  Tensor integers(DataType::I32);
  EXPECT_FALSE(loadTensor(makeArray<float>(NpyType::F4, {2, 2}, {1, 2, 3, 4}),
                          integers.view)
                   .ok());
}
