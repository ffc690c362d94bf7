//===- BlasLt.cpp - cuBLASLt, opened at run time --------------------------===//

#include "runtime/CUDA/BlasLt.h"
#include "runtime/CPU/SharedLibrary.h"

using namespace nsa;
using namespace nsa::cuda;

namespace {
// Of cublasLt.h, library_types.h and cublas_api.h.
constexpr int kReal32F = 0, kReal16F = 2, kReal16BF = 14;
constexpr int kCompute32F = 68;
constexpr int kDescTransposeA = 3, kDescTransposeB = 4;
constexpr int kPreferenceWorkspace = 1;
constexpr int kLayoutBatch = 5, kLayoutStride = 6;
constexpr int kPlain = 0, kTransposed = 1;

/// cublasLtMatmulHeuristicResult_t.
struct Heuristic {
  uint64_t algorithm[8];
  size_t workspaceSize;
  int state;
  float waves;
  int reserved[4];
};
} // namespace

struct BlasLt::Functions {
  size_t (*GetVersion)();
  int (*Create)(void **handle);
  int (*Destroy)(void *handle);
  int (*MatmulDescCreate)(void **desc, int compute, int scale);
  int (*MatmulDescDestroy)(void *desc);
  int (*MatmulDescSetAttribute)(void *desc, int attribute, const void *value,
                                size_t bytes);
  int (*LayoutCreate)(void **layout, int type, uint64_t rows, uint64_t cols,
                      int64_t leading);
  int (*LayoutDestroy)(void *layout);
  int (*LayoutSetAttribute)(void *layout, int attribute, const void *value,
                            size_t bytes);
  int (*PreferenceCreate)(void **preference);
  int (*PreferenceDestroy)(void *preference);
  int (*PreferenceSetAttribute)(void *preference, int attribute,
                                const void *value, size_t bytes);
  int (*GetHeuristic)(void *handle, void *desc, void *a, void *b, void *c,
                      void *d, void *preference, int wanted, Heuristic *results,
                      int *found);
  // Addresses of the GPU are numbers here and pointers there, of one size.
  int (*Matmul)(void *handle, void *desc, const void *alpha, DevicePtr a,
                void *aLayout, DevicePtr b, void *bLayout, const void *beta,
                DevicePtr c, void *cLayout, DevicePtr d, void *dLayout,
                const void *algorithm, DevicePtr workspace,
                size_t workspaceBytes, Stream stream);
};

/// The library is column-major: it computes out^T = op(rhs)^T op(lhs)^T.
struct BlasLt::Plan {
  Matmul product;
  void *desc = nullptr, *a = nullptr, *b = nullptr, *d = nullptr;
  Heuristic heuristic;
};

BlasLt::BlasLt() : functions(std::make_unique<Functions>()) {}

BlasLt::~BlasLt() {
  for (Plan &plan : plans) {
    if (plan.desc)
      functions->MatmulDescDestroy(plan.desc);
    for (void *layout : {plan.a, plan.b, plan.d})
      if (layout)
        functions->LayoutDestroy(layout);
  }
  if (handle)
    functions->Destroy(handle);
}

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

