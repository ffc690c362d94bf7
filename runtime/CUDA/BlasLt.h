//===- BlasLt.h - cuBLASLt, opened at run time ------------------*- C++ -*-===//

#ifndef NSA_RUNTIME_CUDA_BLASLT_H
#define NSA_RUNTIME_CUDA_BLASLT_H

#include "nsa/Artifact/DataType.h"
#include "runtime/CUDA/Driver.h"

#include <memory>
#include <string>
#include <vector>

namespace nsa::cuda {

/// A dense row-major product, out[m,n] = op(lhs) op(rhs) + beta * out, with
/// fp32 accumulation (never TF32).
struct MatrixProduct {
  int64_t m, n, k;
  bool transposeLhs, transposeRhs;
  DataType operandType, outType;
  float beta;
  DevicePtr lhs, rhs, out;
};

/// cuBLASLt with one workspace. Products are planned at load: the algorithm is
/// the first one that the library proposes for the shape, so that equal runs
/// give equal bits.
class BlasLt {
public:
  /// Opens `library`: a file, or a folder that holds libcublasLt.so.NN, or,
  /// when empty, that name where the system's loader finds it.
  static Result<std::unique_ptr<BlasLt>> open(const Driver &driver,
                                              const std::string &library);
  ~BlasLt();

  /// Plans a product; the result numbers it.
  Result<unsigned> plan(const MatrixProduct &product);
  /// Puts a planned product on the stream.
  Status run(unsigned plan, Stream stream) const;

  /// The file that was opened, with the library's version.
  const std::string &description() const { return name; }
  uint64_t workspaceBytes() const { return kWorkspaceBytes; }

private:
  struct Functions;
  struct Plan;
  static constexpr uint64_t kWorkspaceBytes = 32u << 20;

  BlasLt();
  Status check(int status, const char *call) const;

  const Driver *driver = nullptr;
  std::unique_ptr<Functions> functions;
  void *handle = nullptr;
  DevicePtr workspace = 0;
  std::vector<Plan> plans;
  std::string name;
};

} // namespace nsa::cuda

#endif // NSA_RUNTIME_CUDA_BLASLT_H
