// RUN: nsa-opt %s --nsa-derive-decode=context=256 --split-input-file --verify-diagnostics | FileCheck %s

// A causal and a window layer: keys and values of all tokens, and of the 64
// that whole tiles of the window need.
// CHECK-LABEL: func.func @prefill
// CHECK-SAME: tensor<2x32xi32> {nn.dims = ["batch", "seq"], nn.name = "tokens"
// CHECK-SAME: tensor<256x8x2xf32> {{{.*}}nn.name = "rotary"
// CHECK-SAME: %[[LAST:[^:]*]]: tensor<2xi32> {nn.name = "positions", nn.role = "input"}
// CHECK-SAME: tensor<2x256x1x16xf32> {nn.init = #nn.init<constant, 0.000000e+00>, nn.name = "cache.0", nn.role = "state"}
// CHECK-SAME: tensor<2x64x1x16xf32> {{{.*}}nn.name = "cache.1"
// CHECK-SAME: (tensor<2x1x8xf32> {nn.name = "next_logits"}, tensor<2x256x1x16xf32> {nn.alias = "cache.0"}
// CHECK: %[[X:.*]] = nn.add
// CHECK: %[[ROW:.*]] = nsa.take_row %[[X]], %[[LAST]]
// CHECK: nn.matmul %[[ROW]]
// CHECK: nsa.cache_fill %{{.*}}, %{{.*}}, %[[LAST]]

