//===- poisoned-blas.c - matmuls that are not finite on one rank ----------===//
//
// For poison.py, as --blas: OpenBLAS, but on rank NSA_POISONED_RANK every
// matmul from number NSA_POISONED_PRODUCT on begins with a NaN.
//
//===----------------------------------------------------------------------===//

#include <dlfcn.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef void Sgemm(int, int, int, int, int, int, float, const float *, int,
                   const float *, int, float, float *, int);

static Sgemm *real;
static void (*setThreads)(int);
static long first = -1;
static atomic_long calls;

__attribute__((constructor)) static void openReal(void) {
  void *library = dlopen("libopenblas.so.0", RTLD_NOW);
  if (!library)
    abort();
  real = (Sgemm *)dlsym(library, "cblas_sgemm");
  setThreads = (void (*)(int))dlsym(library, "openblas_set_num_threads");
  const char *rank = getenv("RANK"), *victim = getenv("NSA_POISONED_RANK");
  const char *number = getenv("NSA_POISONED_PRODUCT");
  if (rank && victim && number && strcmp(rank, victim) == 0)
    first = atol(number);
}

void openblas_set_num_threads(int threads) { setThreads(threads); }

void cblas_sgemm(int order, int transA, int transB, int m, int n, int k,
                 float alpha, const float *a, int lda, const float *b, int ldb,
                 float beta, float *c, int ldc) {
  real(order, transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  if (first >= 0 && ++calls >= first)
    c[0] = NAN;
}
