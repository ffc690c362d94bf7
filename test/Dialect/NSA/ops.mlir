// RUN: nsa-opt %s --verify-roundtrip | FileCheck %s

func.func @compress(%x: tensor<1x64x2x16xf32>, %w: tensor<2x128x16xf32>) {
  // CHECK: %[[MEAN:.*]] = nsa.compress mean %{{.*}} by(#nsa.compressed<block = 8, stride = 4>) : (tensor<1x64x2x16xf32>) -> tensor<1x15x2x16xf32>
  %mean = nsa.compress mean %x {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>) -> tensor<1x15x2x16xf32>
  // CHECK: nsa.compress linear %{{.*}}, %{{.*}} by(#nsa.compressed<block = 8, stride = 4>)
  %linear = nsa.compress linear %x, %w {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>) -> tensor<1x15x2x16xf32>
  // CHECK: %[[DX:.*]] = nsa.compress_backward mean %[[MEAN]], %{{.*}} by(
  %dx = nsa.compress_backward mean %mean, %x {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>) -> tensor<1x64x2x16xf32>
  // CHECK: %[[DX2:.*]], %[[DW:.*]] = nsa.compress_backward linear %{{.*}}, %{{.*}}, %{{.*}} by(
  // CHECK-SAME: -> (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>)
  %dx2, %dw = nsa.compress_backward linear %linear, %x, %w {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>, tensor<2x128x16xf32>)
      -> (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>)
  return
}

// The parameters follow the input: weights, then positions.
func.func @compress_parameters(%x: tensor<1x64x2x16xf32>, %w: tensor<2x128x16xf32>, %w2: tensor<2x16x16xf32>,
                               %p: tensor<2x8x16xf32>) {
  // CHECK: %[[Y:.*]] = nsa.compress linear %[[X:.*]], %[[W:.*]], %[[P:.*]] by(#nsa.compressed<block = 8, stride = 4>)
  %linear = nsa.compress linear %x, %w, %p {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>, tensor<2x8x16xf32>) -> tensor<1x15x2x16xf32>
  // CHECK: nsa.compress mlp %[[X]], %[[W]], %[[W2:.*]] by(#nsa.compressed<block
  %plain = nsa.compress mlp %x, %w, %w2 {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>, tensor<2x16x16xf32>) -> tensor<1x15x2x16xf32>
  // CHECK: nsa.compress mlp %[[X]], %[[W]], %[[W2]], %[[P]] by(#nsa.compressed<block
  %mlp = nsa.compress mlp %x, %w, %w2, %p {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>, tensor<2x16x16xf32>, tensor<2x8x16xf32>)
      -> tensor<1x15x2x16xf32>
  // CHECK: nsa.compress_backward mlp %{{.*}}, %[[X]], %[[W]], %[[W2]], %[[P]] by(#nsa.compressed<block
  // CHECK-SAME: -> (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>, tensor<2x16x16xf32>, tensor<2x8x16xf32>)
  %dx, %dw, %dw2, %dp = nsa.compress_backward mlp %mlp, %x, %w, %w2, %p {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x15x2x16xf32>, tensor<1x64x2x16xf32>, tensor<2x128x16xf32>, tensor<2x16x16xf32>, tensor<2x8x16xf32>)
      -> (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>, tensor<2x16x16xf32>, tensor<2x8x16xf32>)
  return
}

// A sequence shorter than a block has no compressed row.
func.func @no_compressed_block(%q: tensor<1x7x4x16xf32>, %x: tensor<1x7x2x16xf32>) {
  %k = nsa.compress mean %x {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x7x2x16xf32>) -> tensor<1x0x2x16xf32>
  // CHECK: nsa.attention {{.*}}visible(#nsa.compressed
  %o, %lse = nsa.compressed_attention %q, %k, %k {block = 8 : i64, stride = 4 : i64}
      : (tensor<1x7x4x16xf32>, tensor<1x0x2x16xf32>, tensor<1x0x2x16xf32>)
      -> (tensor<1x7x4x16xf32>, tensor<1x4x7xf32>)
  %indices = nsa.select %q, %k, %lse {block = 8 : i64, stride = 4 : i64, select_block = 16 : i64, count = 3 : i64}
      : (tensor<1x7x4x16xf32>, tensor<1x0x2x16xf32>, tensor<1x4x7xf32>) -> tensor<1x2x7x3xi32>
  return
}

