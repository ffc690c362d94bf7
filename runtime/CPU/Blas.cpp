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

/// The build that SciPy's packages share has names of its own.
static std::string symbolPrefix(const std::string &path) {
  size_t slash = path.rfind('/');
  return path.find("scipy_openblas", slash == std::string::npos ? 0 : slash) ==
                 std::string::npos
             ? ""
             : "scipy_";
}

Result<Blas> Blas::open(const std::string &library) {
  CoreChoice choice;
  NSA_ASSIGN_OR_RETURN(
      SharedLibrary opened,
      SharedLibrary::open(
          "OpenBLAS", library,
          {"libopenblas.so.0", "libopenblas.so", "libscipy_openblas.so"},
          "the package libopenblas0 of Debian and scipy-openblas32 of PyPI"));
  Blas blas;
  void (*setThreads)(int) = nullptr;
  blas.opened = opened.path;
  std::string prefix = symbolPrefix(blas.opened);
  opened.find(blas.sgemm, (prefix + "cblas_sgemm").c_str());
  opened.find(setThreads, (prefix + "openblas_set_num_threads").c_str());
  NSA_RETURN_IF_ERROR(opened.checkFound("OpenBLAS"));
  setThreads(1);
  char *(*getCore)() = nullptr;
  opened.find(getCore, (prefix + "openblas_get_corename").c_str());
  if (getCore)
    blas.coreName = getCore();
  if (getCore && blas.coreName != choice.name())
    blas.missed = choice.name();
  return blas;
}

void Blas::multiply(const BlasGemm &gemm) const {
  constexpr int rowMajor = 101, plain = 111, transposed = 112;
  sgemm(rowMajor, gemm.transposeLhs ? transposed : plain,
        gemm.transposeRhs ? transposed : plain, gemm.m, gemm.n, gemm.k,
        gemm.alpha, gemm.lhs, gemm.lhsLeading, gemm.rhs, gemm.rhsLeading,
        gemm.beta, gemm.out, gemm.outLeading);
}
