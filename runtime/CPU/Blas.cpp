//===- Blas.cpp - OpenBLAS, opened at run time ----------------------------===//

#include "runtime/CPU/Blas.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <vector>

using namespace nsa;

/// What to hand to dlopen, in order.
static std::vector<std::string> candidates(const std::string &library) {
  static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
  struct stat info;
  bool folder = !library.empty() && ::stat(library.c_str(), &info) == 0 &&
                S_ISDIR(info.st_mode);
  if (!library.empty() && !folder) {
    // A name without a slash would be searched for elsewhere.
    return {library.find('/') == std::string::npos ? "./" + library : library};
  }
  std::vector<std::string> paths;
  for (const char *name : names)
    paths.push_back(folder ? library + "/" + name : name);
  return paths;
}

Result<Blas> Blas::open(const std::string &library) {
  std::string tried;
  for (const std::string &path : candidates(library)) {
    void *handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      tried += (tried.empty() ? "" : "; ") + std::string(::dlerror());
      continue;
    }
    auto setThreads = reinterpret_cast<void (*)(int)>(
        ::dlsym(handle, "openblas_set_num_threads"));
    Blas blas;
    blas.sgemm = reinterpret_cast<Sgemm>(::dlsym(handle, "cblas_sgemm"));
    blas.opened = path;
    if (!blas.sgemm || !setThreads)
      return Error{"'" + path + "' is not OpenBLAS: it has no symbol " +
                   (blas.sgemm ? "openblas_set_num_threads" : "cblas_sgemm")};
    setThreads(1);
    return blas;
  }
  return Error{"OpenBLAS not found (" + tried + ")"};
}

void Blas::multiply(const BlasGemm &gemm) const {
  constexpr int rowMajor = 101, plain = 111, transposed = 112;
  sgemm(rowMajor, gemm.transposeLhs ? transposed : plain,
        gemm.transposeRhs ? transposed : plain, gemm.m, gemm.n, gemm.k, 1.0f,
        gemm.lhs, gemm.lhsLeading, gemm.rhs, gemm.rhsLeading, gemm.beta,
        gemm.out, gemm.outLeading);
}
