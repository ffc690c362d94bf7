//===- Passes.td - from tile kernels to NVVM ---------------*- tablegen -*-===//

#ifndef NSA_PASSES_CONVERSION_TILETONVVM_PASSES_TD
#define NSA_PASSES_CONVERSION_TILETONVVM_PASSES_TD

include "mlir/Pass/PassBase.td"

def NSATileToNVVM : Pass<"nsa-tile-to-nvvm", "::mlir::ModuleOp"> {
  let summary = "Lower tile kernels to threads of a CUDA block";
  let description = [{
    Replaces every `tile.kernel` by an `llvm.func` of the same name that is a
    CUDA kernel: one block per program of the grid, one pointer per argument.

    A tile is spread over the threads of the block, element `k * threads + tid`
    (in row-major order) in register `k` of thread `tid`, so that neighbours in
    memory belong to neighbouring threads. Elementwise operations, loads and
    stores work on registers. What needs elements of other threads (products,
    reductions, transposition, rows that are broadcast, top-n, sorting) goes
    through shared memory, between barriers. Control flow depends on scalars
    only, which are the same in all threads, so that barriers may stand inside
    of it. Every sum has a fixed order.

    The function has the attributes `nvvm.kernel`, `nvvm.reqntid` and
    `nsa.shared_bytes`: the dynamic shared memory that a launch has to give it.
    A kernel that needs more than `shared-limit` is an error.

    The result needs `nsa-expand-math` and upstream conversions to LLVM.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::math::MathDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::scf::SCFDialect"];
  let options = [
    Option<"threads", "threads", "unsigned", /*default=*/"0",
           "Threads of a block, a multiple of 32; 0 chooses 128 or 256 by the "
           "largest tile">,
    Option<"sharedLimit", "shared-limit", "uint64_t", /*default=*/"232448",
           "Bytes of shared memory that a block may have">,
  ];
}

#endif // NSA_PASSES_CONVERSION_TILETONVVM_PASSES_TD
