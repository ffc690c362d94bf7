// RUN: nsa-opt %s --verify-roundtrip | FileCheck %s

// CHECK-LABEL: func.func @embedding
func.func @embedding(%table: tensor<256x32xbf16>, %ids: tensor<2x64xi32>) {
  // CHECK: %[[Y:.*]] = nn.embedding %{{.*}}, %{{.*}} : (tensor<256x32xbf16>, tensor<2x64xi32>) -> tensor<2x64x32xbf16>
  %y = nn.embedding %table, %ids : (tensor<256x32xbf16>, tensor<2x64xi32>) -> tensor<2x64x32xbf16>
  // CHECK: nn.embedding_backward %[[Y]], %{{.*}} {vocab = 256 : i64} : {{.*}} -> tensor<256x32xf32>
  %dtable = nn.embedding_backward %y, %ids {vocab = 256 : i64}
      : (tensor<2x64x32xbf16>, tensor<2x64xi32>) -> tensor<256x32xf32>
  return
}

// CHECK-LABEL: func.func @matmul
func.func @matmul(%x: tensor<2x64x32xbf16>, %w: tensor<32x48xbf16>) {
  // CHECK: %[[Y:.*]] = nn.matmul %{{.*}}, %{{.*}} : {{.*}} -> tensor<2x64x48xbf16>
  %y = nn.matmul %x, %w : (tensor<2x64x32xbf16>, tensor<32x48xbf16>) -> tensor<2x64x48xbf16>
  // CHECK: nn.matmul %[[Y]], %{{.*}} {transpose_rhs} : {{.*}} -> tensor<2x64x32xbf16>
  %dx = nn.matmul %y, %w {transpose_rhs} : (tensor<2x64x48xbf16>, tensor<32x48xbf16>) -> tensor<2x64x32xbf16>
  // CHECK: nn.matmul %{{.*}}, %[[Y]] {result_type = f32, transpose_lhs} : {{.*}} -> tensor<32x48xf32>
  %dw = nn.matmul %x, %y {transpose_lhs, result_type = f32}
      : (tensor<2x64x32xbf16>, tensor<2x64x48xbf16>) -> tensor<32x48xf32>
  return
}

// CHECK-LABEL: func.func @rms_norm
func.func @rms_norm(%x: tensor<2x64x32xbf16>, %weight: tensor<32xf32>) {
  // CHECK: %[[Y:.*]], %[[RSTD:.*]] = nn.rms_norm %[[X:.*]], %[[W:.*]] {eps = 1.000000e-05 : f64} : {{.*}} -> (tensor<2x64x32xbf16>, tensor<2x64xf32>)
  %y, %rstd = nn.rms_norm %x, %weight {eps = 1.0e-5 : f64}
      : (tensor<2x64x32xbf16>, tensor<32xf32>) -> (tensor<2x64x32xbf16>, tensor<2x64xf32>)
  // CHECK: %dx, %dweight = nn.rms_norm_backward %[[Y]], %[[X]], %[[W]], %[[RSTD]]
  %dx, %dw = nn.rms_norm_backward %y, %x, %weight, %rstd
      : (tensor<2x64x32xbf16>, tensor<2x64x32xbf16>, tensor<32xf32>, tensor<2x64xf32>)
      -> (tensor<2x64x32xbf16>, tensor<32xf32>)
  return
}

// CHECK-LABEL: func.func @rotary
func.func @rotary(%x: tensor<1x15x2x16xf32>, %none: tensor<1x0x2x16xf32>, %table: tensor<57x8x2xf32>) {
  // The last row of the table is the position of the last row.
  // CHECK: nn.rotary %{{.*}}, %{{.*}} {stride = 4 : i64}
  %y = nn.rotary %x, %table {stride = 4 : i64} : (tensor<1x15x2x16xf32>, tensor<57x8x2xf32>) -> tensor<1x15x2x16xf32>
  // CHECK: nn.rotary %{{.*}}, %{{.*}} {inverse} :
  %z = nn.rotary %y, %table {inverse} : (tensor<1x15x2x16xf32>, tensor<57x8x2xf32>) -> tensor<1x15x2x16xf32>
  // CHECK: nn.rotary %{{.*}}, %{{.*}} : (tensor<1x0x2x16xf32>
  %e = nn.rotary %none, %table : (tensor<1x0x2x16xf32>, tensor<57x8x2xf32>) -> tensor<1x0x2x16xf32>
  return
}

