// RUN: nsa-opt %s --nsa-chunk-loss=limit-mib=1 | FileCheck %s
// RUN: nsa-opt %s --nsa-chunk-loss=limit-mib=1 --remarks-filter-missed=nsa-chunk-loss -o /dev/null 2>&1 | FileCheck %s --check-prefix=MISSED
// RUN: nsa-opt %s --nsa-chunk-loss=limit-mib=1 --remarks-filter-passed=nsa-chunk-loss -o /dev/null 2>&1 | FileCheck %s --check-prefix=PASSED
// RUN: nsa-opt %s --nsa-chunk-loss=limit-mib=1 --nsa-fuse | FileCheck %s --check-prefix=FUSED
// RUN: not nsa-opt %s --nsa-chunk-loss=limit-mib=0 2>&1 | FileCheck %s --check-prefix=LIMIT
// LIMIT: error: limit of logits of 0 MiB, expected 1 to 1099511627776

// 600 x 1024 logits and their gradient take 4.7 MiB: five chunks of at most 1
// MiB, of whole blocks of 64 rows.
// CHECK-LABEL: func.func @training
// CHECK: %[[DLOSS:.*]] = nn.fill 1.0
// CHECK-NEXT: %[[COUNT:.*]] = nn.count_targets %arg2
// CHECK-NEXT: %[[X:.*]]:5 = nn.split_rows %arg0 : (tensor<2x300x16xf32>) -> (tensor<128x16xf32>, tensor<128x16xf32>, tensor<128x16xf32>, tensor<128x16xf32>, tensor<88x16xf32>)
// CHECK-NEXT: %[[L0:.*]] = nn.matmul %[[X]]#0, %arg1 : {{.*}} -> tensor<128x1024xf32>
// CHECK-NEXT: %[[S0:.*]], %[[D0:.*]] = nn.cross_entropy_chunk %[[L0]], %arg2, %[[COUNT]], %[[DLOSS]] {first = 0 : i64}
// CHECK-NEXT: %[[DX0:.*]] = nn.matmul %[[D0]], %arg1 {transpose_rhs}
// CHECK-NEXT: %[[DW0:.*]] = nn.matmul %[[X]]#0, %[[D0]] {transpose_lhs}
// CHECK-NEXT: %[[L1:.*]] = nn.matmul %[[X]]#1, %arg1
// CHECK-NEXT: %[[S1:.*]], %[[D1:.*]] = nn.cross_entropy_chunk %[[L1]], %arg2, %[[COUNT]], %[[DLOSS]] {first = 128 : i64}
// CHECK-NEXT: %[[DX1:.*]] = nn.matmul %[[D1]], %arg1 {transpose_rhs}
// CHECK-NEXT: nn.matmul %[[X]]#1, %[[D1]], %[[DW0]] {transpose_lhs}
// CHECK: %[[S4:.*]], %{{.*}} = nn.cross_entropy_chunk {{.*}} {first = 512 : i64}
// CHECK: %[[DW:.*]] = nn.matmul %[[X]]#4
// CHECK-NEXT: %[[LOSS:.*]] = nn.mean_loss %[[COUNT]], %[[S0]], %[[S1]], {{.*}}, %[[S4]] :
// CHECK-NEXT: %[[DX:.*]] = nn.concat_rows %[[DX0]], %[[DX1]], {{.*}} -> tensor<2x300x16xf32>
// CHECK-NEXT: %[[SUM:.*]] = nn.add %arg3, %[[DW]]
// CHECK-NEXT: return %[[LOSS]], %[[DX]], %[[SUM]]
// PASSED: [Passed] Chunks | Category:nsa-chunk-loss | Function=training | {{.*}}Bytes=1048576{{.*}}BytesBefore=4915200{{.*}}Chunks=5

