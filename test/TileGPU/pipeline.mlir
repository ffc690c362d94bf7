// RUN: nsa-opt %s --nsa-tile-to-nvvm-llvm | FileCheck %s
// RUN: nsa-opt %s --nsa-phase-layout=chip=sm_80 --nsa-phase-nvvm=chip=sm_80 --nsa-phase-ptx | FileCheck %s --check-prefix=BINARY
// RUN: not nsa-opt %s --nsa-phase-nvvm=chip=sm_70 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: unknown chip 'sm_70'
// RUN: nsa-opt %s --nsa-outline-kernels=chip=sm_86 | FileCheck %s --check-prefix=OUTLINED

// Nothing is left but the LLVM and NVVM dialects; functions are arithmetic.
// CHECK: llvm.mlir.global external @nsa_shared_memory
// CHECK-NOT: {{arith|math|scf|cf}}.
// CHECK-LABEL: llvm.func @exponential(
// CHECK-NOT: {{arith|math|scf|cf}}.
// CHECK: llvm.return

// OUTLINED: rt.kernel @exponential
// OUTLINED: gpu.module @device [#nvvm.target<chip = "sm_86">] {
// OUTLINED-NEXT: tile.kernel {{.*}}@exponential

// BINARY: rt.binary @kernels format "ptx" cpu "sm_80" size
// BINARY: rt.kernel @exponential
// BINARY-SAME: shared_bytes = 0 : i64
// BINARY-SAME: threads = 32 : i64
tile.kernel private @exponential(%x: memref<64xbf16>, %y: memref<64xbf16>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %i = tile.range %c0 : !tile.tile<1x64xi32>
  %v = tile.load %x[%i] : memref<64xbf16>, (!tile.tile<1x64xi32>) -> !tile.tile<1x64xbf16>
  %w = tile.map (%v : !tile.tile<1x64xbf16>) -> !tile.tile<1x64xbf16> {
  ^bb0(%e: bf16):
    %f = arith.extf %e : bf16 to f32
    %s = math.exp %f : f32
    %t = arith.truncf %s : f32 to bf16
    tile.yield %t : bf16
  }
  tile.store %w, %y[%i] : !tile.tile<1x64xbf16>, memref<64xbf16>, (!tile.tile<1x64xi32>)
  tile.return
}
