// RUN: nsa-opt %s --verify-roundtrip | FileCheck %s

func.func @embedding(%table: tensor<256x32xbf16>, %ids: tensor<2x64xi32>) {
  %y = nn.embedding %table, %ids : (tensor<256x32xbf16>, tensor<2x64xi32>) -> tensor<2x64x32xbf16>
  %dtable = nn.embedding_backward %y, %ids {vocab = 256 : i64}
      : (tensor<2x64x32xbf16>, tensor<2x64xi32>) -> tensor<256x32xf32>
  return
}

func.func @matmul(%x: tensor<2x64x32xbf16>, %w: tensor<32x48xbf16>) {
  %y = nn.matmul %x, %w : (tensor<2x64x32xbf16>, tensor<32x48xbf16>) -> tensor<2x64x48xbf16>
  %dx = nn.matmul %y, %w {transpose_rhs} : (tensor<2x64x48xbf16>, tensor<32x48xbf16>) -> tensor<2x64x32xbf16>
  %dw = nn.matmul %x, %y {transpose_lhs, result_type = f32}
      : (tensor<2x64x32xbf16>, tensor<2x64x48xbf16>) -> tensor<32x48xf32>
  return
}

func.func @rms_norm(%x: tensor<2x64x32xbf16>, %weight: tensor<32xf32>) {
  %y, %rstd = nn.rms_norm %x, %weight {eps = 1.0e-5 : f64}
      : (tensor<2x64x32xbf16>, tensor<32xf32>) -> (tensor<2x64x32xbf16>, tensor<2x64xf32>)
  %dx, %dw = nn.rms_norm_backward %y, %x, %weight, %rstd
      : (tensor<2x64x32xbf16>, tensor<2x64x32xbf16>, tensor<32xf32>, tensor<2x64xf32>)
      -> (tensor<2x64x32xbf16>, tensor<32xf32>)
  return
}

func.func @rows(%x: tensor<2x64x32xbf16>, %bias: tensor<32xf32>) {
  %y = nn.add_bias %x, %bias : (tensor<2x64x32xbf16>, tensor<32xf32>) -> tensor<2x64x32xbf16>
  %s = nn.sum_rows %y : (tensor<2x64x32xbf16>) -> tensor<32xf32>
  %p = nn.sum_rows %y {partial_sums = 4 : i64} : (tensor<2x64x32xbf16>) -> tensor<4x32xf32>
  %n, %rstd = nn.rms_norm %y, %bias {eps = 1.0e-5 : f64, plus_one}
      : (tensor<2x64x32xbf16>, tensor<32xf32>) -> (tensor<2x64x32xbf16>, tensor<2x64xf32>)
  return
}

func.func @rotary(%x: tensor<1x15x2x16xf32>, %none: tensor<1x0x2x16xf32>, %table: tensor<57x8x2xf32>) {
  // The last row of the table is the position of the last row.
  %y = nn.rotary %x, %table {stride = 4 : i64} : (tensor<1x15x2x16xf32>, tensor<57x8x2xf32>) -> tensor<1x15x2x16xf32>
  %z = nn.rotary %y, %table {inverse} : (tensor<1x15x2x16xf32>, tensor<57x8x2xf32>) -> tensor<1x15x2x16xf32>
  %e = nn.rotary %none, %table : (tensor<1x0x2x16xf32>, tensor<57x8x2xf32>) -> tensor<1x0x2x16xf32>
  return
}

func.func @heads(%x: tensor<1x64x48xf32>) {
  %y = nn.split_heads %x {heads = 4 : i64} : (tensor<1x64x48xf32>) -> tensor<1x64x4x12xf32>
  %z = nn.merge_heads %y : (tensor<1x64x4x12xf32>) -> tensor<1x64x48xf32>
  return
}

func.func @parts(%x: tensor<2x64x48xbf16>, %w: tensor<48x8xf32>) {
  %a, %b = nn.split %x {sizes = array<i64: 32, 16>}
      : (tensor<2x64x48xbf16>) -> (tensor<2x64x32xbf16>, tensor<2x64x16xbf16>)
  %y = nn.concat %b, %a : (tensor<2x64x16xbf16>, tensor<2x64x32xbf16>) -> tensor<2x64x48xbf16>
  %c, %d = nn.split %w {rows, sizes = array<i64: 32, 16>}
      : (tensor<48x8xf32>) -> (tensor<32x8xf32>, tensor<16x8xf32>)
  %v = nn.concat %d, %c {rows} : (tensor<16x8xf32>, tensor<32x8xf32>) -> tensor<48x8xf32>
  return
}

