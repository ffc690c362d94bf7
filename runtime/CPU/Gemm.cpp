//===- Gemm.cpp - matmuls over the thread pool ----------------------------===//

#include "runtime/CPU/Gemm.h"
#include "runtime/CPU/Convert.h"

#include <algorithm>

using namespace nsa;

static int64_t ceilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// The step that cuts `size` into as few equal pieces as `limit` allows, in
/// multiples of 16 elements (one cache line).
static int64_t evenStep(int64_t size, int64_t limit) {
  int64_t pieces = std::max<int64_t>(1, ceilDivide(size, limit));
  return std::max<int64_t>(16, ceilDivide(ceilDivide(size, pieces), 16) * 16);
}

// Blocks of 256x512 lose less than a tenth to OpenBLAS's repeated packing.
// Smaller ones are worth it only where there would be too few to share out.
GemmSplit GemmSplit::of(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t enough = 8, smallestWork = 1 << 18;
  int64_t rows = 256, columns = 512;
  auto blocks = [&] { return ceilDivide(m, rows) * ceilDivide(n, columns); };
  while (blocks() > 0 && blocks() < enough && (rows > 64 || columns > 128) &&
         m * n / blocks() > smallestWork / std::max<int64_t>(k, 1)) {
    if (columns > rows)
      columns /= 2;
    else
      rows /= 2;
  }
  GemmSplit split;
  split.rowStep = evenStep(m, rows);
  split.columnStep = evenStep(n, columns);
  split.rowBlocks = ceilDivide(m, split.rowStep);
  split.columnBlocks = ceilDivide(n, split.columnStep);
  return split;
}

/// Elements that one chunk of a conversion covers.
static constexpr int64_t conversionStep = 1 << 14;

/// Calls `body(begin, end)` over 0..count-1 in pieces of conversionStep.
template <typename Body>
static void forPieces(ThreadPool &pool, int64_t count, const Body &body) {
  pool.parallelFor(
      ceilDivide(count, conversionStep), [&](int64_t begin, int64_t end) {
        body(begin * conversionStep, std::min(end * conversionStep, count));
      });
}

/// The operand itself if it is fp32, else its copy in the workspace.
static const float *widenOperand(DataType type, const void *operand,
                                 int64_t count, char *copy, ThreadPool &pool) {
  if (type == DataType::F32)
    return static_cast<const float *>(operand);
  auto *wide = reinterpret_cast<float *>(copy);
  forPieces(pool, count, [&](int64_t begin, int64_t end) {
    widen(type, operand, wide, begin, end);
  });
  return wide;
}

/// The GEMM of block `index`, in fp32. Those of a matrix of the batch follow
/// those of the one before.
static void runBlock(const GemmCommand &gemm, const GemmSplit &split,
                     int64_t index, const float *lhs, const float *rhs,
                     float *out, const Blas &blas) {
  int64_t matrix = index / (split.rowBlocks * split.columnBlocks);
  index %= split.rowBlocks * split.columnBlocks;
  lhs += matrix * gemm.m * gemm.k;
  rhs += matrix * gemm.k * gemm.n;
  out += matrix * gemm.m * gemm.n;
  int64_t row = index / split.columnBlocks * split.rowStep;
  int64_t column = index % split.columnBlocks * split.columnStep;
  BlasGemm block;
  block.m = int(std::min(split.rowStep, gemm.m - row));
  block.n = int(std::min(split.columnStep, gemm.n - column));
  block.k = int(gemm.k);
  block.transposeLhs = gemm.transposeLhs;
  block.transposeRhs = gemm.transposeRhs;
  block.lhs = lhs + (gemm.transposeLhs ? row : row * gemm.k);
  block.lhsLeading = int(gemm.transposeLhs ? gemm.m : gemm.k);
  block.rhs = rhs + (gemm.transposeRhs ? column * gemm.k : column);
  block.rhsLeading = int(gemm.transposeRhs ? gemm.k : gemm.n);
  block.alpha = gemm.alpha;
  block.beta = gemm.beta;
  block.out = out + row * gemm.n + column;
  block.outLeading = int(gemm.n);
  blas.multiply(block);
}

/// out *= beta, without reading it when beta is 0.
static void scale(float *out, float beta, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    out[i] = beta == 0 ? 0 : out[i] * beta;
}

void nsa::runGemm(const GemmCommand &gemm, const Blas &blas, ThreadPool &pool) {
  if (gemm.m == 0 || gemm.n == 0)
    return;
  GemmWorkspace layout =
      gemmWorkspace(gemm.m, gemm.n, gemm.k, gemm.lhsType, gemm.rhsType,
                    gemm.outType, uint64_t(gemm.batch));
  const float *lhs =
      widenOperand(gemm.lhsType, gemm.lhs, gemm.batch * gemm.m * gemm.k,
                   gemm.workspace + layout.lhs, pool);
  const float *rhs =
      widenOperand(gemm.rhsType, gemm.rhs, gemm.batch * gemm.k * gemm.n,
                   gemm.workspace + layout.rhs, pool);
  int64_t count = gemm.batch * gemm.m * gemm.n;
  bool wideOut = gemm.outType == DataType::F32;
  auto *out = reinterpret_cast<float *>(wideOut ? static_cast<char *>(gemm.out)
                                                : gemm.workspace + layout.out);
  if (gemm.beta != 0 && out != gemm.addend)
    forPieces(pool, count, [&](int64_t begin, int64_t end) {
      widen(gemm.outType, gemm.addend, out, begin, end);
    });
  if (gemm.k == 0) {
    forPieces(pool, count, [&](int64_t begin, int64_t end) {
      scale(out, gemm.beta, begin, end);
    });
  } else {
    GemmSplit split = GemmSplit::of(gemm.m, gemm.n, gemm.k);
    pool.parallelFor(gemm.batch * split.rowBlocks * split.columnBlocks,
                     [&](int64_t begin, int64_t end) {
                       for (int64_t i = begin; i < end; ++i)
                         runBlock(gemm, split, i, lhs, rhs, out, blas);
                     });
  }
  if (!wideOut)
    forPieces(pool, count, [&](int64_t begin, int64_t end) {
      narrow(gemm.outType, out, gemm.out, begin, end);
    });
}
