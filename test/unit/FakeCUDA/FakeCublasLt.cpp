//===- FakeCublasLt.cpp - matmuls of the GPU in host memory ---------------===//

#include "lib/Support/Float16.h"
#include "test/unit/FakeCUDA/FakeCUDA.h"
#include "test/unit/FakeCUDA/FakeStream.h"

#include <utility>

// The names are those of the library.
// NOLINTBEGIN(readability-identifier-naming)

using namespace fake;

extern "C" {

struct FakeLayout {
  int type;
  uint64_t rows, cols;
  int64_t leading;
  int32_t batch = 1;
  int64_t stride = 0;
};
struct FakeProduct {
  int transposeA = 0, transposeB = 0;
};

size_t cublasLtGetVersion() { return 120800; }
int cublasLtCreate(void **handle) {
  static int library;
  *handle = &library;
  return 0;
}
int cublasLtDestroy(void *) { return 0; }
int cublasLtMatmulDescCreate(void **desc, int, int) {
  *desc = new FakeProduct;
  return 0;
}
int cublasLtMatmulDescDestroy(void *desc) {
  delete static_cast<FakeProduct *>(desc);
  return 0;
}
int cublasLtMatmulDescSetAttribute(void *desc, int attribute, const void *value,
                                   size_t) {
  auto *product = static_cast<FakeProduct *>(desc);
  (attribute == 3 ? product->transposeA : product->transposeB) =
      *static_cast<const int *>(value);
  return 0;
}
int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows,
                               uint64_t cols, int64_t leading) {
  *layout = new FakeLayout{type, rows, cols, leading};
  return 0;
}
int cublasLtMatrixLayoutSetAttribute(void *layout, int attribute,
                                     const void *value, size_t) {
  auto *matrix = static_cast<FakeLayout *>(layout);
  if (attribute == 5)
    matrix->batch = *static_cast<const int32_t *>(value);
  else
    matrix->stride = *static_cast<const int64_t *>(value);
  return 0;
}
int cublasLtMatrixLayoutDestroy(void *layout) {
  delete static_cast<FakeLayout *>(layout);
  return 0;
}
int cublasLtMatmulPreferenceCreate(void **) { return 0; }
int cublasLtMatmulPreferenceDestroy(void *) { return 0; }
int cublasLtMatmulPreferenceSetAttribute(void *, int, const void *, size_t) {
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void *, void *, void *, void *, void *,
                                   void *, void *, int, void *, int *found) {
  *found = 1;
  return call("cublasLtMatmulAlgoGetHeuristic") ? 15 : 0;
}

static float get(const FakeLayout &layout, const void *data, bool transposed,
                 int matrix, uint64_t row, uint64_t col) {
  if (transposed)
    std::swap(row, col);
  uint64_t at = row + col * uint64_t(layout.leading) +
                uint64_t(matrix) * uint64_t(layout.stride);
  return layout.type == 0
             ? static_cast<const float *>(data)[at]
             : nsa::bf16ToFloat(static_cast<const uint16_t *>(data)[at]);
}

int cublasLtMatmul(void *, void *desc, const void *alpha, const void *a,
                   void *aLayout, const void *b, void *bLayout,
                   const void *beta, const void *c, void *, void *d,
                   void *dLayout, const void *, void *, size_t, void *) {
  FakeProduct product = *static_cast<FakeProduct *>(desc);
  FakeLayout left = *static_cast<FakeLayout *>(aLayout),
             right = *static_cast<FakeLayout *>(bLayout),
             out = *static_cast<FakeLayout *>(dLayout);
  float factor = *static_cast<const float *>(alpha);
  float scale = *static_cast<const float *>(beta);
  uint64_t depth = product.transposeA ? left.rows : left.cols;
  double flops = 2.0 * double(out.rows) * double(out.cols) * double(depth) *
                 double(out.batch);
  double speed = left.type == 0 ? kFakeFloatSpeed : kFakeHalfSpeed;
  // Matmuls of models are not computed: their kernels do nothing, so that no
  // number comes of them.
  bool computes = flops < 1e5;
  auto multiply = [=](int n, uint64_t i, uint64_t j) {
    float sum = 0;
    for (uint64_t k = 0; k < depth; ++k)
      sum += get(left, a, product.transposeA, n, i, k) *
             get(right, b, product.transposeB, n, k, j);
    sum *= factor;
    if (scale != 0)
      sum += scale * get(out, c, false, n, i, j);
    uint64_t at =
        i + j * uint64_t(out.leading) + uint64_t(n) * uint64_t(out.stride);
    if (out.type == 0)
      static_cast<float *>(d)[at] = sum;
    else
      static_cast<uint16_t *>(d)[at] = nsa::floatToBF16(sum);
  };
  enqueue(flops / speed, [=] {
    for (int n = 0; computes && n < out.batch; ++n)
      for (uint64_t i = 0; i < out.rows; ++i)
        for (uint64_t j = 0; j < out.cols; ++j)
          multiply(n, i, j);
  });
  return call("cublasLtMatmul") ? 14 : 0;
}

} // extern "C"

// NOLINTEND(readability-identifier-naming)
