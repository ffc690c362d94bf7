// Layers of two and of four branches. The compressed branch of the first one
// chooses blocks, and is no branch of its sum.
#cmp = #nsa.compressed<block = 8, stride = 4>
#slc = #nsa.selected<block = 8, count = 2>
!ids = tensor<2x32xi32>
!x = tensor<2x32x32xf32>
!q = tensor<2x32x2x16xf32>
!k = tensor<2x32x1x16xf32>
!kc = tensor<2x7x1x16xf32>
!i = tensor<2x1x32x2xi32>
nn.module @branches {
  nn.parameter @embedding.weight : tensor<64x32xf32> = normal 0.02 decay
  nn.parameter @rotary : tensor<32x8x2xf32> [seq, _, _] = rotary 10000.0 frozen
  nn.parameter @norm.weight : tensor<32xf32> = constant 1.0
  nn.parameter @head.weight : tensor<64x32xf32> = normal 0.02 decay
  nn.scope @shared[0 to 2] named "layers" {
    nn.parameter @norm.weight : tensor<32xf32> = constant 1.0
    nn.parameter @query.weight : tensor<32x32xf32> = normal 0.02 decay
    nn.parameter @key.weight : tensor<16x32xf32> = normal 0.02 decay
    nn.parameter @value.weight : tensor<16x32xf32> = normal 0.02 decay
    nn.parameter @output.weight : tensor<32x32xf32> = normal 0.02 decay
  }
  nn.scope @two[0] named "layers" {
    nn.parameter @gate.weight : tensor<4x32xf32> = normal 0.02 decay
    nn.parameter @gate.bias : tensor<4xf32> = constant 0.0
  }
  nn.scope @four[1] named "layers" {
    nn.parameter @gate.weight : tensor<8x32xf32> = normal 0.02 decay
    nn.parameter @gate.bias : tensor<8xf32> = constant 0.0
  }
  nn.func @selection(%q: !q, %k: !k, %v: !k) -> (!q, !i) {
    %kb = nsa.compress mean %k by(#cmp) : (!k) -> !kc
    %vb = nsa.compress mean %v by(#cmp) : (!k) -> !kc
    %kr = nn.rope %kb, @rotary stride 4 : !kc
    %oc, %lc = nsa.attention %q, %kr, %vb visible(#cmp) : !q, !kc, !kc
    %i = nsa.select %q, %kr, %lc by(#cmp, #slc) : !q, !kc -> !i
    nn.return %oc, %i : !q, !i
  }
  nn.func @pair(%q: !q, %k: !k, %kr: !k, %v: !k, %z: tensor<2x32x4xf32>) -> !q {
    %oc, %i = nn.call @selection(%q, %k, %v) : (!q, !k, !k) -> (!q, !i)
    %os, %ls = nsa.attention %q, %kr, %v visible(#slc, %i : !i) : !q, !k, !k
    %ow, %lw = nsa.attention %q, %kr, %v visible(#nsa.window<8>) : !q, !k, !k
    %g = nn.gates softmax %z, @two::@gate.bias : tensor<2x32x4xf32> -> tensor<2x32x2x2xf32>
    %o = nsa.combine %g, %os, %ow : (tensor<2x32x2x2xf32>, !q, !q) -> !q
    nn.return %o : !q
  }
  nn.func @quartet(%q: !q, %k: !k, %kr: !k, %v: !k, %z: tensor<2x32x8xf32>) -> !q {
    %oc, %i = nn.call @selection(%q, %k, %v) : (!q, !k, !k) -> (!q, !i)
    %os, %ls = nsa.attention %q, %kr, %v visible(#slc, %i : !i) : !q, !k, !k
    %ow, %lw = nsa.attention %q, %kr, %v visible(#nsa.window<8>) : !q, !k, !k
    %od, %ld = nsa.attention %q, %kr, %v visible(#nsa.strided<block = 4, stride = 4>) : !q, !k, !k
    %g = nn.gates sigmoid %z, @four::@gate.bias : tensor<2x32x8xf32> -> tensor<2x32x2x4xf32>
    %o = nsa.combine %g, %oc, %os, %ow, %od : (tensor<2x32x2x4xf32>, !q, !q, !q, !q) -> !q
    nn.return %o : !q
  }
  nn.func @heads(%h: !x) -> (!q, !k, !k, !k) {
    %q = nn.linear %h, @shared::@query.weight heads 2 : !x -> !q
    %k = nn.linear %h, @shared::@key.weight heads 1 : !x -> !k
    %v = nn.linear %h, @shared::@value.weight heads 1 : !x -> !k
    %qr = nn.rope %q, @rotary : !q
    %kr = nn.rope %k, @rotary : !k
    nn.return %qr, %k, %kr, %v : !q, !k, !k, !k
  }
  nn.func @finish(%x: !x, %o: !q) -> !x {
    %m = nn.merge_heads %o : (!q) -> !x
    %y = nn.linear %m, @shared::@output.weight : !x -> !x
    %z = nn.add %x, %y : (!x, !x) -> !x
    nn.return %z : !x
  }
  nn.func train @model(%tokens: !ids [batch, seq], %targets: !ids [batch, seq]) -> (loss: tensor<f32>, logits: tensor<2x32x64xf32>) {
    %x = nn.embed %tokens, @embedding.weight : !ids -> !x
    %first = nn.repeat @two, @shared at 0 (%a = %x : !x) {
      %h = nn.norm %a, @shared::@norm.weight eps 1.0e-5 : !x
      %q, %k, %kr, %v = nn.call @heads(%h) : (!x) -> (!q, !k, !k, !k)
      %z = nn.linear %h, @two::@gate.weight : !x -> tensor<2x32x4xf32>
      %o = nn.call @pair(%q, %k, %kr, %v, %z) : (!q, !k, !k, !k, tensor<2x32x4xf32>) -> !q
      %y = nn.call @finish(%a, %o) : (!x, !q) -> !x
      nn.next %y : !x
    }
    %second = nn.repeat @four, @shared at 1 (%a = %first : !x) {
      %h = nn.norm %a, @shared::@norm.weight eps 1.0e-5 : !x
      %q, %k, %kr, %v = nn.call @heads(%h) : (!x) -> (!q, !k, !k, !k)
      %z = nn.linear %h, @four::@gate.weight : !x -> tensor<2x32x8xf32>
      %o = nn.call @quartet(%q, %k, %kr, %v, %z) : (!q, !k, !k, !k, tensor<2x32x8xf32>) -> !q
      %y = nn.call @finish(%a, %o) : (!x, !q) -> !x
      nn.next %y : !x
    }
    %n = nn.norm %second, @norm.weight eps 1.0e-5 : !x
    %logits = nn.linear %n, @head.weight : !x -> tensor<2x32x64xf32>
    %loss, %lse, %count = nn.cross_entropy %logits, %targets
        : (tensor<2x32x64xf32>, !ids) -> (tensor<f32>, tensor<2x32xf32>, tensor<f32>)
    nn.return %loss, %logits : tensor<f32>, tensor<2x32x64xf32>
  }
}