// CHECK-LABEL: func.func @heads
func.func @heads(%x: tensor<1x64x48xf32>) {
  // CHECK: %[[H:.*]] = nn.split_heads %{{.*}} {heads = 4 : i64} : (tensor<1x64x48xf32>) -> tensor<1x64x4x12xf32>
  %y = nn.split_heads %x {heads = 4 : i64} : (tensor<1x64x48xf32>) -> tensor<1x64x4x12xf32>
  // CHECK: nn.merge_heads %[[H]] : (tensor<1x64x4x12xf32>) -> tensor<1x64x48xf32>
  %z = nn.merge_heads %y : (tensor<1x64x4x12xf32>) -> tensor<1x64x48xf32>
  return
}

// CHECK-LABEL: func.func @parts
func.func @parts(%x: tensor<2x64x48xbf16>, %w: tensor<48x8xf32>) {
  // CHECK: %[[P:.*]]:2 = nn.split %{{.*}} {sizes = array<i64: 32, 16>} : (tensor<2x64x48xbf16>) -> (tensor<2x64x32xbf16>, tensor<2x64x16xbf16>)
  %a, %b = nn.split %x {sizes = array<i64: 32, 16>}
      : (tensor<2x64x48xbf16>) -> (tensor<2x64x32xbf16>, tensor<2x64x16xbf16>)
  // CHECK: nn.concat %[[P]]#1, %[[P]]#0 : (tensor<2x64x16xbf16>, tensor<2x64x32xbf16>) -> tensor<2x64x48xbf16>
  %y = nn.concat %b, %a : (tensor<2x64x16xbf16>, tensor<2x64x32xbf16>) -> tensor<2x64x48xbf16>
  // CHECK: %[[R:.*]]:2 = nn.split %{{.*}} {rows, sizes = array<i64: 32, 16>} : (tensor<48x8xf32>) -> (tensor<32x8xf32>, tensor<16x8xf32>)
  %c, %d = nn.split %w {rows, sizes = array<i64: 32, 16>}
      : (tensor<48x8xf32>) -> (tensor<32x8xf32>, tensor<16x8xf32>)
  // CHECK: nn.concat %[[R]]#1, %[[R]]#0 {rows} : (tensor<16x8xf32>, tensor<32x8xf32>) -> tensor<48x8xf32>
  %v = nn.concat %d, %c {rows} : (tensor<16x8xf32>, tensor<32x8xf32>) -> tensor<48x8xf32>
  return
}

// CHECK-LABEL: func.func @gate
func.func @gate(%logits: tensor<1x64x12xbf16>, %bias: tensor<12xf32>) {
  // CHECK: %[[G:.*]] = nn.gate sigmoid %{{.*}}, %{{.*}} : (tensor<1x64x12xbf16>, tensor<12xf32>) -> tensor<1x64x4x3xf32>
  %g = nn.gate sigmoid %logits, %bias : (tensor<1x64x12xbf16>, tensor<12xf32>) -> tensor<1x64x4x3xf32>
  // CHECK: nn.gate softmax %{{.*}} : (tensor<1x64x12xbf16>) -> tensor<1x64x4x3xf32>
  %s = nn.gate softmax %logits : (tensor<1x64x12xbf16>) -> tensor<1x64x4x3xf32>
  // CHECK: nn.gate sigmoid %{{.*}} {branches = 4 : i64} : (tensor<1x64x12xbf16>) -> tensor<1x64x3x4xf32>
  %four = nn.gate sigmoid %logits {branches = 4 : i64} : (tensor<1x64x12xbf16>) -> tensor<1x64x3x4xf32>
  // CHECK: nn.gate_backward softmax %{{.*}}, %{{.*}} {logits_type = bf16} : {{.*}} -> (tensor<1x64x12xbf16>, tensor<12xf32>)
  %dl, %db = nn.gate_backward softmax %g, %s {logits_type = bf16}
      : (tensor<1x64x4x3xf32>, tensor<1x64x4x3xf32>) -> (tensor<1x64x12xbf16>, tensor<12xf32>)
  return
}

