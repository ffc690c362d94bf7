// RUN: nsa-opt %s --split-input-file --verify-diagnostics

func.func @embedding_backward_shape(%dy: tensor<2x63x32xf32>, %ids: tensor<2x64xi32>) {
  // expected-error @below {{output gradient has shape 2x63x32, expected 2x64x32}}
  %d = nn.embedding_backward %dy, %ids {vocab = 256 : i64} : (tensor<2x63x32xf32>, tensor<2x64xi32>) -> tensor<256x32xf32>
  return
}

// -----

func.func @matmul_transposed_length(%x: tensor<2x64x32xf32>, %dy: tensor<2x63x48xf32>) {
  // expected-error @below {{rows of lhs (128) must be equal to rows of rhs (126)}}
  %y = nn.matmul %x, %dy {transpose_lhs} : (tensor<2x64x32xf32>, tensor<2x63x48xf32>) -> tensor<32x48xf32>
  return
}

// -----

func.func @matmul_rhs_transposed_length(%x: tensor<2x64x32xf32>, %w: tensor<48x33xf32>) {
  // expected-error @below {{columns of lhs (32) must be equal to columns of rhs (33)}}
  %y = nn.matmul %x, %w {transpose_rhs} : (tensor<2x64x32xf32>, tensor<48x33xf32>) -> tensor<2x64x48xf32>
  return
}

// -----

func.func @matmul_types(%x: tensor<2x64x32xbf16>, %w: tensor<32x48xf32>) {
  // expected-error @below {{all of {lhs, rhs} have same element type}}
  %y = nn.matmul %x, %w : (tensor<2x64x32xbf16>, tensor<32x48xf32>) -> tensor<2x64x48xbf16>
  return
}

// -----

func.func @matmul_rank(%x: tensor<f32>, %w: tensor<1x48xf32>) {
  // expected-error @below {{with at least one dimension}}
  %y = nn.matmul %x, %w : (tensor<f32>, tensor<1x48xf32>) -> tensor<48xf32>
  return
}

// -----

func.func @rms_norm_weight(%x: tensor<2x64x32xf32>, %weight: tensor<31xf32>) {
  // expected-error @below {{length of weight (31) must be equal to width of input (32)}}
  %y, %r = nn.rms_norm %x, %weight {eps = 1.0e-5 : f64}
      : (tensor<2x64x32xf32>, tensor<31xf32>) -> (tensor<2x64x32xf32>, tensor<2x64xf32>)
  return
}

// -----

func.func @softcap_of_zero(%x: tensor<2x64x32xf32>) {
  // expected-error @below {{whose value is positive}}
  %y = nn.softcap %x {cap = 0.0 : f64} : (tensor<2x64x32xf32>) -> tensor<2x64x32xf32>
  return
}

// -----

func.func @rms_norm_eps(%x: tensor<2x64x32xf32>, %weight: tensor<32xf32>) {
  // expected-error @below {{whose value is positive}}
  %y, %r = nn.rms_norm %x, %weight {eps = 0.0 : f64}
      : (tensor<2x64x32xf32>, tensor<32xf32>) -> (tensor<2x64x32xf32>, tensor<2x64xf32>)
  return
}

// -----

func.func @rms_norm_rstd(%x: tensor<2x64x32xf32>, %weight: tensor<32xf32>, %rstd: tensor<64x2xf32>) {
  // expected-error @below {{rstd has shape 64x2, expected 2x64}}
  %dx, %dw = nn.rms_norm_backward %x, %x, %weight, %rstd
      : (tensor<2x64x32xf32>, tensor<2x64x32xf32>, tensor<32xf32>, tensor<64x2xf32>)
      -> (tensor<2x64x32xf32>, tensor<32xf32>)
  return
}

// -----

func.func @rotary_huge_stride(%x: tensor<1x15x2x16xf32>, %table: tensor<56x8x2xf32>) {
  // expected-error @below {{table length (56) must be above the last position (30064771058)}}
  %y = nn.rotary %x, %table {stride = 2147483647 : i64} : (tensor<1x15x2x16xf32>, tensor<56x8x2xf32>) -> tensor<1x15x2x16xf32>
  return
}