// The sum of all chunks starts from the gradient that is there.
// FUSED-LABEL: func.func @training
// FUSED: nn.matmul {{.*}}, %arg3 {transpose_lhs}
// FUSED-NOT: nn.add
// FUSED: return
func.func @training(%x: tensor<2x300x16xf32>, %w: tensor<16x1024xf32>, %t: tensor<2x300xi32>,
    %g: tensor<16x1024xf32> {nn.name = "grad.w", nn.role = "gradient"})
    -> (tensor<f32>, tensor<2x300x16xf32>, tensor<16x1024xf32> {nn.alias = "grad.w"}) {
  %logits = nn.matmul %x, %w : (tensor<2x300x16xf32>, tensor<16x1024xf32>) -> tensor<2x300x1024xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %t : (tensor<2x300x1024xf32>, tensor<2x300xi32>) -> (tensor<f32>, tensor<2x300xf32>, tensor<f32>)
  %dloss = nn.fill 1.0 : tensor<f32>
  %dlogits = nn.cross_entropy_backward %dloss, %logits, %t, %lse, %count
      : (tensor<f32>, tensor<2x300x1024xf32>, tensor<2x300xi32>, tensor<2x300xf32>, tensor<f32>) -> tensor<2x300x1024xf32>
  %dx = nn.matmul %dlogits, %w {transpose_rhs} : (tensor<2x300x1024xf32>, tensor<16x1024xf32>) -> tensor<2x300x16xf32>
  %dw = nn.matmul %x, %dlogits {transpose_lhs} : (tensor<2x300x16xf32>, tensor<2x300x1024xf32>) -> tensor<16x1024xf32>
  %sum = nn.add %g, %dw : (tensor<16x1024xf32>, tensor<16x1024xf32>) -> tensor<16x1024xf32>
  return %loss, %dx, %sum : tensor<f32>, tensor<2x300x16xf32>, tensor<16x1024xf32>
}

// Bounded logits are bounded chunk by chunk.
// CHECK-LABEL: func.func @softcap
// CHECK: %[[L:.*]] = nn.matmul {{.*}} -> tensor<128x1024xf32>
// CHECK-NEXT: %[[C:.*]] = nn.softcap %[[L]] {cap = 3.000000e+01 : f64}
// CHECK-NEXT: %{{.*}}, %[[DC:.*]] = nn.cross_entropy_chunk %[[C]],
// CHECK-NEXT: %[[D:.*]] = nn.softcap_backward %[[DC]], %[[C]] {cap = 3.000000e+01 : f64}
// CHECK-NEXT: nn.matmul %[[D]], %arg1 {transpose_rhs}
// CHECK-NEXT: nn.matmul %{{.*}}, %[[D]] {transpose_lhs}
// CHECK-NOT: tensor<2x300x1024xf32>
func.func @softcap(%x: tensor<2x300x16xf32>, %w: tensor<16x1024xf32>, %t: tensor<2x300xi32>)
    -> (tensor<f32>, tensor<2x300x16xf32>, tensor<16x1024xf32>) {
  %logits = nn.matmul %x, %w : (tensor<2x300x16xf32>, tensor<16x1024xf32>) -> tensor<2x300x1024xf32>
  %capped = nn.softcap %logits {cap = 30.0 : f64} : (tensor<2x300x1024xf32>) -> tensor<2x300x1024xf32>
  %loss, %lse, %count = nn.cross_entropy %capped, %t : (tensor<2x300x1024xf32>, tensor<2x300xi32>) -> (tensor<f32>, tensor<2x300xf32>, tensor<f32>)
  %dloss = nn.fill 1.0 : tensor<f32>
  %dcapped = nn.cross_entropy_backward %dloss, %capped, %t, %lse, %count
      : (tensor<f32>, tensor<2x300x1024xf32>, tensor<2x300xi32>, tensor<2x300xf32>, tensor<f32>) -> tensor<2x300x1024xf32>
  %dlogits = nn.softcap_backward %dcapped, %capped {cap = 30.0 : f64}
      : (tensor<2x300x1024xf32>, tensor<2x300x1024xf32>) -> tensor<2x300x1024xf32>
  %dx = nn.matmul %dlogits, %w {transpose_rhs} : (tensor<2x300x1024xf32>, tensor<16x1024xf32>) -> tensor<2x300x16xf32>
  %dw = nn.matmul %x, %dlogits {transpose_lhs} : (tensor<2x300x16xf32>, tensor<2x300x1024xf32>) -> tensor<16x1024xf32>
  return %loss, %dx, %dw : tensor<f32>, tensor<2x300x16xf32>, tensor<16x1024xf32>
}