func.func @gate(%logits: tensor<1x64x12xbf16>, %bias: tensor<12xf32>) {
  %g = nn.gate sigmoid %logits, %bias : (tensor<1x64x12xbf16>, tensor<12xf32>) -> tensor<1x64x4x3xf32>
  %s = nn.gate softmax %logits : (tensor<1x64x12xbf16>) -> tensor<1x64x4x3xf32>
  %four = nn.gate sigmoid %logits {branches = 4 : i64} : (tensor<1x64x12xbf16>) -> tensor<1x64x3x4xf32>
  %dl, %db = nn.gate_backward softmax %g, %s {logits_type = bf16}
      : (tensor<1x64x4x3xf32>, tensor<1x64x4x3xf32>) -> (tensor<1x64x12xbf16>, tensor<12xf32>)
  return
}

func.func @elementwise(%a: tensor<2x64x32xf32>, %b: tensor<2x64x32xf32>) {
  %0 = nn.silu %a : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %1 = nn.silu_backward %b, %a : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %2 = nn.swiglu %a, %b : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %dg, %du = nn.swiglu_backward %2, %a, %b
      : (tensor<2x64x32xf32>, tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> (tensor<2x64x32xf32>, tensor<2x64x32xf32>)
  %gg = nn.geglu %a, %b : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %sf = nn.scale %a {factor = 25.0 : f64} : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %ge = nn.gelu %a : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %sr = nn.squared_relu %a : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %sc = nn.softcap %a {cap = 30.0 : f64} : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %3 = nn.add %a, %b : (tensor<2x64x32xf32>, tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %4 = nn.cast %a to bf16 : (tensor<2x64x32xf32>) -> tensor<2x64x32xbf16>
  %kept = nn.recompute_barrier %a : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %mean = nn.all_reduce %a : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  %part = nn.slice_shard %a {shard = 0 : i64} : tensor<2x64x32xf32> -> tensor<1024xf32>
  %whole = nn.all_gather %part {shard = 0 : i64} : tensor<1024xf32> -> tensor<2x64x32xf32>
  %squares = nn.gradient_norm %part {squared} : (tensor<1024xf32>) -> tensor<f32>
  %root = nn.root_of_mean %squares {ranks = 4 : i64} : (tensor<f32>) -> tensor<f32>
  %5 = nn.fill 0.0 : tensor<2x64x32xf32>
  %6 = nn.fill -3.0 : tensor<4xi32>
  return
}

func.func @loss(%logits: tensor<2x64x256xf32>, %targets: tensor<2x64xi32>) {
  %loss, %lse, %count = nn.cross_entropy %logits, %targets
      : (tensor<2x64x256xf32>, tensor<2x64xi32>) -> (tensor<f32>, tensor<2x64xf32>, tensor<f32>)
  %sum, %lse1, %fraction = nn.cross_entropy %logits, %targets {over_all}
      : (tensor<2x64x256xf32>, tensor<2x64xi32>) -> (tensor<f32>, tensor<2x64xf32>, tensor<f32>)
  %dlogits = nn.cross_entropy_backward %loss, %logits, %targets, %lse, %count
      : (tensor<f32>, tensor<2x64x256xf32>, tensor<2x64xi32>, tensor<2x64xf32>, tensor<f32>)
      -> tensor<2x64x256xf32>
  return
}

func.func @optimizer(%w: tensor<32x48xf32>, %g: tensor<32x48xf32>, %g1: tensor<32xf32>,
                     %loss: tensor<f32>, %hyper: tensor<8xf32>) {
  %norm = nn.gradient_norm %g, %g1 : (tensor<32x48xf32>, tensor<32xf32>) -> tensor<f32>
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
  %x = nn.normalize %w {batch = 2 : i64, result_type = bf16} : (tensor<32x48xf32>) -> tensor<32x48xbf16>
  %a = nn.batch_matmul %x, %x {alpha = 1.0 : f64, batch = 2 : i64, beta = 0.0 : f64, transpose_rhs}
      : (tensor<32x48xbf16>, tensor<32x48xbf16>) -> tensor<32x16xbf16>
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

func.func @seed(%scale: tensor<f32> {nn.seed}) {
  return
}

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