// -----

func.func @rotary_pairs(%x: tensor<1x15x2x16xf32>, %table: tensor<64x16x2xf32>) {
  // expected-error @below {{table has shape 64x16x2, expected 64x8x2}}
  %y = nn.rotary %x, %table : (tensor<1x15x2x16xf32>, tensor<64x16x2xf32>) -> tensor<1x15x2x16xf32>
  return
}

// -----

func.func @rotary_odd(%x: tensor<1x15x2x15xf32>, %table: tensor<64x7x2xf32>) {
  // expected-error @below {{head width (15) must be a multiple of pair size (2)}}
  %y = nn.rotary %x, %table : (tensor<1x15x2x15xf32>, tensor<64x7x2xf32>) -> tensor<1x15x2x15xf32>
  return
}

// -----

func.func @split_heads_width(%x: tensor<1x64x48xf32>) {
  // expected-error @below {{width (48) must be a multiple of heads (5)}}
  %y = nn.split_heads %x {heads = 5 : i64} : (tensor<1x64x48xf32>) -> tensor<1x64x5x9xf32>
  return
}

// -----

func.func @gate_width(%x: tensor<1x64x13xf32>) {
  // expected-error @below {{width of logits (13) must be a multiple of branches (3)}}
  %y = nn.gate sigmoid %x : (tensor<1x64x13xf32>) -> tensor<1x64x4x3xf32>
  return
}

// -----

func.func @gate_bias(%x: tensor<1x64x12xf32>, %bias: tensor<4xf32>) {
  // expected-error @below {{bias has shape 4, expected 12}}
  %y = nn.gate sigmoid %x, %bias : (tensor<1x64x12xf32>, tensor<4xf32>) -> tensor<1x64x4x3xf32>
  return
}

// -----

func.func @gate_of_no_branch(%x: tensor<1x64x12xf32>) {
  // expected-error @below {{attribute 'branches' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
  %y = nn.gate sigmoid %x {branches = 0 : i64} : (tensor<1x64x12xf32>) -> tensor<1x64x0x0xf32>
  return
}

// -----

func.func @gate_softmax_of_one(%x: tensor<1x64x12xf32>) {
  // expected-error @below {{branches (1) must be at least 2 for softmax}}
  %y = nn.gate softmax %x {branches = 1 : i64} : (tensor<1x64x12xf32>) -> tensor<1x64x12x1xf32>
  return
}

// -----

