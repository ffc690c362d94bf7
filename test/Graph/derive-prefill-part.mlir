// RUN: nsa-opt %s '--nsa-derive-decode=context=256 prefill-chunk=16' --split-input-file --verify-diagnostics | FileCheck %s
// RUN: nsa-opt %s '--nsa-derive-decode=context=256 prefill-chunk=16 pages=20' --split-input-file --verify-diagnostics \
// RUN:   | FileCheck %s --check-prefix=PAGES

// A part is of one of the sequences. It compresses what it may complete, of
// tokens that the cache has; queries see keys at their positions.
// CHECK-LABEL: func.func @prefill_part
// CHECK-SAME: tensor<1x16xi32> {nn.name = "part_tokens", nn.role = "input"}
// CHECK-SAME: %[[LAST:[^:]*]]: tensor<1xi32> {nn.name = "part_last", nn.role = "input"}, %[[AT:[^:]*]]: tensor<1x2xi32> {nn.name = "part_at"
// CHECK-SAME: %[[CACHE:[^:]*]]: tensor<2x256x1x16xf32> {{{.*}}nn.name = "cache.0"
// CHECK-SAME: tensor<2x63x1x16xf32> {{{.*}}nn.name = "cache.1"
// CHECK-SAME: (tensor<1x1x16xf32> {nn.name = "part_logits"}, tensor<2x256x1x16xf32> {nn.alias = "cache.0"}
// CHECK-DAG: %[[END:.*]], %{{.*}} = nsa.last_block %[[LAST]] by(#nsa.compressed<block = 8, stride = 4>)
// CHECK-DAG: %[[FIRST:.*]] = nsa.first_block %[[AT]] by(#nsa.compressed<block = 8, stride = 4>)
// CHECK: %[[Q:.*]] = nn.rotary %{{.*}}, %{{.*}} at(%[[AT]])
// CHECK: %[[ALL:.*]] = nsa.cache_fill %[[CACHE]], %[[Q]], %[[LAST]], %[[AT]]
// CHECK: %[[TOKENS:.*]] = nsa.cache_slice %[[ALL]], %[[FIRST]] {count = 20 : i64, stride = 4 : i64}
// CHECK: %[[NEW:.*]] = nsa.compress mean %[[TOKENS]] {{.*}} -> tensor<1x4x1x16xf32>
// CHECK: %[[KEPT:.*]] = nsa.cache_fill %{{.*}}, %[[NEW]], %[[END]], %[[FIRST]]
// CHECK: nsa.select %[[Q]], %[[KEPT]], {{.*}} at(%[[AT]] {{.*}} count = 16>)
// CHECK: nsa.attention %[[Q]], %[[ALL]], %[[ALL]] visible(#nsa.selected<block = 16, count = 20>, {{.*}} at(%[[AT]]
// CHECK: nsa.attention {{.*}} visible(#nsa.window<9>) at(%[[AT]]
// CHECK: nsa.take_row %{{.*}}, %[[LAST]], %[[AT]]

// CHECK-LABEL: func.func @copy_prefix
// CHECK-SAME: %[[LAST:[^:]*]]: tensor<1xi32> {nn.name = "part_last", nn.role = "input"}, %[[AT:[^:]*]]: tensor<1x2xi32>
// CHECK-SAME: %[[FROM:[^:]*]]: tensor<1x2xi32> {nn.name = "part_from", nn.role = "input"}
// CHECK: %[[ROWS:.*]] = nsa.cache_slice %[[CACHE:.*]], %[[FROM]] {count = 256 : i64}
// CHECK: nsa.cache_fill %[[CACHE]], %[[ROWS]], %[[LAST]], %[[AT]]

// Windows keep all rows as well.
// CHECK-LABEL: func.func @decode
// CHECK: nsa.cache_append %{{.*}} : (tensor<2x256x1x16xf32>
// CHECK: nsa.decode_attention {{.*}} visible(#nsa.window<9>)
// CHECK-NOT: @prefill(

// Rows of tokens are in pages of a selected block. What queries of a part see are
// the rows of its sequence alone, compressed ones too.
// PAGES-LABEL: func.func @prefill_part
// PAGES-SAME: %[[LAST:[^:]*]]: tensor<1xi32> {nn.name = "part_last", nn.role = "input"}, %[[AT:[^:]*]]: tensor<1x2xi32> {nn.name = "part_at"
// PAGES-SAME: %[[PAGES:[^:]*]]: tensor<2x16xi32> {nn.name = "pages", nn.role = "input"}, %[[OWN:[^:]*]]: tensor<1x2xi32> {nn.name = "part_position"
// PAGES-SAME: %[[CACHE:[^:]*]]: tensor<20x16x1x16xf32> {{{.*}}nn.name = "cache.pages.0"
// PAGES-SAME: tensor<2x63x1x16xf32> {{{.*}}nn.name = "cache.1"
// PAGES: %[[ALL:.*]] = nsa.cache_fill %[[CACHE]], %{{.*}}, %[[LAST]], %[[AT]] pages %[[PAGES]]
// PAGES: nsa.cache_slice %[[ALL]], %{{.*}}, %[[PAGES]] {count = 20 : i64, stride = 4 : i64}
// PAGES: %[[BLOCKS:.*]] = nsa.cache_slice %{{.*}}, %[[AT]] {count = 63 : i64, stride = 0 : i64}
// PAGES: nsa.select %{{.*}}, %[[BLOCKS]], {{.*}} at(%[[OWN]]
// PAGES: %[[OF:.*]] = nsa.cache_slice %[[ALL]], %[[AT]], %[[PAGES]] {count = 256 : i64, stride = 0 : i64}
// PAGES: nsa.attention %{{.*}}, %[[OF]], %[[OF]] visible(#nsa.selected<block = 16, count = 20>, {{.*}} at(%[[OWN]]

