//===- BlasLt.h - cuBLASLt, opened at run time ------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CUDA_BLASLT_H
#define NSA_RUNTIME_CUDA_BLASLT_H

#include "nsa/Artifact/DataType.h"
#include "runtime/CUDA/Driver.h"

#include <memory>
#include <string>
#include <vector>

namespace nsa::cuda {

/// A dense row-major matmul, out[m,n] = alpha * op(lhs) op(rhs) + beta *
/// addend, with fp32 accumulation (never TF32), of `batch` matrices that lie
/// one after the other.
struct Matmul {
  int64_t m, n, k;
  bool transposeLhs, transposeRhs;
  DataType operandType, outType;
  float beta;
  /// Memory for the library.
  uint64_t workspaceBytes;
  float alpha = 1;
  int32_t batch = 1;
};

/// Where the operands of a matmul lie, and memory for the library. Without an
/// `addend` it is `out`.
struct MatmulMemory {
  DevicePtr lhs, rhs, out, workspace, addend = 0;
};

/// cuBLASLt. Matmuls are planned at load: the algorithm is
/// the first one that the library proposes for the shape, so that equal runs
/// give equal bits.
class BlasLt {
public:
  /// Opens `library`: a file, or a folder that holds libcublasLt.so.NN, or,
  /// when empty, that name where the system's loader finds it.
  static Result<std::unique_ptr<BlasLt>> open(const std::string &library);
  ~BlasLt();

  /// Plans a matmul; the result numbers it.
  Result<unsigned> plan(const Matmul &product);
  /// Puts a planned matmul on the stream.
  Status run(unsigned plan, const MatmulMemory &memory, Stream stream) const;

  /// The library's name with its version.
  const std::string &description() const { return name; }

private:
  struct Functions;
  struct Plan;

  BlasLt();
  int setBatch(void *layout, int32_t batch, int64_t stride) const;
  Status check(int status, const char *call) const;

  std::unique_ptr<Functions> functions;
  void *handle = nullptr;
  std::vector<Plan> plans;
  std::string name;
};

} // namespace nsa::cuda

#endif // NSA_RUNTIME_CUDA_BLASLT_H
