//===- Blas.h - OpenBLAS, opened at run time --------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CPU_BLAS_H
#define NSA_RUNTIME_CPU_BLAS_H

#include "nsa/Support/Result.h"

#include <cstdint>
#include <memory>
#include <set>
#include <string>

namespace nsa {

/// A dense row-major matmul, out[m,n] = alpha * op(lhs) op(rhs) + beta * out,
/// on blocks of larger matrices: a leading dimension is the number of elements
/// from one stored row to the next.
struct BlasGemm {
  int m, n, k;
  bool transposeLhs, transposeRhs;
  const float *lhs;
  int lhsLeading;
  const float *rhs;
  int rhsLeading;
  float alpha, beta;
  float *out;
  int outLeading;
};

/// OpenBLAS, set to one thread: the runtime splits the work itself. It stays
/// loaded until the process ends, because its own threads cannot be unloaded.
class Blas {
public:
  /// Opens `library`: a file, a folder that holds libopenblas.so.0,
  /// libopenblas.so or libscipy_openblas.so, or, when empty, those names where
  /// SharedLibrary looks for them. The error lists what was tried.
  ///
  /// A release of OpenBLAS does not know the processors that came after it and
  /// runs its SSE3 kernels on them, four times slower. So it is told which
  /// kernels to take, unless the environment variable OPENBLAS_CORETYPE does.
  static Result<Blas> open(const std::string &library);

  /// The file or name that was opened.
  const std::string &path() const { return opened; }

  /// The processor whose kernels it runs ("SkylakeX"); empty if it does not
  /// say.
  const std::string &core() const { return coreName; }

  /// The kernels that it should run here but does not, such as when the process
  /// had opened it before; empty if it runs them.
  const std::string &missedCore() const { return missed; }

  /// Single precision. May be called from several threads at once.
  void multiply(const BlasGemm &gemm) const;

private:
  using Sgemm = void (*)(int order, int transposeA, int transposeB, int m,
                         int n, int k, float alpha, const float *a, int lda,
                         const float *b, int ldb, float beta, float *c,
                         int ldc);

  Sgemm sgemm = nullptr;
  std::string opened, coreName, missed;
};

/// OpenBLAS's name of the fastest kernels in every build for many processors
/// that a processor with these flags runs ("SkylakeX", "Haswell"); empty to
/// leave the choice to it.
std::string pickBlasCore(const std::set<std::string> &flags);

} // namespace nsa

#endif // NSA_RUNTIME_CPU_BLAS_H
