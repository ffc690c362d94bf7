//===- Blas.cpp - OpenBLAS, opened at run time ----------------------------===//

#include "runtime/CPU/Blas.h"
#include "runtime/CPU/CPUFeatures.h"

#include <cstdlib>
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
    auto getCore =
        reinterpret_cast<char *(*)()>(::dlsym(handle, "openblas_get_corename"));
    if (getCore)
      blas.coreName = getCore();
    if (getCore && blas.coreName != choice.name())
      blas.missed = choice.name();
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
