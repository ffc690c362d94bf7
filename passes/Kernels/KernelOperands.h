//===- KernelOperands.h - operands of kernels by name -----------*- C++ -*-===//
//
// A struct of values names what a kernel reads. At the launch these are tensors
// of the graph, in the body of the kernel their memory; null is what a kernel
// does without. The struct lists them in the order of the kernel's arguments:
//
//   struct SumOperands {
//     Value parts, table;
//     SmallVector<Value *> slots() { return {&parts, &table}; }
//   };
//
// A kernel that reads what its operation does has the operation's adaptor. One
// of few arguments may name them where its body begins:
//
//   auto [parts, table, sum] = named<3>(args);
//
//===----------------------------------------------------------------------===//

#ifndef NSA_PASSES_KERNELS_KERNELOPERANDS_H
#define NSA_PASSES_KERNELS_KERNELOPERANDS_H

#include "passes/Kernels/LaunchGroup.h"

namespace nsa {

/// All of the values, which are `N`.
template <size_t N>
std::array<mlir::Value, N> named(mlir::ValueRange values) {
  assert(values.size() == N && "a name for each value");
  std::array<mlir::Value, N> names;
  llvm::copy(values, names.begin());
  return names;
}

/// The inputs of a launch.
template <typename T>
llvm::SmallVector<mlir::Value> getInputs(T operands) {
  llvm::SmallVector<mlir::Value> inputs;
  for (mlir::Value *slot : operands.slots())
    if (*slot)
      inputs.push_back(*slot);
  return inputs;
}

/// The same operands in the body of the kernel, whose arguments begin with
/// them.
template <typename T>
T bindOperands(T operands, llvm::ArrayRef<mlir::Value> args) {
  for (mlir::Value *slot : operands.slots())
    if (*slot) {
      *slot = args.front();
      args = args.drop_front();
    }
  return operands;
}

/// A kernel with named operands. `build` is called as build(b, in, out): the
/// operands and the results in memory.
template <typename T, typename BuildT>
LaunchPart makeLaunch(KernelSpec spec, const T &operands,
                      llvm::SmallVector<mlir::Type> results, BuildT build) {
  size_t count = results.size();
  return {std::move(spec), getInputs(operands), std::move(results),
          [=](tile::TileBuilder &b, llvm::ArrayRef<mlir::Value> args) {
            build(b, bindOperands(operands, args), args.take_back(count));
          }};
}

/// Launches it as the only kernel that replaces an operation.
template <typename T, typename BuildT>
llvm::LogicalResult replaceBy(KernelCache &cache,
                              mlir::PatternRewriter &rewriter,
                              mlir::Operation *op, KernelSpec spec,
                              const T &operands, BuildT build) {
  rewriter.replaceOp(
      op, launch(cache, rewriter, op,
                 makeLaunch(std::move(spec), operands,
                            llvm::to_vector(op->getResultTypes()), build)));
  return llvm::success();
}

/// Launches a kernel of the operands of `op`, which `build` gets as the
/// operation's adaptor.
template <typename OpT, typename BuildT>
mlir::ResultRange launchKernel(KernelCache &cache, mlir::OpBuilder &builder,
                               OpT op, const KernelSpec &spec,
                               mlir::TypeRange outputs, BuildT build) {
  size_t count = op->getNumOperands();
  return cache.launch(
      builder, op, spec, op->getOperands(), outputs,
      [&](tile::TileBuilder &b, llvm::ArrayRef<mlir::Value> args) {
        build(b, typename OpT::Adaptor(args.take_front(count), op),
              args.drop_front(count));
      });
}

/// Replaces an operation by such a kernel to its results.
template <typename OpT, typename BuildT>
llvm::LogicalResult replaceByKernel(KernelCache &cache,
                                    mlir::PatternRewriter &rewriter, OpT op,
                                    const KernelSpec &spec, BuildT build) {
  rewriter.replaceOp(
      op, launchKernel(cache, rewriter, op, spec, op->getResultTypes(), build));
  return llvm::success();
}

} // namespace nsa

#endif // NSA_PASSES_KERNELS_KERNELOPERANDS_H