func.func @gate_backward_branches(%g: tensor<1x64x4x1xf32>) {
  // expected-error @below {{branches (1) must be at least 2 for softmax}}
  %dl, %db = nn.gate_backward softmax %g, %g {logits_type = f32}
      : (tensor<1x64x4x1xf32>, tensor<1x64x4x1xf32>) -> (tensor<1x64x4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @cast_result(%a: tensor<2x3xf32>) {
  // expected-error @below {{incompatible with return type(s) of operation}}
  // expected-error @below {{failed to infer returned types}}
  %y = nn.cast %a to bf16 : (tensor<2x3xf32>) -> tensor<2x3xf16>
  return
}

// -----

func.func @targets(%logits: tensor<2x64x256xf32>, %targets: tensor<128xi32>) {
  // expected-error @below {{targets has shape 128, expected 2x64}}
  %loss, %lse, %count = nn.cross_entropy %logits, %targets
      : (tensor<2x64x256xf32>, tensor<128xi32>) -> (tensor<f32>, tensor<2x64xf32>, tensor<f32>)
  return
}

// -----

func.func @loss_lse(%dloss: tensor<f32>, %logits: tensor<2x64x256xf32>, %targets: tensor<2x64xi32>, %lse: tensor<2x63xf32>) {
  // expected-error @below {{lse has shape 2x63, expected 2x64}}
  %d = nn.cross_entropy_backward %dloss, %logits, %targets, %lse, %dloss
      : (tensor<f32>, tensor<2x64x256xf32>, tensor<2x64xi32>, tensor<2x63xf32>, tensor<f32>) -> tensor<2x64x256xf32>
  return
}

// -----

func.func @lion_state(%w: tensor<4xf32>, %e: tensor<5xf32>, %s: tensor<f32>, %hyper: tensor<8xf32>) {
  // expected-error @below {{'nn.lion' op has the state `ema` of type 'tensor<5xf32>', expected 'tensor<4xf32>'}}
  %w1, %e1 = nn.lion %w, %e, %w, %s, %s, %hyper
      : (tensor<4xf32>, tensor<5xf32>, tensor<4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>)
      -> (tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @lion_gradient(%w: tensor<4xf32>, %g: tensor<5xf32>, %s: tensor<f32>, %hyper: tensor<8xf32>) {
  // expected-error @below {{'nn.lion' op has a gradient or a new weight of type 'tensor<5xf32>', but a weight of type 'tensor<4xf32>'}}
  %w1, %e1 = nn.lion %w, %w, %g, %s, %s, %hyper
      : (tensor<4xf32>, tensor<4xf32>, tensor<5xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>)
      -> (tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @normalize_batch(%x: tensor<6x4xf32>) {
  // expected-error @below {{'nn.normalize' op rows of input (6) must be a multiple of batch (4)}}
  %y = nn.normalize %x {batch = 4 : i64} : (tensor<6x4xf32>) -> tensor<6x4xf32>
  return
}

// -----

func.func @normalize_empty(%x: tensor<6x0xf32>) {
  // expected-error @below {{'nn.normalize' op input has shape 6x0 with an empty dimension}}
  %y = nn.normalize %x {batch = 2 : i64} : (tensor<6x0xf32>) -> tensor<6x0xf32>
  return
}

// -----

func.func @batch_rows(%x: tensor<8x4xf32>, %y: tensor<6x4xf32>) {
  // expected-error @below {{'nn.batch_matmul' op rows of rhs (6) must be a multiple of batch (4)}}
  %z = nn.batch_matmul %x, %y {alpha = 1.0 : f64, batch = 4 : i64, beta = 0.0 : f64}
      : (tensor<8x4xf32>, tensor<6x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @batch_length(%x: tensor<8x4xf32>) {
  // expected-error @below {{'nn.batch_matmul' op columns of lhs (4) must be equal to rows of rhs (2)}}
  %z = nn.batch_matmul %x, %x {alpha = 1.0 : f64, batch = 4 : i64, beta = 0.0 : f64}
      : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @batch_types(%x: tensor<8x4xf32>, %y: tensor<8x4xbf16>) {
  // expected-error @below {{'nn.batch_matmul' op multiplies 'tensor<8x4xf32>' by 'tensor<8x4xbf16>'}}
  %z = nn.batch_matmul %x, %y {alpha = 1.0 : f64, batch = 2 : i64, beta = 0.0 : f64}
      : (tensor<8x4xf32>, tensor<8x4xbf16>) -> tensor<8x4xf32>
  return
}

// -----

func.func @batch_addend(%x: tensor<8x4xf32>, %y: tensor<4x4xf32>) {
  // expected-error @below {{'nn.batch_matmul' op adds 'tensor<4x4xf32>' to a matmul of type 'tensor<8x4xf32>'}}
  %z = nn.batch_matmul %x, %x, %y {alpha = 1.0 : f64, batch = 2 : i64, beta = 1.0 : f64}
      : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @batch_beta(%x: tensor<8x4xf32>) {
  // expected-error @below {{'nn.batch_matmul' op multiplies no addend by 2.000000e+00}}
  %z = nn.batch_matmul %x, %x {alpha = 1.0 : f64, batch = 2 : i64, beta = 2.0 : f64}
      : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @muon_vector(%w: tensor<4xf32>, %s: tensor<f32>, %hyper: tensor<8xf32>) {
  // expected-error @below {{'nn.muon' op cannot update a weight of type 'tensor<4xf32>'}}
  %w1, %m1 = nn.muon %w, %w, %w, %s, %s, %hyper
      : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<f32>, tensor<8xf32>)
      -> (tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

// expected-error @below {{argument 0 has the `nn.state` `m.w`, which has a dot}}
func.func @state_dot(%m: tensor<4xf32> {nn.name = "m.w", nn.role = "state", nn.state = "m.w"}) {
  return
}

// -----

// expected-error @below {{argument 0 has `nn.state` but not the role `state`}}
func.func @state_role(%m: tensor<4xf32> {nn.name = "m.w", nn.role = "gradient", nn.state = "m"}) {
  return
}

// -----

func.func @adamw_hyper(%w: tensor<4xf32>, %s: tensor<f32>, %hyper: tensor<7xf32>) {
  // expected-error @below {{hyper has shape 7, expected 8}}
  %w1, %m1, %v1 = nn.adamw %w, %w, %w, %w, %s, %s, %hyper
      : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<f32>, tensor<7xf32>)
      -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @average_hyper(%s: tensor<f32>, %hyper: tensor<7xf32>) {
  // expected-error @below {{hyper has shape 7, expected 8}}
  %h, %l = nn.average_step %hyper, %s, %s : (tensor<7xf32>, tensor<f32>, tensor<f32>) -> (tensor<7xf32>, tensor<f32>)
  return
}

// -----

func.func @loss_scale_hyper(%s: tensor<f32>, %hyper: tensor<7xf32>) {
  // expected-error @below {{hyper has shape 7, expected 8}}
  %h, %n, %c, %k, %d = nn.update_loss_scale %hyper, %s, %s, %s, %s, %s {growth_interval = 1 : i64}
      : (tensor<7xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>)
      -> (tensor<7xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>)
  return
}

// -----

func.func @loss_scale_interval(%s: tensor<f32>, %hyper: tensor<8xf32>) {
  // expected-error @below {{attribute 'growth_interval' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
  %h, %n, %c, %k, %d = nn.update_loss_scale %hyper, %s, %s, %s, %s, %s {growth_interval = 0 : i64}
      : (tensor<8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>)
      -> (tensor<8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>)
  return
}

// -----

// expected-error @below {{argument 0 has `nn.seed` but is 'tensor<2xf32>', not 'tensor<f32>'}}
func.func @seed_is_a_scalar(%a: tensor<2xf32> {nn.seed}) {
  return
}

// -----

// expected-error @below {{arguments 0 and 1 both have `nn.seed`}}
func.func @one_seed(%a: tensor<f32> {nn.seed}, %b: tensor<f32> {nn.seed}) {
  return
}

// -----

func.func @master_weights_are_fp32(%w: tensor<4xbf16>, %s: tensor<f32>, %hyper: tensor<8xf32>) {
  // expected-error @below {{operand #0 must be}}
  %w1, %m1, %v1 = nn.adamw %w, %w, %w, %w, %s, %s, %hyper
      : (tensor<4xbf16>, tensor<4xbf16>, tensor<4xbf16>, tensor<4xbf16>, tensor<f32>, tensor<f32>, tensor<8xf32>)
      -> (tensor<4xbf16>, tensor<4xbf16>, tensor<4xbf16>)
  return
}

// -----

// expected-error @below {{arguments 0 and 1 have the same name `w`}}
func.func @names_are_unique(%a: tensor<4xf32> {nn.name = "w"}, %b: tensor<4xf32> {nn.name = "w"}) {
  return
}

// -----

// expected-error @below {{attribute `nn.name` must be a string that is not empty}}
func.func @name_is_a_string(%a: tensor<4xf32> {nn.name = 3}) {
  return
}

// -----

// expected-error @below {{unknown role `weight`, expected one of input, parameter, constant, gradient, state}}
func.func @role(%a: tensor<4xf32> {nn.role = "weight"}) {
  return
}

// -----

// expected-error @below {{argument 0 of type 'f32' has the role `parameter`, expected a ranked tensor}}
func.func @role_of_scalar(%a: f32 {nn.role = "parameter"}) {
  return
}

// -----

// expected-error @below {{argument 0 of type 'tensor<*xf32>' has the role `state`, expected a ranked tensor}}
func.func @role_of_unranked(%a: tensor<*xf32> {nn.role = "state"}) {
  return
}

// -----

// expected-error @below {{attribute `nn.dims` must be an array of strings on a shaped argument}}
func.func @dims_of_unranked(%a: tensor<*xf32> {nn.dims = ["batch"]}) {
  return
}

// -----

// expected-error @below {{attribute `nn.dims` of argument 0 has 1 entries, expected the rank 2}}
func.func @dims_rank(%a: tensor<4x4xf32> {nn.dims = ["batch"]}) {
  return
}

// -----

// expected-error @below {{attribute `nn.dims` of argument 0 has the entry "sequence", expected "batch", "seq" or ""}}
func.func @dims_names(%a: tensor<4x4xf32> {nn.dims = ["batch", "sequence"]}) {
  return
}

// -----

// expected-error @below {{argument 0 has an initial value but is no persistent tensor}}
func.func @init_of_input(%a: tensor<4xf32> {nn.role = "input", nn.init = #nn.init<constant, 0.0>}) {
  return
}

// -----

// expected-error @below {{is no rotary table, expected the shape LxPx2}}
func.func @rotary_init(%a: tensor<4xf32> {nn.role = "constant", nn.init = #nn.init<rotary, 10000.0>}) {
  return
}

// -----

// expected-error @below {{argument 0 has `nn.decay` but is no parameter}}
func.func @decay(%a: tensor<4xf32> {nn.role = "input", nn.decay}) {
  return
}

// -----

// expected-error @below {{attribute `nn.shape` is not known here}}
func.func @unknown_attribute(%a: tensor<4xf32> {nn.shape = "w"}) {
  return
}

// -----

// expected-error @below {{result 0 is an alias of `v`, which is no argument}}
func.func @alias(%a: tensor<4xf32> {nn.name = "w"}) -> (tensor<4xf32> {nn.alias = "v"}) {
  return %a : tensor<4xf32>
}

// -----

// expected-error @below {{result 0 of type 'tensor<4xf32>' is an alias of `v` of type 'tensor<5xf32>'}}
func.func @alias_type(%a: tensor<4xf32>, %b: tensor<5xf32> {nn.name = "v"}) -> (tensor<4xf32> {nn.alias = "v"}) {
  return %a : tensor<4xf32>
}

// -----

// expected-error @below {{results 0 and 1 are both aliases of `w`}}
func.func @alias_twice(%a: tensor<4xf32> {nn.name = "w"})
    -> (tensor<4xf32> {nn.alias = "w"}, tensor<4xf32> {nn.alias = "w"}) {
  return %a, %a : tensor<4xf32>, tensor<4xf32>
}

// -----

// expected-error @below {{objective has type 'tensor<4xi32>', expected a tensor of floating-point values}}
func.func @objective(%a: tensor<4xi32>) -> (tensor<4xi32> {nn.objective}) {
  return %a : tensor<4xi32>
}

// -----

// expected-error @below {{standard deviation (-1.000000e+00) must be at least 0}}
func.func @negative_deviation(%a: tensor<4xf32> {nn.role = "parameter", nn.init = #nn.init<normal, -1.0>}) {
  return
}

// -----

// expected-error @below {{attribute `nn.train` belongs on a function}}
module attributes {nn.train} {}

// -----

func.func @fill_scalar() {
  // expected-error @below {{fills 'f32', which is no tensor of static shape}}
  %0 = nn.fill 0.0 : f32
  return
}

// -----

func.func @fill_fraction() {
  // expected-error @below {{fills 'tensor<4xi32>' with 5.000000e-01, which is no 32-bit integer}}
  %0 = nn.fill 0.5 : tensor<4xi32>
  return
}

// -----

func.func @fill_large() {
  // expected-error @below {{fills 'tensor<4xi32>' with 2.147484e+09, which is no 32-bit integer}}
  %0 = nn.fill 2147483648.0 : tensor<4xi32>
  return
}

// -----

func.func @split_extent(%x: tensor<2x48xf32>) {
  // expected-error @+1 {{extent of all parts (40) must be equal to extent of the whole (48)}}
  %0:2 = nn.split %x {sizes = array<i64: 32, 8>} : (tensor<2x48xf32>) -> (tensor<2x32xf32>, tensor<2x8xf32>)
  return
}

// -----

func.func @split_nothing(%x: tensor<2x48xf32>) {
  // expected-error @+1 {{attribute 'sizes' failed to satisfy constraint: i64 dense array attribute whose value is positive}}
  %0:2 = nn.split %x {sizes = array<i64: 48, 0>} : (tensor<2x48xf32>) -> (tensor<2x48xf32>, tensor<2x0xf32>)
  return
}

// -----

func.func @split_no_parts(%x: tensor<2x48xf32>) {
  // expected-error @+1 {{has 0 parts, but needs 1 at least}}
  "nn.split"(%x) {sizes = array<i64>} : (tensor<2x48xf32>) -> ()
  return
}

// -----

func.func @concat_shapes(%x: tensor<2x48xf32>, %y: tensor<3x48xf32>) {
  // expected-error @+1 {{part has shape 3x48, expected 2x48}}
  %0 = nn.concat %x, %y : (tensor<2x48xf32>, tensor<3x48xf32>) -> tensor<2x96xf32>
  return
}

// -----

func.func @concat_ranks(%x: tensor<2x48xf32>, %y: tensor<1x2x48xf32>) {
  // expected-error @+1 {{part has shape 1x2x48, expected 2x96}}
  %0 = nn.concat %x, %y : (tensor<2x48xf32>, tensor<1x2x48xf32>) -> tensor<2x96xf32>
  return
}

// -----

func.func @concat_nothing() {
  // expected-error @+1 {{expected 1 or more operands, but found 0}}
  %0 = nn.concat : () -> tensor<2x96xf32>
  return
}

// -----

func.func @flatten_gap(%x: tensor<3x5xf32>, %y: tensor<2x5xf32>) {
  // expected-error @+1 {{has parts of 32 elements together, but the whole has 25}}
  %0 = nn.flatten %x, %y in ["x", "y"] : (tensor<3x5xf32>, tensor<2x5xf32>) -> tensor<5x5xf32>
  return
}

// -----

func.func @part(%x: tensor<16xf32>) {
  // expected-error @below {{has a part of 5 elements of 16}}
  %part = nn.slice_shard %x {shard = 0 : i64} : tensor<16xf32> -> tensor<5xf32>
  return
}

// -----

func.func @unflatten_into_one_tensor_twice(%x: tensor<32xf32>) {
  // expected-error @below {{'nn.unflatten' op names the tensor "x" twice}}
  %0, %1 = nn.unflatten %x in ["x", "x"] : (tensor<32xf32>) -> (tensor<16xf32>, tensor<16xf32>)
  return
}

// -----

func.func @fused_without_output(%x: tensor<4xf32>) {
  // expected-error @below {{'nn.fused' op must have at least one output}}
  "nn.fused"(%x) ({
  ^bb0(%0: tensor<4xf32>):
    "nn.yield"() : () -> ()
  }) : (tensor<4xf32>) -> ()
  return
}

// -----

// Products of extents do not wrap around.
func.func @many_rows(%x: tensor<4294967296x4294967296x8xf32>, %w: tensor<0x4xf32>) {
  // expected-error @below {{type 'tensor<4294967296x4294967296x8xf32>' has more than 281474976710656 elements}}
  %y = nn.matmul %x, %w {transpose_lhs} : (tensor<4294967296x4294967296x8xf32>, tensor<0x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

// expected-error @below {{argument 0 of type 'tensor<4xi32>' cannot start from #nn.init<normal}}
func.func @normal_integers(%x: tensor<4xi32> {nn.name = "x", nn.role = "state", nn.init = #nn.init<normal, 1.0>}) {
  return
}

// -----

// expected-error @below {{argument 0 of type 'tensor<4xi32>' cannot start from #nn.init<constant}}
func.func @large_integers(%x: tensor<4xi32> {nn.name = "x", nn.role = "state", nn.init = #nn.init<constant, 3.0e9>}) {
  return
}

// -----

func.func @eps_that_is_nothing(%x: tensor<4x8xf32>, %w: tensor<8xf32>) {
  // expected-error @below {{whose value is a normal number in fp32}}
  %y, %r = nn.rms_norm %x, %w {eps = 1.0e-300 : f64} : (tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return
}