// CHECK-LABEL: func.func @elementwise
func.func @elementwise(%a: tensor<2x64x32xf32>, %b: tensor<2x64x32xf32>) {
  // CHECK: nn.silu %{{.*}} :
  %0 = nn.silu %a : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  // CHECK: nn.silu_backward %{{.*}}, %{{.*}} :
  %1 = nn.silu_backward %b, %a : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  // CHECK: nn.swiglu %{{.*}}, %{{.*}} :
  %2 = nn.swiglu %a, %b : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  // CHECK: %dgate, %dup = nn.swiglu_backward %{{.*}}, %{{.*}}, %{{.*}} :
  %dg, %du = nn.swiglu_backward %2, %a, %b
      : (tensor<2x64x32xf32>, tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> (tensor<2x64x32xf32>, tensor<2x64x32xf32>)
  // CHECK: %gelu = nn.gelu %{{.*}} :
  %ge = nn.gelu %a : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  // CHECK: %squared_relu = nn.squared_relu %{{.*}} :
  %sr = nn.squared_relu %a : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  // CHECK: %capped = nn.softcap %{{.*}} {cap = 3.000000e+01 : f64} :
  %sc = nn.softcap %a {cap = 30.0 : f64} : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  // CHECK: nn.add %{{.*}}, %{{.*}} :
  %3 = nn.add %a, %b : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  // CHECK: nn.cast %{{.*}} to bf16 : (tensor<2x64x32xf32>) -> tensor<2x64x32xbf16>
  %4 = nn.cast %a to bf16 : (tensor<2x64x32xf32>) -> tensor<2x64x32xbf16>
  // CHECK: nn.recompute_barrier %{{.*}} : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %kept = nn.recompute_barrier %a : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  // CHECK: nn.all_reduce %{{.*}} : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %mean = nn.all_reduce %a : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  // CHECK: %[[PART:.*]] = nn.slice_shard %{{.*}} {shard = 0 : i64} : tensor<2x64x32xf32> -> tensor<1024xf32>
  // CHECK: nn.all_gather %[[PART]] {shard = 0 : i64} : tensor<1024xf32> -> tensor<2x64x32xf32>
  // CHECK: nn.gradient_norm %[[PART]] {squared} : (tensor<1024xf32>) -> tensor<f32>
  // CHECK: nn.root_of_mean %{{.*}} {ranks = 4 : i64} : (tensor<f32>) -> tensor<f32>
  %part = nn.slice_shard %a {shard = 0 : i64} : tensor<2x64x32xf32> -> tensor<1024xf32>
  %whole = nn.all_gather %part {shard = 0 : i64} : tensor<1024xf32> -> tensor<2x64x32xf32>
  %squares = nn.gradient_norm %part {squared} : (tensor<1024xf32>) -> tensor<f32>
  %root = nn.root_of_mean %squares {ranks = 4 : i64} : (tensor<f32>) -> tensor<f32>
  // CHECK: nn.fill 0.000000e+00 : tensor<2x64x32xf32>
  %5 = nn.fill 0.0 : tensor<2x64x32xf32>
  // CHECK: nn.fill -3.000000e+00 : tensor<4xi32>
  %6 = nn.fill -3.0 : tensor<4xi32>
  return
}

// CHECK-LABEL: func.func @loss
func.func @loss(%logits: tensor<2x64x256xf32>, %targets: tensor<2x64xi32>) {
  // CHECK: %loss, %lse, %count = nn.cross_entropy %{{.*}}, %{{.*}} : {{.*}} -> (tensor<f32>, tensor<2x64xf32>, tensor<f32>)
  %loss, %lse, %count = nn.cross_entropy %logits, %targets
      : (tensor<2x64x256xf32>, tensor<2x64xi32>) -> (tensor<f32>, tensor<2x64xf32>, tensor<f32>)
  // CHECK: nn.cross_entropy %{{.*}}, %{{.*}} {over_all} :
  %sum, %lse1, %fraction = nn.cross_entropy %logits, %targets {over_all}
      : (tensor<2x64x256xf32>, tensor<2x64xi32>) -> (tensor<f32>, tensor<2x64xf32>, tensor<f32>)
  // CHECK: nn.cross_entropy_backward %loss, %{{.*}}, %{{.*}}, %lse, %count
  %dlogits = nn.cross_entropy_backward %loss, %logits, %targets, %lse, %count
      : (tensor<f32>, tensor<2x64x256xf32>, tensor<2x64xi32>, tensor<2x64xf32>, tensor<f32>)
      -> tensor<2x64x256xf32>
  return
}

// CHECK-LABEL: func.func @optimizer
func.func @optimizer(%w: tensor<32x48xf32>, %g: tensor<32x48xf32>, %g1: tensor<32xf32>,
                     %loss: tensor<f32>, %hyper: tensor<8xf32>) {
  // CHECK: %norm = nn.gradient_norm %{{.*}}, %{{.*}} : (tensor<32x48xf32>, tensor<32xf32>) -> tensor<f32>
  %norm = nn.gradient_norm %g, %g1 : (tensor<32x48xf32>, tensor<32xf32>) -> tensor<f32>
  // CHECK: nn.gradient_norm : () -> tensor<f32>
  %none = nn.gradient_norm : () -> tensor<f32>
  // CHECK: %weight, %moment1, %moment2 = nn.adamw %{{.*}} {decay} :
  %w1, %m1, %v1 = nn.adamw %w, %w, %w, %g, %norm, %loss, %hyper {decay}
      : (tensor<32x48xf32>, tensor<32x48xf32>, tensor<32x48xf32>, tensor<32x48xf32>,
         tensor<f32>, tensor<f32>, tensor<8xf32>)
      -> (tensor<32x48xf32>, tensor<32x48xf32>, tensor<32x48xf32>)
  // CHECK: %weight_{{[0-9]+}}, %ema = nn.lion %{{.*}} {decay} :
  %w2, %e2 = nn.lion %w, %w, %g, %norm, %loss, %hyper {decay}
      : (tensor<32x48xf32>, tensor<32x48xf32>, tensor<32x48xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>)
      -> (tensor<32x48xf32>, tensor<32x48xf32>)
  // CHECK: %weight_{{[0-9]+}}, %momentum = nn.muon %{{.*}} {decay} :
  %w3, %m3 = nn.muon %w, %w, %g, %norm, %loss, %hyper {decay}
      : (tensor<32x48xf32>, tensor<32x48xf32>, tensor<32x48xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>)
      -> (tensor<32x48xf32>, tensor<32x48xf32>)
  // CHECK: %unit = nn.normalize %{{.*}} {batch = 2 : i64, result_type = bf16} : (tensor<32x48xf32>) -> tensor<32x48xbf16>
  %x = nn.normalize %w {batch = 2 : i64, result_type = bf16} : (tensor<32x48xf32>) -> tensor<32x48xbf16>
  // CHECK: %[[A:.*]] = nn.batch_matmul %unit, %unit {{.*}} : (tensor<32x48xbf16>, tensor<32x48xbf16>) -> tensor<32x16xbf16>
  %a = nn.batch_matmul %x, %x {alpha = 1.0 : f64, batch = 2 : i64, beta = 0.0 : f64, transpose_rhs}
      : (tensor<32x48xbf16>, tensor<32x48xbf16>) -> tensor<32x16xbf16>
  // CHECK: nn.batch_matmul %[[A]], %unit, %unit {{.*}} : (tensor<32x16xbf16>, tensor<32x48xbf16>, tensor<32x48xbf16>) -> tensor<32x48xbf16>
  %b = nn.batch_matmul %a, %x, %x {alpha = 1.0 : f64, batch = 2 : i64, beta = 2.0 : f64}
      : (tensor<32x16xbf16>, tensor<32x48xbf16>, tensor<32x48xbf16>) -> tensor<32x48xbf16>
  // CHECK: %hyper, %loss = nn.average_step %{{.*}} : (tensor<8xf32>, tensor<f32>, tensor<f32>) -> (tensor<8xf32>, tensor<f32>)
  %mh, %ml = nn.average_step %hyper, %loss, %loss : (tensor<8xf32>, tensor<f32>, tensor<f32>) -> (tensor<8xf32>, tensor<f32>)
  // CHECK: %hyper_{{[0-9]+}}, %norm_{{[0-9]+}}, %scale, %streak, %skipped = nn.update_loss_scale %{{.*}} {growth_interval = 2000 : i64} :
  %h, %n, %s, %k, %d = nn.update_loss_scale %hyper, %norm, %loss, %loss, %loss, %loss {growth_interval = 2000 : i64}
      : (tensor<8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>)
      -> (tensor<8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>)
  return
}

// CHECK-LABEL: func.func @seed
// CHECK-SAME: nn.seed
func.func @seed(%scale: tensor<f32> {nn.seed}) {
  return
}

// CHECK-LABEL: func.func @model
// CHECK-SAME: nn.dims = ["batch", "seq"], nn.name = "tokens", nn.role = "input"
// CHECK-SAME: nn.decay, nn.init = #nn.init<normal, 2.000000e-02>
// CHECK-SAME: nn.init = #nn.init<rotary, 1.000000e+04>
// CHECK-SAME: nn.init = #nn.init<constant, 0.000000e+00>
// CHECK-SAME: nn.name = "logits"
// CHECK-SAME: nn.name = "loss", nn.objective
// CHECK-SAME: nn.alias = "loss_sum"
// CHECK-SAME: attributes {nn.train}
func.func @model(
    %tokens: tensor<2x64xi32> {nn.name = "tokens", nn.role = "input", nn.dims = ["batch", "seq"]},
    %w: tensor<256x32xf32> {nn.name = "embed.weight", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay},
    %table: tensor<64x8x2xf32> {nn.name = "rotary", nn.role = "constant", nn.init = #nn.init<rotary, 10000.0>, nn.dims = ["seq", "", ""]},
    %sum: tensor<f32> {nn.name = "loss_sum", nn.role = "state", nn.init = #nn.init<constant, 0.0>})
    -> (tensor<2x64x32xf32> {nn.name = "logits"}, tensor<f32> {nn.name = "loss", nn.objective},
        tensor<f32> {nn.alias = "loss_sum"}) attributes {nn.train} {
  %y = nn.embedding %w, %tokens : (tensor<256x32xf32>, tensor<2x64xi32>) -> tensor<2x64x32xf32>
  return %y, %sum, %sum : tensor<2x64x32xf32>, tensor<f32>, tensor<f32>
}