// Without a gradient there are no matmuls but that of the head. The weight may
// lie the other way round. Never more than eight chunks.
// CHECK-LABEL: func.func @loss_alone
// CHECK: nn.split_rows
// CHECK: nn.matmul {{.*}} {transpose_rhs} : {{.*}} -> tensor<640x1024xbf16>
// CHECK: nn.cross_entropy_chunk %{{[^,]*}}, %arg2, %{{[^,]*}} {first = 0 : i64} : {{.*}} -> tensor<640xf32>
// CHECK-NOT: concat
// CHECK: nn.mean_loss
func.func @loss_alone(%x: tensor<5120x16xbf16>, %w: tensor<1024x16xbf16>, %t: tensor<5120xi32>) -> tensor<f32> {
  %logits = nn.matmul %x, %w {transpose_rhs} : (tensor<5120x16xbf16>, tensor<1024x16xbf16>) -> tensor<5120x1024xbf16>
  %loss, %lse, %count = nn.cross_entropy %logits, %t : (tensor<5120x1024xbf16>, tensor<5120xi32>) -> (tensor<f32>, tensor<5120xf32>, tensor<f32>)
  return %loss : tensor<f32>
}

// What backward computes again is the value of forward.
// CHECK-LABEL: func.func @computed_again
// CHECK: %[[Y:.*]] = nn.silu %arg0
// CHECK-NOT: nn.silu
// CHECK: nn.split_rows %[[Y]]
// CHECK-NOT: nn.silu
// CHECK: return
func.func @computed_again(%x: tensor<600x16xf32>, %w: tensor<16x1024xf32>, %t: tensor<600xi32>, %dloss: tensor<f32>)
    -> (tensor<f32>, tensor<16x1024xf32>) {
  %y = nn.silu %x : (tensor<600x16xf32>) -> tensor<600x16xf32>
  %logits = nn.matmul %y, %w : (tensor<600x16xf32>, tensor<16x1024xf32>) -> tensor<600x1024xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %t : (tensor<600x1024xf32>, tensor<600xi32>) -> (tensor<f32>, tensor<600xf32>, tensor<f32>)
  %dlogits = nn.cross_entropy_backward %dloss, %logits, %t, %lse, %count
      : (tensor<f32>, tensor<600x1024xf32>, tensor<600xi32>, tensor<600xf32>, tensor<f32>) -> tensor<600x1024xf32>
  %kept = nn.recompute_barrier %x : (tensor<600x16xf32>) -> tensor<600x16xf32>
  %y1 = nn.silu %kept : (tensor<600x16xf32>) -> tensor<600x16xf32>
  %dw = nn.matmul %y1, %dlogits {transpose_lhs} : (tensor<600x16xf32>, tensor<600x1024xf32>) -> tensor<16x1024xf32>
  return %loss, %dw : tensor<f32>, tensor<16x1024xf32>
}

// CHECK-LABEL: func.func @small
// CHECK-NOT: nn.split_rows
// CHECK: return
// MISSED: [Missed] Chunks | Category:nsa-chunk-loss | Function=small | Reason="the logits take 1024 bytes, within the limit of 1048576"
func.func @small(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>, %t: tensor<8xi32>) -> tensor<f32> {
  %logits = nn.matmul %x, %w : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %t : (tensor<8x32xf32>, tensor<8xi32>) -> (tensor<f32>, tensor<8xf32>, tensor<f32>)
  return %loss : tensor<f32>
}