// PAGES-LABEL: func.func @copy_prefix
// PAGES-NOT: cache.pages
// PAGES: nsa.cache_fill {{.*}} -> tensor<2x63x1x16xf32>

// PAGES-LABEL: func.func @decode
// PAGES: nsa.cache_append {{.*}} -> tensor<20x16x1x16xf32>
// PAGES: nsa.cache_read %{{.*}}, %{{.*}}, %[[TABLE:.*]] {count = 8 : i64}
// PAGES: nsa.decode_attention {{.*}} at %{{[^ ]*}} visible(#nsa.compressed
// PAGES: nsa.decode_attention {{.*}} pages %[[TABLE]] visible(#nsa.selected
// PAGES: nsa.decode_attention {{.*}} pages %[[TABLE]] visible(#nsa.window
func.func @model(%tokens: tensor<2x32xi32> {nn.dims = ["batch", "seq"], nn.name = "tokens", nn.role = "input"},
    %embedding: tensor<8x16xf32> {nn.init = #nn.init<normal, 0.02>, nn.name = "embedding", nn.role = "parameter"},
    %table: tensor<32x8x2xf32> {nn.dims = ["seq", "", ""], nn.init = #nn.init<rotary, 10000.0>, nn.name = "rotary", nn.role = "constant"})
    -> (tensor<2x32x16xf32> {nn.name = "logits"}) attributes {nn.train} {
  %x = nn.embedding %embedding, %tokens : (tensor<8x16xf32>, tensor<2x32xi32>) -> tensor<2x32x16xf32>
  %h = nn.split_heads %x {heads = 1 : i64} : (tensor<2x32x16xf32>) -> tensor<2x32x1x16xf32>
  %q = nn.rotary %h, %table : (tensor<2x32x1x16xf32>, tensor<32x8x2xf32>) -> tensor<2x32x1x16xf32>
  %c = nsa.compress mean %q by(#nsa.compressed<block = 8, stride = 4>) : (tensor<2x32x1x16xf32>) -> tensor<2x7x1x16xf32>
  %o, %l = nsa.attention %q, %c, %c visible(#nsa.compressed<block = 8, stride = 4>) : tensor<2x32x1x16xf32>, tensor<2x7x1x16xf32>, tensor<2x7x1x16xf32>
  %i = nsa.select %q, %c, %l by(#nsa.compressed<block = 8, stride = 4>, #nsa.selected<block = 16, count = 20>)
      : tensor<2x32x1x16xf32>, tensor<2x7x1x16xf32> -> tensor<2x1x32x20xi32>
  %s, %m = nsa.attention %q, %q, %q visible(#nsa.selected<block = 16, count = 20>, %i : tensor<2x1x32x20xi32>)
      : tensor<2x32x1x16xf32>, tensor<2x32x1x16xf32>, tensor<2x32x1x16xf32>
  %w, %n = nsa.attention %s, %s, %o visible(#nsa.window<9>) : tensor<2x32x1x16xf32>, tensor<2x32x1x16xf32>, tensor<2x32x1x16xf32>
  %y = nn.merge_heads %w : (tensor<2x32x1x16xf32>) -> tensor<2x32x16xf32>
  return %y : tensor<2x32x16xf32>
}

// -----

// Learned positions have no values past their table.
func.func @model(%tokens: tensor<2x32xi32> {nn.dims = ["batch", "seq"], nn.name = "tokens", nn.role = "input"},
    %embedding: tensor<8x16xf32> {nn.init = #nn.init<normal, 0.02>, nn.name = "embedding", nn.role = "parameter"},
    // expected-error@+1 {{'positions' is as long as a sequence and no table of angles: it has no values for a context of 256 tokens}}
    %table: tensor<2x32x16xf32> {nn.dims = ["", "seq", ""], nn.init = #nn.init<normal, 0.02>, nn.name = "positions", nn.role = "parameter"})
    -> (tensor<2x32x16xf32> {nn.name = "logits"}) attributes {nn.train} {
  %x = nn.embedding %embedding, %tokens : (tensor<8x16xf32>, tensor<2x32xi32>) -> tensor<2x32x16xf32>
  %y = nn.add %x, %table : (tensor<2x32x16xf32>, tensor<2x32x16xf32>) -> tensor<2x32x16xf32>
  return %y : tensor<2x32x16xf32>
}

// -----

func.func @model(%tokens: tensor<1x30xi32> {nn.dims = ["batch", "seq"], nn.name = "tokens", nn.role = "input"},
    %embedding: tensor<8x16xf32> {nn.init = #nn.init<normal, 0.02>, nn.name = "embedding", nn.role = "parameter"})
    -> (tensor<1x30x16xf32> {nn.name = "logits"}) attributes {nn.train} {
  %x = nn.embedding %embedding, %tokens : (tensor<8x16xf32>, tensor<1x30xi32>) -> tensor<1x30x16xf32>
  %q = nn.split_heads %x {heads = 1 : i64} : (tensor<1x30x16xf32>) -> tensor<1x30x1x16xf32>
  // expected-error@+1 {{has the stride 5, of which a part of 16 tokens is no multiple}}
  %c = nsa.compress mean %q by(#nsa.compressed<block = 10, stride = 5>) : (tensor<1x30x1x16xf32>) -> tensor<1x5x1x16xf32>
  %o, %l = nsa.attention %q, %c, %c visible(#nsa.compressed<block = 10, stride = 5>) : tensor<1x30x1x16xf32>, tensor<1x5x1x16xf32>, tensor<1x5x1x16xf32>
  %y = nn.merge_heads %o : (tensor<1x30x1x16xf32>) -> tensor<1x30x16xf32>
  return %y : tensor<1x30x16xf32>
}
