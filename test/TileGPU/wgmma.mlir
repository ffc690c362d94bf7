// RUN: nsa-opt %s --tile-gpu-assign-layouts=wgmma --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory=wgmma --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm=wgmma --convert-tile-gpu-to-nvvm --canonicalize --cse --split-input-file | FileCheck %s
// RUN: nsa-opt %s --tile-gpu-assign-layouts --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory --tile-gpu-pipeline --tile-gpu-warp-specialize --tile-gpu-insert-barriers --nsa-tile-to-nvvm --convert-tile-gpu-to-nvvm --split-input-file | FileCheck %s --check-prefix=WITHOUT
// RUN: nsa-opt %s --tile-gpu-assign-layouts=wgmma --tile-gpu-promote-to-shared --tile-gpu-allocate-shared-memory=wgmma --tile-gpu-pipeline --tile-gpu-warp-specialize --nsa-tile-to-nvvm=wgmma --split-input-file --remarks-filter="tile-gpu-assign-layouts" -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARKS

// WITHOUT-NOT: wgmma

!q = !tile.tile<64x32xbf16, #tile.shared>
!k = !tile.tile<16x32xbf16, #tile.shared>
!s = !tile.tile<64x16xf32, #tile.mma<warps = 4>>
!row = !tile.tile<64x1xi32, #tile.rematerialized>
!key = !tile.tile<16x1xi32, #tile.rematerialized>
!col = !tile.tile<1x32xi32, #tile.rematerialized>
!sum = !tile.tile<1x16xi32, #tile.rematerialized>

// Both from shared memory, rows of 64 bytes: the swizzle of 64 bytes (2 in the
// upper bits), 8 rows after 512 bytes (32 units of 16). Two steps of 16
// elements; the first one adds to nothing. Writes are made visible before the
// barrier.
// CHECK-LABEL: llvm.func @shared(
// CHECK-DAG: %[[HIGH:.*]] = arith.constant -9223371899415822336 : i64
// CHECK: nvvm.cp.async.wait.group
// CHECK-NEXT: nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = #nvvm.shared_space<cta>}
// CHECK-NEXT: nvvm.barrier
// CHECK: nvvm.wgmma.fence.aligned
// CHECK: llvm.inline_asm has_side_effects "{ .reg .pred p; setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {$0, $1, $2, $3, $4, $5, $6, $7}, $8, $9, p, 1, 1, 0, 0; }", "=f,=f,=f,=f,=f,=f,=f,=f,l,l" %
// CHECK: llvm.inline_asm has_side_effects "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {{.*}}, 1, 1, 0, 0; }", "=f,=f,=f,=f,=f,=f,=f,=f,l,l,0,1,2,3,4,5,6,7" %
// CHECK-NOT: mma_async
// CHECK: nvvm.wgmma.commit.group.sync.aligned
// CHECK: llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 0;", "=f,=f,=f,=f,=f,=f,=f,=f,0,1,2,3,4,5,6,7"
// CHECK: llvm.store
tile.kernel private @shared(%q: memref<64x32xbf16>, %k: memref<16x32xbf16>, %y: memref<64x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !row
  %n = tile.range %c0 : !key
  %c = tile.range %c0 : !col
  %m = tile.range %c0 : !sum
  %qt = tile.load %q[%r, %c] : memref<64x32xbf16>, (!row, !col) -> !q
  %kt = tile.load %k[%n, %c] : memref<16x32xbf16>, (!key, !col) -> !k
  %acc = tile.splat %zero : !s
  %d = tile.dot %qt, %kt, %acc {transpose_b} : !q, !k, !s
  tile.store %d, %y[%r, %m] : !s, memref<64x16xf32>, (!row, !sum)
  tile.return
}

// -----

!w = !tile.tile<128x16xf32, #tile.mma<warps = 8>>
!a = !tile.tile<128x16xf16, #tile.mma<warps = 8>>
!v = !tile.tile<16x64xf16, #tile.shared>
!o = !tile.tile<128x64xf32, #tile.mma<warps = 8>>
!row = !tile.tile<128x1xi32, #tile.rematerialized>
!key = !tile.tile<16x1xi32, #tile.rematerialized>
!sum = !tile.tile<1x16xi32, #tile.rematerialized>
!col = !tile.tile<1x64xi32, #tile.rematerialized>