// CHECK-LABEL: func.func @no_head
// CHECK-NOT: nn.split_rows
// CHECK: return
// MISSED: Function=no_head | Reason="the logits are not a matmul with a weight"
func.func @no_head(%logits: tensor<600x1024xf32>, %t: tensor<600xi32>) -> tensor<f32> {
  %loss, %lse, %count = nn.cross_entropy %logits, %t : (tensor<600x1024xf32>, tensor<600xi32>) -> (tensor<f32>, tensor<600xf32>, tensor<f32>)
  return %loss : tensor<f32>
}

// CHECK-LABEL: func.func @logits_read
// CHECK-NOT: nn.split_rows
// CHECK: return
// MISSED: Function=logits_read | Reason="something else reads the logits"
func.func @logits_read(%x: tensor<600x16xf32>, %w: tensor<16x1024xf32>, %t: tensor<600xi32>) -> (tensor<f32>, tensor<600x1024xf32>) {
  %logits = nn.matmul %x, %w : (tensor<600x16xf32>, tensor<16x1024xf32>) -> tensor<600x1024xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %t : (tensor<600x1024xf32>, tensor<600xi32>) -> (tensor<f32>, tensor<600xf32>, tensor<f32>)
  return %loss, %logits : tensor<f32>, tensor<600x1024xf32>
}

// CHECK-LABEL: func.func @statistics_read
// CHECK-NOT: nn.split_rows
// CHECK: return
// MISSED: Function=statistics_read | Reason="something else reads the statistics of the loss"
func.func @statistics_read(%x: tensor<600x16xf32>, %w: tensor<16x1024xf32>, %t: tensor<600xi32>) -> (tensor<f32>, tensor<600xf32>) {
  %logits = nn.matmul %x, %w : (tensor<600x16xf32>, tensor<16x1024xf32>) -> tensor<600x1024xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %t : (tensor<600x1024xf32>, tensor<600xi32>) -> (tensor<f32>, tensor<600xf32>, tensor<f32>)
  return %loss, %lse : tensor<f32>, tensor<600xf32>
}

// CHECK-LABEL: func.func @gradient_read
// CHECK-NOT: nn.split_rows
// CHECK: return
// MISSED: Function=gradient_read | Reason="something else than a matmul reads the gradient of the logits"
func.func @gradient_read(%x: tensor<600x16xf32>, %w: tensor<16x1024xf32>, %t: tensor<600xi32>, %dloss: tensor<f32>)
    -> (tensor<f32>, tensor<600x1024xf32>) {
  %logits = nn.matmul %x, %w : (tensor<600x16xf32>, tensor<16x1024xf32>) -> tensor<600x1024xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %t : (tensor<600x1024xf32>, tensor<600xi32>) -> (tensor<f32>, tensor<600xf32>, tensor<f32>)
  %dlogits = nn.cross_entropy_backward %dloss, %logits, %t, %lse, %count
      : (tensor<f32>, tensor<600x1024xf32>, tensor<600xi32>, tensor<600xf32>, tensor<f32>) -> tensor<600x1024xf32>
  return %loss, %dlogits : tensor<f32>, tensor<600x1024xf32>
}

// CHECK-LABEL: func.func @loss_of_loss
// CHECK-NOT: nn.split_rows
// CHECK: return
// MISSED: Function=loss_of_loss | Reason="the gradient of the loss depends on the loss"
func.func @loss_of_loss(%x: tensor<600x16xf32>, %w: tensor<16x1024xf32>, %t: tensor<600xi32>) -> tensor<600x16xf32> {
  %logits = nn.matmul %x, %w : (tensor<600x16xf32>, tensor<16x1024xf32>) -> tensor<600x1024xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %t : (tensor<600x1024xf32>, tensor<600xi32>) -> (tensor<f32>, tensor<600xf32>, tensor<f32>)
  %dloss = nn.silu %loss : (tensor<f32>) -> tensor<f32>
  %dlogits = nn.cross_entropy_backward %dloss, %logits, %t, %lse, %count
      : (tensor<f32>, tensor<600x1024xf32>, tensor<600xi32>, tensor<600xf32>, tensor<f32>) -> tensor<600x1024xf32>
  %dx = nn.matmul %dlogits, %w {transpose_rhs} : (tensor<600x1024xf32>, tensor<16x1024xf32>) -> tensor<600x16xf32>
  return %dx : tensor<600x16xf32>
}

