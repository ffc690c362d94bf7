// One decoder block with all three branches: batch 1, sequence 32, width 8, 2
// heads on 1 key/value head, one projection of keys and values for each branch,
// linear compression.
module {
  func.func @model(
      %tokens: tensor<1x32xi32> {nn.name = "tokens", nn.role = "input", nn.dims = ["batch", "seq"]},
      %targets: tensor<1x32xi32> {nn.name = "targets", nn.role = "input", nn.dims = ["batch", "seq"]},
      %embed: tensor<16x8xf32> {nn.name = "embed", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>},
      %wq: tensor<8x8xf32> {nn.name = "wq", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay},
      %wkc: tensor<8x4xf32> {nn.name = "wkc", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay},
      %wvc: tensor<8x4xf32> {nn.name = "wvc", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay},
      %wks: tensor<8x4xf32> {nn.name = "wks", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay},
      %wvs: tensor<8x4xf32> {nn.name = "wvs", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay},
      %wkw: tensor<8x4xf32> {nn.name = "wkw", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay},
      %wvw: tensor<8x4xf32> {nn.name = "wvw", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay},
      %phi: tensor<1x32x4xf32> {nn.name = "phi", nn.role = "parameter", nn.init = #nn.init<normal, 0.1>, nn.decay},
      %wg: tensor<8x6xf32> {nn.name = "gate.weight", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay},
      %bg: tensor<6xf32> {nn.name = "gate.bias", nn.role = "parameter", nn.init = #nn.init<constant, -0.69>},
      %wo: tensor<8x8xf32> {nn.name = "wo", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay},
      %angles: tensor<32x2x2xf32> {nn.name = "angles", nn.role = "constant", nn.init = #nn.init<rotary, 10000.0>, nn.dims = ["seq", "", ""]})
      -> (tensor<f32> {nn.name = "loss"}, tensor<1x32x16xf32> {nn.name = "logits"}) attributes {nn.train} {
    %x = nn.embedding %embed, %tokens : (tensor<16x8xf32>, tensor<1x32xi32>) -> tensor<1x32x8xf32>
    %q0 = nn.matmul %x, %wq : (tensor<1x32x8xf32>, tensor<8x8xf32>) -> tensor<1x32x8xf32>
    %q1 = nn.split_heads %q0 {heads = 2 : i64} : (tensor<1x32x8xf32>) -> tensor<1x32x2x4xf32>
    %q = nn.rotary %q1, %angles : (tensor<1x32x2x4xf32>, tensor<32x2x2xf32>) -> tensor<1x32x2x4xf32>

    %kc0 = nn.matmul %x, %wkc : (tensor<1x32x8xf32>, tensor<8x4xf32>) -> tensor<1x32x4xf32>
    %kc1 = nn.split_heads %kc0 {heads = 1 : i64} : (tensor<1x32x4xf32>) -> tensor<1x32x1x4xf32>
    %kc2 = nsa.compress linear %kc1, %phi {block = 8 : i64, stride = 4 : i64} : (tensor<1x32x1x4xf32>, tensor<1x32x4xf32>) -> tensor<1x7x1x4xf32>
    %kc = nn.rotary %kc2, %angles {stride = 4 : i64} : (tensor<1x7x1x4xf32>, tensor<32x2x2xf32>) -> tensor<1x7x1x4xf32>
    %vc0 = nn.matmul %x, %wvc : (tensor<1x32x8xf32>, tensor<8x4xf32>) -> tensor<1x32x4xf32>
    %vc1 = nn.split_heads %vc0 {heads = 1 : i64} : (tensor<1x32x4xf32>) -> tensor<1x32x1x4xf32>
    %vc = nsa.compress mean %vc1 {block = 8 : i64, stride = 4 : i64} : (tensor<1x32x1x4xf32>) -> tensor<1x7x1x4xf32>
    %oc, %lc = nsa.compressed_attention %q, %kc, %vc {block = 8 : i64, stride = 4 : i64}
        : (tensor<1x32x2x4xf32>, tensor<1x7x1x4xf32>, tensor<1x7x1x4xf32>) -> (tensor<1x32x2x4xf32>, tensor<1x2x32xf32>)

    %i = nsa.select %q, %kc, %lc {block = 8 : i64, stride = 4 : i64, select_block = 8 : i64, count = 3 : i64}
        : (tensor<1x32x2x4xf32>, tensor<1x7x1x4xf32>, tensor<1x2x32xf32>) -> tensor<1x1x32x3xi32>
    %ks0 = nn.matmul %x, %wks : (tensor<1x32x8xf32>, tensor<8x4xf32>) -> tensor<1x32x4xf32>
    %ks1 = nn.split_heads %ks0 {heads = 1 : i64} : (tensor<1x32x4xf32>) -> tensor<1x32x1x4xf32>
    %ks = nn.rotary %ks1, %angles : (tensor<1x32x1x4xf32>, tensor<32x2x2xf32>) -> tensor<1x32x1x4xf32>
    %vs0 = nn.matmul %x, %wvs : (tensor<1x32x8xf32>, tensor<8x4xf32>) -> tensor<1x32x4xf32>
    %vs = nn.split_heads %vs0 {heads = 1 : i64} : (tensor<1x32x4xf32>) -> tensor<1x32x1x4xf32>
    %os, %ls = nsa.selected_attention %q, %ks, %vs, %i {select_block = 8 : i64}
        : (tensor<1x32x2x4xf32>, tensor<1x32x1x4xf32>, tensor<1x32x1x4xf32>, tensor<1x1x32x3xi32>) -> (tensor<1x32x2x4xf32>, tensor<1x2x32xf32>)

    %kw0 = nn.matmul %x, %wkw : (tensor<1x32x8xf32>, tensor<8x4xf32>) -> tensor<1x32x4xf32>
    %kw1 = nn.split_heads %kw0 {heads = 1 : i64} : (tensor<1x32x4xf32>) -> tensor<1x32x1x4xf32>
    %kw = nn.rotary %kw1, %angles : (tensor<1x32x1x4xf32>, tensor<32x2x2xf32>) -> tensor<1x32x1x4xf32>
    %vw0 = nn.matmul %x, %wvw : (tensor<1x32x8xf32>, tensor<8x4xf32>) -> tensor<1x32x4xf32>
    %vw = nn.split_heads %vw0 {heads = 1 : i64} : (tensor<1x32x4xf32>) -> tensor<1x32x1x4xf32>
    %ow, %lw = nsa.window_attention %q, %kw, %vw {window = 6 : i64}
        : (tensor<1x32x2x4xf32>, tensor<1x32x1x4xf32>, tensor<1x32x1x4xf32>) -> (tensor<1x32x2x4xf32>, tensor<1x2x32xf32>)

    %g0 = nn.matmul %x, %wg : (tensor<1x32x8xf32>, tensor<8x6xf32>) -> tensor<1x32x6xf32>
    %g = nn.gate sigmoid %g0, %bg : (tensor<1x32x6xf32>, tensor<6xf32>) -> tensor<1x32x2x3xf32>
    %o = nsa.combine %g, %oc, %os, %ow
        : (tensor<1x32x2x3xf32>, tensor<1x32x2x4xf32>, tensor<1x32x2x4xf32>, tensor<1x32x2x4xf32>) -> tensor<1x32x2x4xf32>
    %om = nn.merge_heads %o : (tensor<1x32x2x4xf32>) -> tensor<1x32x8xf32>
    %p = nn.matmul %om, %wo : (tensor<1x32x8xf32>, tensor<8x8xf32>) -> tensor<1x32x8xf32>
    %y = nn.add %x, %p : (tensor<1x32x8xf32>, tensor<1x32x8xf32>) -> tensor<1x32x8xf32>
    %logits = nn.matmul %y, %embed {transpose_rhs} : (tensor<1x32x8xf32>, tensor<16x8xf32>) -> tensor<1x32x16xf32>
    %loss, %l, %count = nn.cross_entropy %logits, %targets : (tensor<1x32x16xf32>, tensor<1x32xi32>) -> (tensor<f32>, tensor<1x32xf32>, tensor<f32>)
    return %loss, %logits : tensor<f32>, tensor<1x32x16xf32>
  }
}