// a in registers, b with its columns in sequence: the swizzle of 128 bytes (1),
// 8 rows after 1024 bytes. What is added to, and a, pass through the fence.
// CHECK-LABEL: llvm.func @registers(
// CHECK-DAG: arith.constant 4611686293305294848 : i64
// CHECK: llvm.inline_asm has_side_effects "wgmma.fence.sync.aligned;", "=f,{{.*}}=f,=r,=r,=r,=r,0,1,
// CHECK: llvm.inline_asm has_side_effects "{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {$0, {{.*}}, $31}, {$32, $33, $34, $35}, $36, p, 1, 1, 1; }"
// CHECK-SAME: r,r,r,r,l,0,1,
// CHECK: nvvm.wgmma.commit.group.sync.aligned
// CHECK: "wgmma.wait_group.sync.aligned 0;"
tile.kernel private @registers(%a: memref<128x16xf32>, %v: memref<16x64xf16>, %y: memref<128x64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %r = tile.range %c0 : !row
  %k = tile.range %c0 : !key
  %m = tile.range %c0 : !sum
  %c = tile.range %c0 : !col
  %wide = tile.load %a[%r, %m] : memref<128x16xf32>, (!row, !sum) -> !w
  %at = tile.map (%wide : !w) -> !a {
  ^bb0(%x: f32):
    %h = arith.truncf %x : f32 to f16
    tile.yield %h : f16
  }
  %vt = tile.load %v[%k, %c] : memref<16x64xf16>, (!key, !col) -> !v
  %acc = tile.load %y[%r, %c] : memref<128x64xf32>, (!row, !col) -> !o
  %d = tile.dot %at, %vt, %acc : !a, !v, !o
  tile.store %d, %y[%r, %c] : !o, memref<128x64xf32>, (!row, !col)
  tile.return
}

// -----

!a = !tile.tile<16x128xbf16, #tile.shared>
!v = !tile.tile<16x16xbf16, #tile.shared>
!o = !tile.tile<128x16xf32, #tile.mma<warps = 8>>
!row = !tile.tile<128x1xi32, #tile.rematerialized>
!key = !tile.tile<16x1xi32, #tile.rematerialized>
!along = !tile.tile<1x128xi32, #tile.rematerialized>
!col = !tile.tile<1x16xi32, #tile.rematerialized>

// A transposed a in two swizzle atom columns of 128 bytes, one for each warpgroup, whose
// number is the same in all lanes; b in rows of 32 bytes (3), 8 after 256 bytes.
// CHECK-LABEL: llvm.func @transposed(
// CHECK-DAG: arith.constant 4611686293305294848 : i64
// CHECK-DAG: arith.constant -4611685949707911168 : i64
// CHECK: nvvm.shfl.sync idx
// CHECK: m64n16k16.f32.bf16.bf16 {{.*}}, $8, $9, p, 1, 1, 1, 1; }"
tile.kernel private @transposed(%a: memref<16x128xbf16>, %v: memref<16x16xbf16>, %y: memref<128x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !row
  %k = tile.range %c0 : !key
  %n = tile.range %c0 : !along
  %c = tile.range %c0 : !col
  %at = tile.load %a[%k, %n] : memref<16x128xbf16>, (!key, !along) -> !a
  %vt = tile.load %v[%k, %c] : memref<16x16xbf16>, (!key, !col) -> !v
  %acc = tile.splat %zero : !o
  %d = tile.dot %at, %vt, %acc {transpose_a} : !a, !v, !o
  tile.store %d, %y[%r, %c] : !o, memref<128x16xf32>, (!row, !col)
  tile.return
}

// -----

!q = !tile.tile<64x16xbf16, #tile.shared>
!s = !tile.tile<64x64xf32, #tile.mma<warps = 4>>
!p = !tile.tile<64x64xbf16, #tile.mma<warps = 4>>
!row = !tile.tile<64x1xi32, #tile.rematerialized>
!col = !tile.tile<1x16xi32, #tile.rematerialized>
!sum = !tile.tile<1x64xi32, #tile.rematerialized>