// CHECK-LABEL: func.func @other_factors
// CHECK-NOT: nn.split_rows
// CHECK: return
// MISSED: Function=other_factors | Reason="a matmul {{.*}}does not read the head's {{input|weight}}"
func.func @other_factors(%x: tensor<600x16xf32>, %w: tensor<16x1024xf32>, %t: tensor<600xi32>, %dloss: tensor<f32>,
    %y: tensor<600x16xf32>, %v: tensor<16x1024xf32>) -> (tensor<16x1024xf32>, tensor<600x16xf32>) {
  %logits = nn.matmul %x, %w : (tensor<600x16xf32>, tensor<16x1024xf32>) -> tensor<600x1024xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %t : (tensor<600x1024xf32>, tensor<600xi32>) -> (tensor<f32>, tensor<600xf32>, tensor<f32>)
  %dlogits = nn.cross_entropy_backward %dloss, %logits, %t, %lse, %count
      : (tensor<f32>, tensor<600x1024xf32>, tensor<600xi32>, tensor<600xf32>, tensor<f32>) -> tensor<600x1024xf32>
  %dw = nn.matmul %y, %dlogits {transpose_lhs} : (tensor<600x16xf32>, tensor<600x1024xf32>) -> tensor<16x1024xf32>
  %dx = nn.matmul %dlogits, %v {transpose_rhs} : (tensor<600x1024xf32>, tensor<16x1024xf32>) -> tensor<600x16xf32>
  return %dw, %dx : tensor<16x1024xf32>, tensor<600x16xf32>
}

// CHECK-LABEL: func.func @added
// CHECK-NOT: nn.split_rows
// CHECK: return
// MISSED: Function=added | Reason="a matmul of the gradient of the logits is added to something"
func.func @added(%x: tensor<600x16xf32>, %w: tensor<16x1024xf32>, %t: tensor<600xi32>, %dloss: tensor<f32>) -> tensor<600x16xf32> {
  %logits = nn.matmul %x, %w : (tensor<600x16xf32>, tensor<16x1024xf32>) -> tensor<600x1024xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %t : (tensor<600x1024xf32>, tensor<600xi32>) -> (tensor<f32>, tensor<600xf32>, tensor<f32>)
  %dlogits = nn.cross_entropy_backward %dloss, %logits, %t, %lse, %count
      : (tensor<f32>, tensor<600x1024xf32>, tensor<600xi32>, tensor<600xf32>, tensor<f32>) -> tensor<600x1024xf32>
  %dx = nn.matmul %dlogits, %w, %x {transpose_rhs} : (tensor<600x1024xf32>, tensor<16x1024xf32>, tensor<600x16xf32>) -> tensor<600x16xf32>
  return %dx : tensor<600x16xf32>
}

// CHECK-LABEL: func.func @other_targets
// CHECK-NOT: nn.split_rows
// CHECK: return
// MISSED: Function=other_targets | Reason="the gradient of the logits is not that of the loss"
func.func @other_targets(%x: tensor<600x16xf32>, %w: tensor<16x1024xf32>, %t: tensor<600xi32>, %u: tensor<600xi32>, %dloss: tensor<f32>) -> (tensor<f32>, tensor<600x16xf32>) {
  %logits = nn.matmul %x, %w : (tensor<600x16xf32>, tensor<16x1024xf32>) -> tensor<600x1024xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %t : (tensor<600x1024xf32>, tensor<600xi32>) -> (tensor<f32>, tensor<600xf32>, tensor<f32>)
  %dlogits = nn.cross_entropy_backward %dloss, %logits, %u, %lse, %count
      : (tensor<f32>, tensor<600x1024xf32>, tensor<600xi32>, tensor<600xf32>, tensor<f32>) -> tensor<600x1024xf32>
  %dx = nn.matmul %dlogits, %w {transpose_rhs} : (tensor<600x1024xf32>, tensor<16x1024xf32>) -> tensor<600x16xf32>
  return %loss, %dx : tensor<f32>, tensor<600x16xf32>
}