// CHECK-LABEL: func.func @decode
// CHECK-SAME: tensor<2x1xi32> {nn.name = "token", nn.role = "input"}
// CHECK-SAME: %[[AT:[^:]*]]: tensor<2xi32> {nn.name = "positions"
// CHECK: %[[Q:.*]] = nsa.rotary_at %{{.*}}, %{{.*}}, %[[AT]] : (tensor<2x1x1x16xf32>, tensor<256x8x2xf32>
// CHECK: %[[ALL:.*]] = nsa.cache_append %{{.*}}, %[[Q]], %[[AT]] : (tensor<2x256x1x16xf32>
// CHECK: nsa.decode_attention %[[Q]], %[[ALL]], %[[ALL]] at %[[AT]] visible(#nsa.causal)
// CHECK: nsa.cache_append %{{.*}}, %{{.*}}, %[[AT]] : (tensor<2x64x1x16xf32>
// CHECK: nsa.decode_attention {{.*}} visible(#nsa.window<9>)
// CHECK-NOT: @model
func.func @model(%tokens: tensor<2x32xi32> {nn.dims = ["batch", "seq"], nn.name = "tokens", nn.role = "input"},
    %embedding: tensor<8x16xf32> {nn.init = #nn.init<normal, 0.02>, nn.name = "embedding", nn.role = "parameter"},
    %table: tensor<32x8x2xf32> {nn.dims = ["seq", "", ""], nn.init = #nn.init<rotary, 10000.0>, nn.name = "rotary", nn.role = "constant"})
    -> (tensor<2x32x8xf32> {nn.name = "logits"}) attributes {nn.train} {
  %x = nn.embedding %embedding, %tokens : (tensor<8x16xf32>, tensor<2x32xi32>) -> tensor<2x32x16xf32>
  %q = nn.split_heads %x {heads = 1 : i64} : (tensor<2x32x16xf32>) -> tensor<2x32x1x16xf32>
  %r = nn.rotary %q, %table : (tensor<2x32x1x16xf32>, tensor<32x8x2xf32>) -> tensor<2x32x1x16xf32>
  %o, %l = nsa.attention %r, %r, %r visible(#nsa.causal) : tensor<2x32x1x16xf32>, tensor<2x32x1x16xf32>, tensor<2x32x1x16xf32>
  %w, %m = nsa.attention %o, %o, %o visible(#nsa.window<9>) : tensor<2x32x1x16xf32>, tensor<2x32x1x16xf32>, tensor<2x32x1x16xf32>
  %y = nn.merge_heads %w : (tensor<2x32x1x16xf32>) -> tensor<2x32x16xf32>
  %z = nn.add %x, %y : (tensor<2x32x16xf32>, tensor<2x32x16xf32>) -> tensor<2x32x16xf32>
  %logits = nn.matmul %z, %embedding {transpose_rhs} : (tensor<2x32x16xf32>, tensor<8x16xf32>) -> tensor<2x32x8xf32>
  return %logits : tensor<2x32x8xf32>
}

// -----

// The three steps of selection: compressed rows have caches of their own, and
// the last tokens of a block make one.
// CHECK-LABEL: func.func @decode
// CHECK: %[[LAST:.*]], %[[DONE:.*]] = nsa.last_block %[[AT:.*]] by(#nsa.compressed<block = 8, stride = 4>)
// CHECK: %[[TOKENS:.*]] = nsa.cache_read %{{.*}}, %[[AT]] {count = 8 : i64}
// CHECK: %[[NEW:.*]] = nsa.compress mean %[[TOKENS]]
// CHECK: %[[KEPT:.*]] = nsa.cache_append %{{.*}}, %[[NEW]], %[[DONE]] : (tensor<2x63x1x16xf32>
// CHECK: nsa.decode_select %{{.*}}, %[[KEPT]], {{.*}}context = 256 : i64{{.*}}count = 16>
// CHECK: nsa.decode_attention {{.*}} visible(#nsa.selected<block = 16, count = 20>
func.func @model(%tokens: tensor<2x32xi32> {nn.dims = ["batch", "seq"], nn.name = "tokens", nn.role = "input"},
    %embedding: tensor<8x16xf32> {nn.init = #nn.init<normal, 0.02>, nn.name = "embedding", nn.role = "parameter"})
    -> (tensor<2x32x16xf32> {nn.name = "logits"}) attributes {nn.train} {
  %x = nn.embedding %embedding, %tokens : (tensor<8x16xf32>, tensor<2x32xi32>) -> tensor<2x32x16xf32>
  %q = nn.split_heads %x {heads = 1 : i64} : (tensor<2x32x16xf32>) -> tensor<2x32x1x16xf32>
  %c = nsa.compress mean %q by(#nsa.compressed<block = 8, stride = 4>) : (tensor<2x32x1x16xf32>) -> tensor<2x7x1x16xf32>
  %o, %l = nsa.attention %q, %c, %c visible(#nsa.compressed<block = 8, stride = 4>) : tensor<2x32x1x16xf32>, tensor<2x7x1x16xf32>, tensor<2x7x1x16xf32>
  %i = nsa.select %q, %c, %l by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16, count = 20>)
      : tensor<2x32x1x16xf32>, tensor<2x7x1x16xf32> -> tensor<2x1x32x20xi32>
  %s, %m = nsa.attention %q, %q, %q visible(#nsa.selected<block = 16, count = 20>, %i : tensor<2x1x32x20xi32>)
      : tensor<2x32x1x16xf32>, tensor<2x32x1x16xf32>, tensor<2x32x1x16xf32>
  %y = nn.merge_heads %s : (tensor<2x32x1x16xf32>) -> tensor<2x32x16xf32>
  return %y : tensor<2x32x16xf32>
}

// -----

// Documents that do not see each other: one that is generated begins with token
// 0. Packed sequences have a compressed row for each stride, others have fewer.
// CHECK-LABEL: func.func @prefill
// CHECK-NOT: start
// CHECK: nsa.compress mean %[[X:[^ ]*]] by({{.*}}) : (tensor<2x32x1x16xf32>) -> tensor<2x7x1x16xf32>
// CHECK: nsa.attention %[[X]], {{.*}} : tensor<2x32x1x16xf32>, tensor<2x7x1x16xf32>
// CHECK-LABEL: func.func @decode
// CHECK-NOT: start
func.func @model(%tokens: tensor<2x32xi32> {nn.dims = ["batch", "seq"], nn.name = "tokens", nn.role = "input"},
    %start: tensor<2x32xi32> {nn.dims = ["batch", "seq"], nn.name = "start", nn.role = "input"},
    %embedding: tensor<8x16xf32> {nn.init = #nn.init<normal, 0.02>, nn.name = "embedding", nn.role = "parameter"})
    -> (tensor<2x32x16xf32> {nn.name = "logits"}) attributes {nn.train} {
  %x = nn.embedding %embedding, %tokens : (tensor<8x16xf32>, tensor<2x32xi32>) -> tensor<2x32x16xf32>
  %q = nn.split_heads %x {heads = 1 : i64} : (tensor<2x32x16xf32>) -> tensor<2x32x1x16xf32>
  %c = nsa.compress mean %q start(%start) by(#nsa.compressed<block = 8, stride = 4>) : (tensor<2x32x1x16xf32>, tensor<2x32xi32>) -> tensor<2x8x1x16xf32>
  %o, %l = nsa.attention %q, %c, %c visible(#nsa.compressed<block = 8, stride = 4>) start(%start : tensor<2x32xi32>) : tensor<2x32x1x16xf32>, tensor<2x8x1x16xf32>, tensor<2x8x1x16xf32>
  %y = nn.merge_heads %o : (tensor<2x32x1x16xf32>) -> tensor<2x32x16xf32>
  return %y : tensor<2x32x16xf32>
}

// -----

// Sequences that are packed by anything else than documents have no caches.
func.func @model(%tokens: tensor<2x32xi32> {nn.dims = ["batch", "seq"], nn.name = "tokens", nn.role = "input"},
    %embedding: tensor<8x16xf32> {nn.init = #nn.init<normal, 0.02>, nn.name = "embedding", nn.role = "parameter"})
    -> (tensor<2x32x16xf32> {nn.name = "logits"}) attributes {nn.train} {
  %x = nn.embedding %embedding, %tokens : (tensor<8x16xf32>, tensor<2x32xi32>) -> tensor<2x32x16xf32>
  %q = nn.split_heads %x {heads = 1 : i64} : (tensor<2x32x16xf32>) -> tensor<2x32x1x16xf32>
  // expected-error@+1 {{packs sequences, which have no caches}}
  %o, %l = nsa.attention %q, %q, %q visible(#nsa.causal) start(%tokens : tensor<2x32xi32>) : tensor<2x32x1x16xf32>, tensor<2x32x1x16xf32>, tensor<2x32x1x16xf32>
  %y = nn.merge_heads %o : (tensor<2x32x1x16xf32>) -> tensor<2x32x16xf32>
  return %y : tensor<2x32x16xf32>
}

// -----

// A learned table of positions ends.
func.func @model(%tokens: tensor<2x32xi32> {nn.dims = ["batch", "seq"], nn.name = "tokens", nn.role = "input"},
    // expected-error@+1 {{'positions' is as long as a sequence and no table of angles: it has no values for a context of 256 tokens}}
    %table: tensor<2x32x16xf32> {nn.dims = ["", "seq", ""], nn.init = #nn.init<normal, 0.02>, nn.name = "positions", nn.role = "parameter"},
    %embedding: tensor<8x16xf32> {nn.init = #nn.init<normal, 0.02>, nn.name = "embedding", nn.role = "parameter"})
    -> (tensor<2x32x16xf32> {nn.name = "logits"}) attributes {nn.train} {
  %x = nn.embedding %embedding, %tokens : (tensor<8x16xf32>, tensor<2x32xi32>) -> tensor<2x32x16xf32>
  %y = nn.add %x, %table : (tensor<2x32x16xf32>, tensor<2x32x16xf32>) -> tensor<2x32x16xf32>
  return %y : tensor<2x32x16xf32>
}

// -----

// expected-error@below {{option context (256) has no effect: no function is marked nn.train}}
module {
}

// -----

// Queries of a part of a sequence are none that caches begin with.
func.func @model(%tokens: tensor<2x32xi32> {nn.dims = ["batch", "seq"], nn.name = "tokens", nn.role = "input"},
    %embedding: tensor<8x16xf32> {nn.init = #nn.init<normal, 0.02>, nn.name = "embedding", nn.role = "parameter"},
    %at: tensor<2x2xi32> {nn.name = "at", nn.role = "input"})
    -> (tensor<2x32x16xf32> {nn.name = "logits"}) attributes {nn.train} {
  %x = nn.embedding %embedding, %tokens : (tensor<8x16xf32>, tensor<2x32xi32>) -> tensor<2x32x16xf32>
  %q = nn.split_heads %x {heads = 1 : i64} : (tensor<2x32x16xf32>) -> tensor<2x32x1x16xf32>
  // expected-error@+1 {{has queries inside of longer sequences, which have no caches}}
  %o, %l = nsa.attention %q, %q, %q visible(#nsa.causal) at(%at : tensor<2x2xi32>) : tensor<2x32x1x16xf32>, tensor<2x32x1x16xf32>, tensor<2x32x1x16xf32>
  %y = nn.merge_heads %o : (tensor<2x32x1x16xf32>) -> tensor<2x32x16xf32>
  return %y : tensor<2x32x16xf32>
}
