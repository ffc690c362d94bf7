//===- KernelTest.h - compiled kernels against their meaning ----*- C++ -*-===//

#ifndef NSA_TEST_UNIT_TILETOCPU_KERNELTEST_H
#define NSA_TEST_UNIT_TILETOCPU_KERNELTEST_H

#include "dialects/Tile/TileBuilder.h"
#include "mlir/IR/OwningOpRef.h"
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <vector>

namespace nsa::test {

/// A kernel and the data to run it on.
struct KernelCase {
  /// Such as "64x32xf32", or "64x32xf32/96" for rows of 96 elements of which
  /// these are columns.
  std::vector<std::string> inputs, outputs;
  std::function<void(tile::TileBuilder &, llvm::ArrayRef<mlir::Value>)> body;
  std::vector<int32_t> grid = {1, 1, 1};
  /// Elements of some arguments; others are random in [-1, 1), or in -99 .. 99
  /// for i32.
  std::map<unsigned, std::vector<double>> data = {};
  /// Of f32 outputs, relative to the largest element of the tensor.
  double tolerance = 1e-5;
  std::string cpu = "x86-64-v3";
};

/// Memory of an argument, from its first element on.
struct KernelArgument {
  char *data;
  uint64_t bytes;
  bool isOutput;
};

// What differs from target to target, one source for each: RunOnCPU.cpp and
// test/unit/Emulator/RunEmulated.cpp.

/// Adds what the target's lowering needs.
void registerTargetDialects(mlir::DialectRegistry &registry);

/// Compiles the module's only kernel, of the name "kernel", and runs its grid.
/// What goes wrong is a failure of the test.
void runOnTarget(mlir::ModuleOp module, const KernelCase &kernelCase,
                 llvm::ArrayRef<KernelArgument> arguments);

class KernelTest : public testing::Test {
protected:
  KernelTest();

  /// Compiles the kernel, runs it on memory with guard zones, and expects what
  /// the interpreter computes: i32 exactly, bf16 and f16 up to one unit in the
  /// last place, f32 within the tolerance.
  void check(const KernelCase &kernelCase);

  std::mt19937 random{7};

private:
  mlir::MLIRContext context;
};

} // namespace nsa::test

#endif // NSA_TEST_UNIT_TILETOCPU_KERNELTEST_H