// CHECK-LABEL: func.func @other_count
// CHECK-NOT: nn.split_rows
// CHECK: return
// MISSED: Function=other_count | Reason="the gradient of the logits is not that of the loss"
func.func @other_count(%x: tensor<600x16xf32>, %w: tensor<16x1024xf32>, %t: tensor<600xi32>, %count: tensor<f32>, %dloss: tensor<f32>) -> (tensor<f32>, tensor<600x16xf32>) {
  %logits = nn.matmul %x, %w : (tensor<600x16xf32>, tensor<16x1024xf32>) -> tensor<600x1024xf32>
  %loss, %lse, %own = nn.cross_entropy %logits, %t : (tensor<600x1024xf32>, tensor<600xi32>) -> (tensor<f32>, tensor<600xf32>, tensor<f32>)
  %dlogits = nn.cross_entropy_backward %dloss, %logits, %t, %lse, %count
      : (tensor<f32>, tensor<600x1024xf32>, tensor<600xi32>, tensor<600xf32>, tensor<f32>) -> tensor<600x1024xf32>
  %dx = nn.matmul %dlogits, %w {transpose_rhs} : (tensor<600x1024xf32>, tensor<16x1024xf32>) -> tensor<600x16xf32>
  return %loss, %dx : tensor<f32>, tensor<600x16xf32>
}

// A loss over all targets is divided by their number; those that count are
// counted apart.
// CHECK-LABEL: func.func @over_all
// CHECK: %[[DLOSS:.*]] = nn.fill 1.0
// CHECK-NEXT: %[[FRACTION:.*]] = nn.count_targets %arg2 {over_all}
// CHECK-NEXT: %[[ALL:.*]] = nn.fill 6.0{{.*}}e+02
// CHECK: %[[S0:.*]], %{{.*}} = nn.cross_entropy_chunk {{.*}}, %arg2, %[[ALL]], %[[DLOSS]] {first = 0 : i64}
// CHECK: %[[LOSS:.*]] = nn.mean_loss %[[ALL]], %[[S0]],
// CHECK: return %[[LOSS]], %[[FRACTION]],
func.func @over_all(%x: tensor<600x16xf32>, %w: tensor<16x1024xf32>, %t: tensor<600xi32>)
    -> (tensor<f32>, tensor<f32>, tensor<16x1024xf32>) {
  %logits = nn.matmul %x, %w : (tensor<600x16xf32>, tensor<16x1024xf32>) -> tensor<600x1024xf32>
  %loss, %lse, %count = nn.cross_entropy %logits, %t {over_all}
      : (tensor<600x1024xf32>, tensor<600xi32>) -> (tensor<f32>, tensor<600xf32>, tensor<f32>)
  %dloss = nn.fill 1.0 : tensor<f32>
  %all = nn.fill 600.0 : tensor<f32>
  %dlogits = nn.cross_entropy_backward %dloss, %logits, %t, %lse, %all
      : (tensor<f32>, tensor<600x1024xf32>, tensor<600xi32>, tensor<600xf32>, tensor<f32>) -> tensor<600x1024xf32>
  %dw = nn.matmul %x, %dlogits {transpose_lhs} : (tensor<600x16xf32>, tensor<600x1024xf32>) -> tensor<16x1024xf32>
  return %loss, %count, %dw : tensor<f32>, tensor<f32>, tensor<16x1024xf32>
}