// Two dots at once: the first one is waited for alone.
// CHECK-LABEL: llvm.func @two(
// CHECK: wgmma.mma_async
// CHECK: nvvm.wgmma.commit.group.sync.aligned
// CHECK-NOT: wait_group
// CHECK: wgmma.mma_async
// CHECK: nvvm.wgmma.commit.group.sync.aligned
// CHECK: "wgmma.wait_group.sync.aligned 1;"
// CHECK: nvvm.convert.f32x2.to.bf16x2
// CHECK: "wgmma.wait_group.sync.aligned 0;"
tile.kernel private @two(%q: memref<64x16xbf16>, %k: memref<64x16xbf16>, %y: memref<64x64xbf16>, %z: memref<64x64xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 2 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !row
  %c = tile.range %c0 : !col
  %m = tile.range %c0 : !sum
  %qt = tile.load %q[%r, %c] : memref<64x16xbf16>, (!row, !col) -> !q
  %kt = tile.load %k[%r, %c] : memref<64x16xbf16>, (!row, !col) -> !q
  %acc = tile.splat %zero : !s
  %d = tile.dot %qt, %kt, %acc {transpose_b} : !q, !q, !s
  %e = tile.dot %kt, %qt, %acc {transpose_b} : !q, !q, !s
  %h = tile.map (%d : !s) -> !p {
  ^bb0(%x: f32):
    %half = arith.truncf %x : f32 to bf16
    tile.yield %half : bf16
  }
  tile.store %h, %y[%r, %m] : !p, memref<64x64xbf16>, (!row, !sum)
  tile.store %e, %z[%r, %m] : !s, memref<64x64xf32>, (!row, !sum)
  tile.return
}

// -----

!a = !tile.tile<64x16xbf16, #tile.mma<warps = 4>>
!v = !tile.tile<16x24xbf16, #tile.shared>
!o = !tile.tile<64x24xf32, #tile.mma<warps = 4>>
!row = !tile.tile<64x1xi32, #tile.rematerialized>
!key = !tile.tile<16x1xi32, #tile.rematerialized>
!sum = !tile.tile<1x16xi32, #tile.rematerialized>
!col = !tile.tile<1x24xi32, #tile.rematerialized>

// CHECK-LABEL: llvm.func @swizzle_atoms(
// CHECK: nvvm.mma.sync
// REMARKS: Function=swizzle_atoms{{.*}}not on warpgroups: its 24 columns end inside a swizzle atom of 32
tile.kernel private @swizzle_atoms(%a: memref<64x16xbf16>, %v: memref<16x24xbf16>, %y: memref<64x24xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !row
  %k = tile.range %c0 : !key
  %m = tile.range %c0 : !sum
  %c = tile.range %c0 : !col
  %at = tile.load %a[%r, %m] : memref<64x16xbf16>, (!row, !sum) -> !a
  %vt = tile.load %v[%k, %c] : memref<16x24xbf16>, (!key, !col) -> !v
  %acc = tile.splat %zero : !o
  %d = tile.dot %at, %vt, %acc : !a, !v, !o
  tile.store %d, %y[%r, %c] : !o, memref<64x24xf32>, (!row, !col)
  tile.return
}

// -----

!a = !tile.tile<48x16xbf16, #tile.mma<warps = 3>>
!v = !tile.tile<16x16xbf16, #tile.shared>
!o = !tile.tile<48x16xf32, #tile.mma<warps = 3>>
!row = !tile.tile<48x1xi32, #tile.rematerialized>
!key = !tile.tile<16x1xi32, #tile.rematerialized>
!col = !tile.tile<1x16xi32, #tile.rematerialized>

// REMARKS: Function=three{{.*}}not on warpgroups: its 3 warps are no warpgroups
tile.kernel private @three(%a: memref<48x16xbf16>, %v: memref<16x16xbf16>, %y: memref<48x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !row
  %k = tile.range %c0 : !key
  %c = tile.range %c0 : !col
  %at = tile.load %a[%r, %c] : memref<48x16xbf16>, (!row, !col) -> !a
  %vt = tile.load %v[%k, %c] : memref<16x16xbf16>, (!key, !col) -> !v
  %acc = tile.splat %zero : !o
  %d = tile.dot %at, %vt, %acc : !a, !v, !o
  tile.store %d, %y[%r, %c] : !o, memref<48x16xf32>, (!row, !col)
  tile.return
}

