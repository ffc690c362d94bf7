//===- Gemm.h - matmuls over the thread pool --------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CPU_GEMM_H
#define NSA_RUNTIME_CPU_GEMM_H

#include "nsa/Artifact/GemmWorkspace.h"
#include "runtime/CPU/Blas.h"
#include "runtime/CPU/ThreadPool.h"

namespace nsa {

/// How a GEMM is cut into blocks of `out`. Depends on the sizes alone,
/// because OpenBLAS may round differently in blocks of different shapes.
struct GemmSplit {
  int64_t rowStep, columnStep;
  int64_t rowBlocks, columnBlocks;

  static GemmSplit of(int64_t m, int64_t n, int64_t k);
};

/// A gemm command with its addresses.
struct GemmCommand {
  int64_t m, n, k;
  bool transposeLhs, transposeRhs;
  DataType lhsType, rhsType, outType;
  int64_t batch;
  float alpha, beta;
  const void *lhs;
  const void *rhs;
  /// What `beta` scales: `out`, or other memory.
  const void *addend;
  void *out;
  /// gemmWorkspace().bytes bytes.
  char *workspace;
};

/// Runs a gemm inside a job of `pool`.
void runGemm(const GemmCommand &gemm, const Blas &blas, ThreadPool &pool);

} // namespace nsa

#endif // NSA_RUNTIME_CPU_GEMM_H