// Head widths of keys and values differ.
func.func @compressed_attention(%q: tensor<1x64x4x24xbf16>, %k: tensor<1x15x2x24xbf16>,
                                %v: tensor<1x15x2x16xbf16>) {
  // CHECK: %[[O:.*]], %[[LSE:.*]] = nsa.attention %{{.*}}, %{{.*}}, %{{.*}} visible(#nsa.compressed<block = 8, stride = 4>) {scale = 1.250000e-01 : f64}
  // CHECK-SAME: : tensor<1x64x4x24xbf16>, tensor<1x15x2x24xbf16>, tensor<1x15x2x16xbf16>
  %o, %lse = nsa.compressed_attention %q, %k, %v {block = 8 : i64, stride = 4 : i64, scale = 0.125 : f64}
      : (tensor<1x64x4x24xbf16>, tensor<1x15x2x24xbf16>, tensor<1x15x2x16xbf16>)
      -> (tensor<1x64x4x16xbf16>, tensor<1x4x64xf32>)
  // CHECK: %[[DQ:.*]], %[[DK:.*]], %[[DV:.*]] = nsa.attention_backward %[[O]], %{{.*}}, %{{.*}}, %{{.*}}, %[[O]], %[[LSE]]
  %dq, %dk, %dv = nsa.compressed_attention_backward %o, %q, %k, %v, %o, %lse {block = 8 : i64, stride = 4 : i64, scale = 0.125 : f64}
      : (tensor<1x64x4x16xbf16>, tensor<1x64x4x24xbf16>, tensor<1x15x2x24xbf16>,
         tensor<1x15x2x16xbf16>, tensor<1x64x4x16xbf16>, tensor<1x4x64xf32>)
      -> (tensor<1x64x4x24xbf16>, tensor<1x15x2x24xbf16>, tensor<1x15x2x16xbf16>)
  return
}

