//===- Blas.cpp - OpenBLAS, opened at run time ----------------------------===//

#include "runtime/CPU/Blas.h"
#include "runtime/CPU/CPUFeatures.h"
#include "runtime/CPU/SharedLibrary.h"

#include <cstdlib>

using namespace nsa;

std::string nsa::pickBlasCore(const std::set<std::string> &flags) {
  auto all = [&](std::initializer_list<const char *> names) {
    for (const char *name : names)
      if (!flags.count(name))
        return false;
    return true;
  };
  if (all({"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}))
    return "SkylakeX";
  return all({"avx2", "fma"}) ? "Haswell" : "";
}

namespace {
/// Names the kernels in the environment that OpenBLAS reads as it is loaded.
class CoreChoice {
public:
  CoreChoice() {
    const char *chosen = std::getenv(kVariable);
    if (chosen && *chosen)
      return;
    core = pickBlasCore(hostCPUFlags());
    if (!core.empty())
      ::setenv(kVariable, core.c_str(), /*overwrite=*/1);
  }
  ~CoreChoice() {
    if (!core.empty())
      ::unsetenv(kVariable);
  }
  /// Empty if nothing was chosen here.
  const std::string &name() const { return core; }

private:
  static constexpr const char *kVariable = "OPENBLAS_CORETYPE";
  std::string core;
};
} // namespace

Result<Blas> Blas::open(const std::string &library) {
  CoreChoice choice;
  Result<SharedLibrary> opened = SharedLibrary::open(
      "OpenBLAS", library, {"libopenblas.so.0", "libopenblas.so"});
  if (!opened)
    return opened.takeError();
  Blas blas;
  void (*setThreads)(int) = nullptr;
  opened->find(blas.sgemm, "cblas_sgemm");
  opened->find(setThreads, "openblas_set_num_threads");
  blas.opened = opened->path;
  if (!opened->missing.empty())
    return Error{"'" + blas.opened + "' is not OpenBLAS: it has no symbol " +
                 opened->missing};
  setThreads(1);
  char *(*getCore)() = nullptr;
  opened->find(getCore, "openblas_get_corename");
  if (getCore)
    blas.coreName = getCore();
  if (getCore && blas.coreName != choice.name())
    blas.missed = choice.name();
  return blas;
}

void Blas::multiply(const BlasGemm &gemm) const {
  constexpr int rowMajor = 101, plain = 111, transposed = 112;
  sgemm(rowMajor, gemm.transposeLhs ? transposed : plain,
        gemm.transposeRhs ? transposed : plain, gemm.m, gemm.n, gemm.k, 1.0f,
        gemm.lhs, gemm.lhsLeading, gemm.rhs, gemm.rhsLeading, gemm.beta,
        gemm.out, gemm.outLeading);
}
