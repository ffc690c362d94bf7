// One decoder block with window attention only, tied to no other shapes than
// those written: batch 2, sequence 16, width 8, 2 heads on 1 key/value head.
module {
  func.func @model(
      %tokens: tensor<2x16xi32> {nn.name = "tokens", nn.role = "input", nn.dims = ["batch", "seq"]},
      %targets: tensor<2x16xi32> {nn.name = "targets", nn.role = "input", nn.dims = ["batch", "seq"]},
      %embed: tensor<32x8xf32> {nn.name = "embed", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>},
      %norm: tensor<8xf32> {nn.name = "norm", nn.role = "parameter", nn.init = #nn.init<constant, 1.0>},
      %wq: tensor<8x8xf32> {nn.name = "wq", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay},
      %wk: tensor<8x4xf32> {nn.name = "wk", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay},
      %wv: tensor<8x4xf32> {nn.name = "wv", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay},
      %wo: tensor<8x8xf32> {nn.name = "wo", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay},
      %angles: tensor<16x2x2xf32> {nn.name = "angles", nn.role = "constant", nn.init = #nn.init<rotary, 10000.0>, nn.dims = ["seq", "", ""]})
      -> (tensor<f32> {nn.name = "loss"}, tensor<2x16x32xf32> {nn.name = "logits"}) attributes {nn.train} {
    %x = nn.embedding %embed, %tokens : (tensor<32x8xf32>, tensor<2x16xi32>) -> tensor<2x16x8xf32>
    %h, %rstd = nn.rms_norm %x, %norm {eps = 1.0e-5 : f64} : (tensor<2x16x8xf32>, tensor<8xf32>) -> (tensor<2x16x8xf32>, tensor<2x16xf32>)
    %q = nn.matmul %h, %wq : (tensor<2x16x8xf32>, tensor<8x8xf32>) -> tensor<2x16x8xf32>
    %k = nn.matmul %h, %wk : (tensor<2x16x8xf32>, tensor<8x4xf32>) -> tensor<2x16x4xf32>
    %v = nn.matmul %h, %wv : (tensor<2x16x8xf32>, tensor<8x4xf32>) -> tensor<2x16x4xf32>
    %qh = nn.split_heads %q {heads = 2 : i64} : (tensor<2x16x8xf32>) -> tensor<2x16x2x4xf32>
    %kh = nn.split_heads %k {heads = 1 : i64} : (tensor<2x16x4xf32>) -> tensor<2x16x1x4xf32>
    %vh = nn.split_heads %v {heads = 1 : i64} : (tensor<2x16x4xf32>) -> tensor<2x16x1x4xf32>
    %qr = nn.rotary %qh, %angles : (tensor<2x16x2x4xf32>, tensor<16x2x2xf32>) -> tensor<2x16x2x4xf32>
    %kr = nn.rotary %kh, %angles : (tensor<2x16x1x4xf32>, tensor<16x2x2xf32>) -> tensor<2x16x1x4xf32>
    %o, %lse = nsa.window_attention %qr, %kr, %vh {window = 8 : i64}
        : (tensor<2x16x2x4xf32>, tensor<2x16x1x4xf32>, tensor<2x16x1x4xf32>) -> (tensor<2x16x2x4xf32>, tensor<2x2x16xf32>)
    %om = nn.merge_heads %o : (tensor<2x16x2x4xf32>) -> tensor<2x16x8xf32>
    %p = nn.matmul %om, %wo : (tensor<2x16x8xf32>, tensor<8x8xf32>) -> tensor<2x16x8xf32>
    %y = nn.add %x, %p : (tensor<2x16x8xf32>, tensor<2x16x8xf32>) -> tensor<2x16x8xf32>
    %logits = nn.matmul %y, %embed {transpose_rhs} : (tensor<2x16x8xf32>, tensor<32x8xf32>) -> tensor<2x16x32xf32>
    %loss, %l, %count = nn.cross_entropy %logits, %targets : (tensor<2x16x32xf32>, tensor<2x16xi32>) -> (tensor<f32>, tensor<2x16xf32>, tensor<f32>)
    return %loss, %logits : tensor<f32>, tensor<2x16x32xf32>
  }
}