func.func @selection(%q: tensor<1x64x4x16xf32>, %ck: tensor<1x15x2x16xf32>, %lse: tensor<1x4x64xf32>,
                     %k: tensor<1x64x2x16xf32>, %v: tensor<1x64x2x16xf32>) {
  // The defaults of `initial` and `local` are not printed.
  // CHECK: %[[INDICES:.*]] = nsa.select %{{.*}}, %{{.*}}, %{{.*}} by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16, count = 3>)
  %indices = nsa.select %q, %ck, %lse {block = 8 : i64, stride = 4 : i64, select_block = 16 : i64, count = 3 : i64, initial = 1 : i64, local = 2 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x4x64xf32>) -> tensor<1x2x64x3xi32>
  // CHECK: nsa.select {{.*}} by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16, count = 3, initial = 0, local = 1>)
  %other = nsa.select %q, %ck, %lse {block = 8 : i64, stride = 4 : i64, select_block = 16 : i64, count = 3 : i64, initial = 0 : i64, local = 1 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x15x2x16xf32>, tensor<1x4x64xf32>) -> tensor<1x2x64x3xi32>
  // CHECK: %[[O:.*]], %[[LSE:.*]] = nsa.attention %{{.*}}, %{{.*}}, %{{.*}} visible(#nsa.selected<block = 16>, %[[INDICES]] : 
  %o, %l = nsa.selected_attention %q, %k, %v, %indices {select_block = 16 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>, tensor<1x2x64x3xi32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  // CHECK: nsa.attention_backward %[[O]], %{{.*}}, %{{.*}}, %{{.*}}, %[[O]], %[[LSE]] visible(#nsa.selected<block = 16>, %[[INDICES]] : 
  %dq, %dk, %dv = nsa.selected_attention_backward %o, %q, %k, %v, %o, %l, %indices {select_block = 16 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>, tensor<1x2x64x3xi32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
  return
}

func.func @attention(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>, %i: tensor<1x2x64x3xi32>) {
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.causal)
      : tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>
  %dq, %dk, %dv = nsa.attention_backward %o, %q, %k, %k, %o, %lse visible(#nsa.causal) {scale = 0.5 : f64}
      : tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>,
        tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>
  // CHECK: nsa.attention {{.*}}visible(#nsa.selected<block = 16, count = 4, initial = 0>, %{{.*}} : tensor<1x2x64x3xi32>)
  %s:2 = nsa.attention %q, %k, %k visible(#nsa.selected<block = 16, count = 4, initial = 0, local = 2>, %i : tensor<1x2x64x3xi32>)
      : tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>
  return
}

func.func @window_attention(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>, %v: tensor<1x64x2x16xf32>) {
  // CHECK: %[[O:.*]], %[[LSE:.*]] = nsa.attention %{{.*}}, %{{.*}}, %{{.*}} visible(#nsa.window<32>)
  %o, %lse = nsa.window_attention %q, %k, %v {window = 32 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
  // CHECK: nsa.attention_backward %[[O]], %{{.*}}, %{{.*}}, %{{.*}}, %[[O]], %[[LSE]] visible(#nsa.window<32>)
  %dq, %dk, %dv = nsa.window_attention_backward %o, %q, %k, %v, %o, %lse {window = 32 : i64}
      : (tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>,
         tensor<1x64x4x16xf32>, tensor<1x4x64xf32>)
      -> (tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>, tensor<1x64x2x16xf32>)
  return
}

func.func @combine(%gates: tensor<1x64x4x3xf32>, %cmp: tensor<1x64x4x16xbf16>,
                   %slc: tensor<1x64x4x16xbf16>, %win: tensor<1x64x4x16xbf16>) {
  %o = nsa.combine %gates, %cmp, %slc, %win
      : (tensor<1x64x4x3xf32>, tensor<1x64x4x16xbf16>, tensor<1x64x4x16xbf16>, tensor<1x64x4x16xbf16>)
      -> tensor<1x64x4x16xbf16>
  %dg, %dc, %ds, %dw = nsa.combine_backward %o, %gates, %cmp, %slc, %win
      : (tensor<1x64x4x16xbf16>, tensor<1x64x4x3xf32>, tensor<1x64x4x16xbf16>, tensor<1x64x4x16xbf16>, tensor<1x64x4x16xbf16>)
      -> (tensor<1x64x4x3xf32>, tensor<1x64x4x16xbf16>, tensor<1x64x4x16xbf16>, tensor<1x64x4x16xbf16>)
  return
}

func.func @statistics(%gates: tensor<1x64x4x3xf32>, %indices: tensor<1x2x64x3xi32>) {
  %g = nsa.gate_statistics %gates : (tensor<1x64x4x3xf32>) -> tensor<4xf32>
  %s = nsa.selection_statistics %indices {select_block = 16 : i64} : (tensor<1x2x64x3xi32>) -> tensor<3xf32>
  return
}

func.func @packed(%q: tensor<1x64x4x16xf32>, %k: tensor<1x64x2x16xf32>, %w: tensor<2x128x16xf32>,
                  %t: tensor<64x8x2xf32>, %s: tensor<1x64xi32>) {
  %kc = nsa.compress linear %k, %w start(%s) by(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>, tensor<1x64xi32>) -> tensor<1x16x2x16xf32>
  %dk, %dw = nsa.compress_backward linear %kc, %k, %w start(%s) by(#nsa.compressed<block = 8, stride = 4>)
      : (tensor<1x16x2x16xf32>, tensor<1x64x2x16xf32>, tensor<2x128x16xf32>, tensor<1x64xi32>)
      -> (tensor<1x64x2x16xf32>, tensor<2x128x16xf32>)
  %kr = nn.rotary %kc, %t, %s {stride = 4 : i64}
      : (tensor<1x16x2x16xf32>, tensor<64x8x2xf32>, tensor<1x64xi32>) -> tensor<1x16x2x16xf32>
  // CHECK: %[[O:.*]], %[[LSE:.*]] = nsa.attention %{{.*}} visible(#nsa.compressed<block = 8, stride = 4>) start(%{{.*}} : tensor<1x64xi32>) :
  %o, %lse = nsa.attention %q, %kr, %kc visible(#nsa.compressed<block = 8, stride = 4>) start(%s : tensor<1x64xi32>)
      : tensor<1x64x4x16xf32>, tensor<1x16x2x16xf32>, tensor<1x16x2x16xf32>
  // CHECK: %[[I:.*]] = nsa.select %{{.*}}, %[[LSE]] start(%{{.*}} : tensor<1x64xi32>) by(
  %i = nsa.select %q, %kr, %lse start(%s : tensor<1x64xi32>) by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16, count = 3>)
      : tensor<1x64x4x16xf32>, tensor<1x16x2x16xf32> -> tensor<1x2x64x3xi32>
  %dq, %dks, %dv = nsa.attention_backward %o, %q, %k, %k, %o, %lse
      visible(#nsa.selected<block = 16>, %i : tensor<1x2x64x3xi32>) start(%s : tensor<1x64xi32>)
      : tensor<1x64x4x16xf32>, tensor<1x64x4x16xf32>, tensor<1x64x2x16xf32>,
        tensor<1x64x2x16xf32>, tensor<1x64x4x16xf32>, tensor<1x4x64xf32>
  %y = nsa.selection_statistics %i, %s {select_block = 16 : i64} : (tensor<1x2x64x3xi32>, tensor<1x64xi32>) -> tensor<3xf32>
  return
}

// Queries of two rows of a batch, each inside of one of three sequences.
func.func @at(%q: tensor<2x16x4x16xf32>, %k: tensor<3x64x2x16xf32>, %kc: tensor<3x15x2x16xf32>,
              %t: tensor<64x8x2xf32>, %at: tensor<2x2xi32>, %s: tensor<3x64xi32>) {
  // CHECK: nn.rotary %{{.*}}, %{{.*}} at(%{{.*}}) {inverse} :
  %qr = nn.rotary %q, %t at(%at) {inverse} : (tensor<2x16x4x16xf32>, tensor<64x8x2xf32>, tensor<2x2xi32>) -> tensor<2x16x4x16xf32>
  %qs = nn.rotary %q, %t, %s at(%at) : (tensor<2x16x4x16xf32>, tensor<64x8x2xf32>, tensor<3x64xi32>, tensor<2x2xi32>) -> tensor<2x16x4x16xf32>
  // CHECK: %[[O:.*]], %[[LSE:.*]] = nsa.attention %{{.*}} visible(#nsa.compressed<block = 8, stride = 4>) at(%{{.*}} : tensor<2x2xi32>) :
  %o, %lse = nsa.attention %qr, %kc, %kc visible(#nsa.compressed<block = 8, stride = 4>) at(%at : tensor<2x2xi32>)
      : tensor<2x16x4x16xf32>, tensor<3x15x2x16xf32>, tensor<3x15x2x16xf32>
  // CHECK: %[[I:.*]] = nsa.select %{{.*}}, %[[LSE]] at(%{{.*}} : tensor<2x2xi32>) by(
  %i = nsa.select %qr, %kc, %lse at(%at : tensor<2x2xi32>) by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16, count = 3>)
      : tensor<2x16x4x16xf32>, tensor<3x15x2x16xf32> -> tensor<2x2x16x3xi32>
  %o2, %lse2 = nsa.attention %qs, %k, %k visible(#nsa.causal) start(%s : tensor<3x64xi32>) at(%at : tensor<2x2xi32>)
      : tensor<2x16x4x16xf32>, tensor<3x64x2x16xf32>, tensor<3x64x2x16xf32>
  // CHECK: nsa.attention_backward {{.*}}%[[I]] : tensor<2x2x16x3xi32>) at(%{{.*}} : tensor<2x2xi32>) :
  %dq, %dk, %dv = nsa.attention_backward %o, %qr, %k, %k, %o, %lse
      visible(#nsa.selected<block = 16>, %i : tensor<2x2x16x3xi32>) at(%at : tensor<2x2xi32>)
      : tensor<2x16x4x16xf32>, tensor<2x16x4x16xf32>, tensor<3x64x2x16xf32>,
        tensor<3x64x2x16xf32>, tensor<2x16x4x16xf32>, tensor<2x4x16xf32>
  // CHECK: nsa.selection_statistics %[[I]] at(%{{.*}}) {select_block = 16 : i64} :
  %y = nsa.selection_statistics %i at(%at) {select_block = 16 : i64} : (tensor<2x2x16x3xi32>, tensor<2x2xi32>) -> tensor<3xf32>
  return
}