// -----

!q = !tile.tile<64x32xbf16, #tile.mma<warps = 4>>
!k = !tile.tile<16x32xbf16, #tile.shared>
!s = !tile.tile<64x16xf32, #tile.mma<warps = 4>>
!row = !tile.tile<64x1xi32, #tile.rematerialized>
!key = !tile.tile<16x1xi32, #tile.rematerialized>
!col = !tile.tile<1x32xi32, #tile.rematerialized>
!sum = !tile.tile<1x16xi32, #tile.rematerialized>

// An operand a that all iterations multiply with: ptxas would give its registers
// away. It stays in shared memory.
// CHECK-LABEL: llvm.func @invariant(
// CHECK: scf.for
// CHECK: wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {$0, $1, $2, $3, $4, $5, $6, $7}, $8, $9, p
tile.kernel private @invariant(%q: memref<64x32xbf16>, %k: memref<160x32xbf16>, %y: memref<64x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c16 = arith.constant 16 : i32
  %c160 = arith.constant 160 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !row
  %c = tile.range %c0 : !col
  %m = tile.range %c0 : !sum
  %qt = tile.load %q[%r, %c] : memref<64x32xbf16>, (!row, !col) -> !q
  %init = tile.splat %zero : !s
  %d = scf.for %i = %c0 to %c160 step %c16 iter_args(%acc = %init) -> (!s) : i32 {
    %n = tile.range %i : !key
    %kt = tile.load %k[%n, %c] : memref<160x32xbf16>, (!key, !col) -> !k
    %next = tile.dot %qt, %kt, %acc {transpose_b} : !q, !k, !s
    scf.yield %next : !s
  }
  tile.store %d, %y[%r, %m] : !s, memref<64x16xf32>, (!row, !sum)
  tile.return
}

// -----

!q = !tile.tile<64x32xbf16, #tile.mma<warps = 4>>
!k = !tile.tile<16x32xbf16, #tile.shared>
!s = !tile.tile<64x16xf32, #tile.mma<warps = 4>>
!w = !tile.tile<64x32xf32, #tile.mma<warps = 4>>
!row = !tile.tile<64x1xi32, #tile.rematerialized>
!key = !tile.tile<16x1xi32, #tile.rematerialized>
!col = !tile.tile<1x32xi32, #tile.rematerialized>
!sum = !tile.tile<1x16xi32, #tile.rematerialized>

// One that is computed has to be in registers: single warps multiply.
// CHECK-LABEL: llvm.func @computed(
// CHECK-NOT: wgmma.mma_async
// REMARKS: not on warpgroups: its operand a stays in registers for all iterations
tile.kernel private @computed(%q: memref<64x32xf32>, %k: memref<160x32xbf16>, %y: memref<64x16xf32>)
    attributes {grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32
  %c16 = arith.constant 16 : i32
  %c160 = arith.constant 160 : i32
  %zero = arith.constant 0.0 : f32
  %r = tile.range %c0 : !row
  %c = tile.range %c0 : !col
  %m = tile.range %c0 : !sum
  %wide = tile.load %q[%r, %c] : memref<64x32xf32>, (!row, !col) -> !w
  %qt = tile.map (%wide : !w) -> !q {
  ^bb0(%x: f32):
    %h = arith.truncf %x : f32 to bf16
    tile.yield %h : bf16
  }
  %init = tile.splat %zero : !s
  %d = scf.for %i = %c0 to %c160 step %c16 iter_args(%acc = %init) -> (!s) : i32 {
    %n = tile.range %i : !key
    %kt = tile.load %k[%n, %c] : memref<160x32xbf16>, (!key, !col) -> !k
    %next = tile.dot %qt, %kt, %acc {transpose_b} : !q, !k, !s
    scf.yield %next : !s
  }
  tile.store %d, %y[%r, %m] : !s, memref<64x16xf32>, (!row, !sum)
  tile.return
}