Result<std::unique_ptr<BlasLt>> BlasLt::open(const std::string &library) {
  NSA_ASSIGN_OR_RETURN(
      SharedLibrary opened,
      SharedLibrary::open(
          "cuBLASLt", library,
          {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
          "the CUDA toolkit and nvidia-cublas of PyPI"));
  std::unique_ptr<BlasLt> blas(new BlasLt);
  Functions &f = *blas->functions;
  opened.find(f.GetVersion, "cublasLtGetVersion");
  opened.find(f.Create, "cublasLtCreate");
  opened.find(f.Destroy, "cublasLtDestroy");
  opened.find(f.MatmulDescCreate, "cublasLtMatmulDescCreate");
  opened.find(f.MatmulDescDestroy, "cublasLtMatmulDescDestroy");
  opened.find(f.MatmulDescSetAttribute, "cublasLtMatmulDescSetAttribute");
  opened.find(f.LayoutCreate, "cublasLtMatrixLayoutCreate");
  opened.find(f.LayoutDestroy, "cublasLtMatrixLayoutDestroy");
  opened.find(f.LayoutSetAttribute, "cublasLtMatrixLayoutSetAttribute");
  opened.find(f.PreferenceCreate, "cublasLtMatmulPreferenceCreate");
  opened.find(f.PreferenceDestroy, "cublasLtMatmulPreferenceDestroy");
  opened.find(f.PreferenceSetAttribute, "cublasLtMatmulPreferenceSetAttribute");
  opened.find(f.GetHeuristic, "cublasLtMatmulAlgoGetHeuristic");
  opened.find(f.Matmul, "cublasLtMatmul");
  NSA_RETURN_IF_ERROR(opened.checkFound("cuBLASLt"));
  NSA_RETURN_IF_ERROR(blas->check(f.Create(&blas->handle), "cublasLtCreate"));
  blas->name = "cuBLASLt " + std::to_string(f.GetVersion());
  return blas;
}

Status BlasLt::check(int status, const char *call) const {
  if (status == 0)
    return {};
  return Error{std::string(call) + ": cuBLAS status " + std::to_string(status)};
}

//===----------------------------------------------------------------------===//
// Matmuls
//===----------------------------------------------------------------------===//

static int realType(DataType type) {
  switch (type) {
  case DataType::BF16:
    return kReal16BF;
  case DataType::F16:
    return kReal16F;
  default:
    return kReal32F;
  }
}

/// Matrices of a batch begin `stride` elements one after the other.
int BlasLt::setBatch(void *layout, int32_t batch, int64_t stride) const {
  if (batch == 1)
    return 0;
  const Functions &f = *functions;
  int status = f.LayoutSetAttribute(layout, kLayoutBatch, &batch, sizeof batch);
  return status ? status
                : f.LayoutSetAttribute(layout, kLayoutStride, &stride,
                                       sizeof stride);
}

Result<unsigned> BlasLt::plan(const Matmul &p) {
  const Functions &f = *functions;
  // The destructor frees what a failure leaves.
  Plan &plan = plans.emplace_back();
  plan.product = p;
  int operands = realType(p.operandType), out = realType(p.outType);
  int opA = p.transposeRhs ? kTransposed : kPlain;
  int opB = p.transposeLhs ? kTransposed : kPlain;
  void *preference = nullptr;
  // Rows as the library sees them are the columns that are stored.
  int64_t rhsCols = p.transposeRhs ? p.k : p.n;
  int64_t rhsRows = p.transposeRhs ? p.n : p.k;
  int64_t lhsCols = p.transposeLhs ? p.m : p.k;
  int64_t lhsRows = p.transposeLhs ? p.k : p.m;
  uint64_t bytes = p.workspaceBytes;
  int found = 0;
  for (int status :
       {f.MatmulDescCreate(&plan.desc, kCompute32F, kReal32F),
        f.MatmulDescSetAttribute(plan.desc, kDescTransposeA, &opA, sizeof opA),
        f.MatmulDescSetAttribute(plan.desc, kDescTransposeB, &opB, sizeof opB),
        f.LayoutCreate(&plan.a, operands, rhsCols, rhsRows, rhsCols),
        f.LayoutCreate(&plan.b, operands, lhsCols, lhsRows, lhsCols),
        f.LayoutCreate(&plan.d, out, p.n, p.m, p.n),
        f.PreferenceCreate(&preference),
        f.PreferenceSetAttribute(preference, kPreferenceWorkspace, &bytes,
                                 sizeof bytes),
        setBatch(plan.a, p.batch, p.k * p.n),
        setBatch(plan.b, p.batch, p.m * p.k),
        setBatch(plan.d, p.batch, p.m * p.n)})
    if (Status failed = check(status, "planning a matmul"); !failed) {
      if (preference)
        f.PreferenceDestroy(preference);
      return Error{failed.message()};
    }
  int status = f.GetHeuristic(handle, plan.desc, plan.a, plan.b, plan.d, plan.d,
                              preference, 1, &plan.heuristic, &found);
  f.PreferenceDestroy(preference);
  if (status != 0 || found == 0)
    return Error{"cuBLASLt has no algorithm for a matmul of " +
                 std::to_string(p.m) + "x" + std::to_string(p.k) + " and " +
                 std::to_string(p.k) + "x" + std::to_string(p.n) + " (status " +
                 std::to_string(status) + ")"};
  return unsigned(plans.size() - 1);
}

Status BlasLt::run(unsigned index, const MatmulMemory &memory,
                   Stream stream) const {
  const Plan &plan = plans[index];
  DevicePtr addend = memory.addend ? memory.addend : memory.out;
  return check(
      functions->Matmul(handle, plan.desc, &plan.product.alpha, memory.rhs,
                        plan.a, memory.lhs, plan.b, &plan.product.beta, addend,
                        plan.d, memory.out, plan.d, plan.heuristic.algorithm,
                        memory.workspace, plan.product.workspaceBytes, stream),
      "cublasLtMatmul");
}
