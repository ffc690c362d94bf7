//===- Passes.td - from tile kernels to LLVM ---------------*- tablegen -*-===//

#ifndef NSA_PASSES_TILETOCPU_PASSES_TD
#define NSA_PASSES_TILETOCPU_PASSES_TD

include "mlir/Pass/PassBase.td"

def NSATileToCPU : Pass<"nsa-tile-to-cpu", "::mlir::ModuleOp"> {
  let summary = "Lower tile kernels to loops over short vectors";
  let description = [{
    Replaces every `tile.kernel` by a public function

        void kernel(void *const *args, int64_t begin, int64_t end)

    that runs the programs `begin .. end - 1` of the grid, numbered
    `(z * grid_y + y) * grid_x + x`; `args` are the base pointers of the
    kernel's arguments in order. A tile is a buffer on the stack; buffers whose
    lives do not overlap share memory, and loop-carried and accumulated tiles
    are updated in place. Elementwise operations run as loops over vectors of
    `vector-width` elements; maps, the loads that feed them and the reductions
    and stores that they feed share one loop nest where that keeps the order of
    memory effects. `tile.dot` is a register-blocked micro-kernel. bf16 is
    stored as i16 and rounded by integer arithmetic; f16 is converted by the
    processor.

    The cost of scalar code is estimated. A path that takes more
    than a quarter of the kernel's time is a missed remark, and the function's
    attribute `nsa.performance_lints` names it:

    | name | what |
    |---|---|
    | `scalar-loop` | arithmetic (integer division by a variable) or a transposition |
    | `scalar-access` | a load or store of elements that are no neighbours in memory, or of rows that are no whole vectors |

    The result needs `nsa-expand-math` and upstream conversions to LLVM.
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
  let options = [
    Option<"vectorWidth", "vector-width", "unsigned", /*default=*/"8",
           "Elements of a vector register of f32: 4 for SSE, 8 for AVX, 16 for "
           "AVX-512">];
}

def NSAExpandMath : Pass<"nsa-expand-math"> {
  let summary = "Expand math functions to arithmetic";
  let description = [{
    `math.exp`, `math.exp2`, `math.log` and `math.rsqrt` of f32 scalars and
    vectors become polynomials with an error of about one unit in the last
    place: exp(-inf) = 0, exp of large numbers is inf, NaN stays NaN, and exp is
    0 where it would be subnormal (each such number costs a hundred cycles).
    Further functions use the approximations of the math dialect. What remains
    maps to one instruction (sqrt, fma, abs, floor, ...); anything else that
    would become a call into libm is an error.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::LLVM::LLVMDialect",
                           "::mlir::math::MathDialect",
                           "::mlir::vector::VectorDialect"];
}

#endif // NSA_PASSES_TILETOCPU_PASSES_TD
