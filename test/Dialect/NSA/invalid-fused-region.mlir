// RUN: nsa-opt %s --split-input-file --verify-diagnostics

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>

func.func @inputs(%q: !q, %k: !k, %i: !i, %z: !z) {
  // expected-error @below {{has inputs of types 'tensor<1x16x2x4xf32>', 'tensor<1x16x1x4xf32>', 'tensor<1x1x16x2xi32>', 'tensor<1x16x2x4xf32>', but its body takes}}
  %r:2 = nsa.fused %q, %k, %i, %q : (!q, !k, !i, !q) -> (!q, !q) {
  ^bb0(%x: !q, %key: !k, %idx: !i, %logits: !z):
    %os, %ls = nsa.attention %x, %key, %key visible(#nsa.selected<block = 8>, %idx : !i) : !q, !k, !k
    %ow, %lw = nsa.attention %x, %key, %key visible(#nsa.window<6>) : !q, !k, !k
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %sum = nsa.combine %gates, %os, %ow : (!g, !q, !q) -> !q
    nsa.yield %sum, %ow : !q, !q
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!l = tensor<1x2x16xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>

func.func @results(%q: !q, %k: !k, %i: !i, %z: !z) {
  %r:2 = nsa.fused %q, %k, %i, %z : (!q, !k, !i, !z) -> (!q, !q) {
  ^bb0(%x: !q, %key: !k, %idx: !i, %logits: !z):
    %os, %ls = nsa.attention %x, %key, %key visible(#nsa.selected<block = 8>, %idx : !i) : !q, !k, !k
    %ow, %lw = nsa.attention %x, %key, %key visible(#nsa.window<6>) : !q, !k, !k
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %sum = nsa.combine %gates, %os, %ow : (!g, !q, !q) -> !q
    // expected-error @below {{gives values of types 'tensor<1x16x2x4xf32>', 'tensor<1x2x16xf32>', but the results have 'tensor<1x16x2x4xf32>', 'tensor<1x16x2x4xf32>'}}
    nsa.yield %sum, %lw : !q, !l
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>

func.func @input_as_result(%q: !q, %k: !k, %i: !i, %z: !z) {
  %r:2 = nsa.fused %q, %k, %i, %z : (!q, !k, !i, !z) -> (!q, !q) {
  ^bb0(%x: !q, %key: !k, %idx: !i, %logits: !z):
    %os, %ls = nsa.attention %x, %key, %key visible(#nsa.selected<block = 8>, %idx : !i) : !q, !k, !k
    %ow, %lw = nsa.attention %x, %key, %key visible(#nsa.window<6>) : !q, !k, !k
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %sum = nsa.combine %gates, %os, %ow : (!g, !q, !q) -> !q
    // expected-error @below {{gives an input as it is}}
    nsa.yield %sum, %x : !q, !q
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>

func.func @sum_second(%q: !q, %k: !k, %i: !i, %z: !z) {
  %r:2 = nsa.fused %q, %k, %i, %z : (!q, !k, !i, !z) -> (!q, !q) {
  ^bb0(%x: !q, %key: !k, %idx: !i, %logits: !z):
    %os, %ls = nsa.attention %x, %key, %key visible(#nsa.selected<block = 8>, %idx : !i) : !q, !k, !k
    %ow, %lw = nsa.attention %x, %key, %key visible(#nsa.window<6>) : !q, !k, !k
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %sum = nsa.combine %gates, %os, %ow : (!g, !q, !q) -> !q
    // expected-error @below {{must give the sum first}}
    nsa.yield %ow, %sum : !q, !q
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>

func.func @other_op(%q: !q, %k: !k, %i: !i, %z: !z) {
  %r:2 = nsa.fused %q, %k, %i, %z : (!q, !k, !i, !z) -> (!q, !q) {
  ^bb0(%x: !q, %key: !k, %idx: !i, %logits: !z):
    %os, %ls = nsa.attention %x, %key, %key visible(#nsa.selected<block = 8>, %idx : !i) : !q, !k, !k
    %ow, %lw = nsa.attention %x, %key, %key visible(#nsa.window<6>) : !q, !k, !k
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    // expected-error @below {{cannot be fused}}
    %s = nn.silu %x : (!q) -> !q
    %sum = nsa.combine %gates, %os, %s : (!g, !q, !q) -> !q
    nsa.yield %sum, %ow : !q, !q
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>

func.func @two_sums(%q: !q, %k: !k, %i: !i, %z: !z) {
  %r:2 = nsa.fused %q, %k, %i, %z : (!q, !k, !i, !z) -> (!q, !q) {
  ^bb0(%x: !q, %key: !k, %idx: !i, %logits: !z):
    %os, %ls = nsa.attention %x, %key, %key visible(#nsa.selected<block = 8>, %idx : !i) : !q, !k, !k
    %ow, %lw = nsa.attention %x, %key, %key visible(#nsa.window<6>) : !q, !k, !k
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %sum = nsa.combine %gates, %os, %ow : (!g, !q, !q) -> !q
    // expected-error @below {{is the second one of its kind in a kernel}}
    %more = nsa.combine %gates, %os, %ow : (!g, !q, !q) -> !q
    nsa.yield %sum, %more : !q, !q
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>

func.func @no_sum(%q: !q, %k: !k, %i: !i, %z: !z) {
  // expected-error @below {{has no 'nsa.combine'}}
  %r:2 = nsa.fused %q, %k, %i, %z : (!q, !k, !i, !z) -> (!q, !q) {
  ^bb0(%x: !q, %key: !k, %idx: !i, %logits: !z):
    %os, %ls = nsa.attention %x, %key, %key visible(#nsa.selected<block = 8>, %idx : !i) : !q, !k, !k
    %ow, %lw = nsa.attention %x, %key, %key visible(#nsa.window<6>) : !q, !k, !k
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    nsa.yield %os, %ow : !q, !q
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>

func.func @chain(%q: !q, %k: !k, %i: !i, %z: !z) {
  %r:2 = nsa.fused %q, %k, %i, %z : (!q, !k, !i, !z) -> (!q, !q) {
  ^bb0(%x: !q, %key: !k, %idx: !i, %logits: !z):
    %os, %ls = nsa.attention %x, %key, %key visible(#nsa.selected<block = 8>, %idx : !i) : !q, !k, !k
    // expected-error @below {{operand 1 is computed inside, where no kernel has it}}
    %ow, %lw = nsa.attention %x, %os, %os visible(#nsa.window<6>) : !q, !q, !q
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %sum = nsa.combine %gates, %os, %ow : (!g, !q, !q) -> !q
    nsa.yield %sum, %ow : !q, !q
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>

func.func @branch_twice(%q: !q, %k: !k, %i: !i, %z: !z) {
  %r:2 = nsa.fused %q, %k, %i, %z : (!q, !k, !i, !z) -> (!q, !q) {
  ^bb0(%x: !q, %key: !k, %idx: !i, %logits: !z):
    // expected-error @below {{is not one branch of the sum}}
    %os, %ls = nsa.attention %x, %key, %key visible(#nsa.selected<block = 8>, %idx : !i) : !q, !k, !k
    %ow, %lw = nsa.attention %x, %key, %key visible(#nsa.window<6>) : !q, !k, !k
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %sum = nsa.combine %gates, %ow, %ow : (!g, !q, !q) -> !q
    nsa.yield %sum, %ow : !q, !q
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>

func.func @blocks(%q: !q, %k: !k, %i: !i, %z: !z) {
  %r:2 = nsa.fused %q, %k, %i, %z : (!q, !k, !i, !z) -> (!q, !q) {
  ^bb0(%x: !q, %key: !k, %idx: !i, %logits: !z):
    %os, %ls = nsa.attention %x, %key, %key visible(#nsa.selected<block = 8>, %idx : !i) : !q, !k, !k
    // expected-error @below {{attends to rows of blocks, which come before the selection}}
    %ow, %lw = nsa.attention %x, %key, %key visible(#nsa.compressed<block = 1, stride = 1>) : !q, !k, !k
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %sum = nsa.combine %gates, %os, %ow : (!g, !q, !q) -> !q
    nsa.yield %sum, %ow : !q, !q
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>

func.func @two_selected(%q: !q, %k: !k, %i: !i, %z: !z) {
  %r:2 = nsa.fused %q, %k, %i, %z : (!q, !k, !i, !z) -> (!q, !q) {
  ^bb0(%x: !q, %key: !k, %idx: !i, %logits: !z):
    %os, %ls = nsa.attention %x, %key, %key visible(#nsa.selected<block = 8>, %idx : !i) : !q, !k, !k
    // expected-error @below {{is the second branch with indices}}
    %ow, %lw = nsa.attention %x, %key, %key visible(#nsa.selected<block = 16>, %idx : !i) : !q, !k, !k
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %sum = nsa.combine %gates, %os, %ow : (!g, !q, !q) -> !q
    nsa.yield %sum, %ow : !q, !q
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>

func.func @none_selected(%q: !q, %k: !k, %i: !i, %z: !z) {
  // expected-error @below {{has no branch with indices}}
  %r:2 = nsa.fused %q, %k, %i, %z : (!q, !k, !i, !z) -> (!q, !q) {
  ^bb0(%x: !q, %key: !k, %idx: !i, %logits: !z):
    %os, %ls = nsa.attention %x, %key, %key visible(#nsa.causal) : !q, !k, !k
    %ow, %lw = nsa.attention %x, %key, %key visible(#nsa.window<6>) : !q, !k, !k
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %sum = nsa.combine %gates, %os, %ow : (!g, !q, !q) -> !q
    nsa.yield %sum, %ow : !q, !q
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>

func.func @scales(%q: !q, %k: !k, %i: !i, %z: !z) {
  %r:2 = nsa.fused %q, %k, %i, %z : (!q, !k, !i, !z) -> (!q, !q) {
  ^bb0(%x: !q, %key: !k, %idx: !i, %logits: !z):
    %os, %ls = nsa.attention %x, %key, %key visible(#nsa.selected<block = 8>, %idx : !i) : !q, !k, !k
    // expected-error @below {{cannot be fused: the branches have different scales}}
    %ow, %lw = nsa.attention %x, %key, %key visible(#nsa.window<6>) {scale = 2.0 : f64} : !q, !k, !k
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %sum = nsa.combine %gates, %os, %ow : (!g, !q, !q) -> !q
    nsa.yield %sum, %ow : !q, !q
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>

func.func @gates_outside(%q: !q, %k: !k, %i: !i, %z: !z) {
  %r:2 = nsa.fused %q, %k, %i, %z : (!q, !k, !i, !z) -> (!q, !g) {
  ^bb0(%x: !q, %key: !k, %idx: !i, %logits: !z):
    %os, %ls = nsa.attention %x, %key, %key visible(#nsa.selected<block = 8>, %idx : !i) : !q, !k, !k
    %ow, %lw = nsa.attention %x, %key, %key visible(#nsa.window<6>) : !q, !k, !k
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %sum = nsa.combine %gates, %os, %ow : (!g, !q, !q) -> !q
    // expected-error @below {{reads what 'nn.gate' gives inside}}
    nsa.yield %sum, %gates : !q, !g
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!l = tensor<1x2x16xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>
!b = tensor<4xf32>
!t = tensor<16x2x2xf32>

func.func @not_alone(%do: !q, %q: !q, %kc: !kc, %k: !k, %o: !q, %l: !l, %i: !i, %z: !z, %t: !t, %u: !t) {
  %r:6 = nsa.fused %do, %q, %kc, %k, %o, %l, %i, %z, %t, %u : (!q, !q, !kc, !k, !q, !l, !i, !z, !t, !t) -> (!q, !kc, !kc, !k, !k, !z) {
  ^bb0(%dout: !q, %x: !q, %b: !kc, %key: !k, %out: !q, %lse: !l, %idx: !i, %logits: !z, %angles: !t, %others: !t):
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %dg, %dc, %ds = nsa.combine_backward %dout, %gates, %out, %out : (!q, !g, !q, !q) -> (!g, !q, !q)
    %dz, %db = nn.gate_backward sigmoid %dg, %gates {logits_type = f32} : (!g, !g) -> (!z, !b)
    %dqc, %dkc, %dvc = nsa.attention_backward %dc, %x, %b, %b, %out, %lse visible(#nsa.compressed<block = 8, stride = 4>) : !q, !q, !kc, !kc, !q, !l
    // expected-error @below {{has not alone the gradient of a branch}}
    %dqs, %dks, %dvs = nsa.attention_backward %dout, %x, %key, %key, %out, %lse visible(#nsa.selected<block = 8>, %idx : !i) : !q, !q, !k, !k, !q, !l
    %dq = nn.add %dqc, %dqs : (!q, !q) -> !q
    nsa.yield %dq, %dkc, %dvc, %dks, %dvs, %dz : !q, !kc, !kc, !k, !k, !z
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!l = tensor<1x2x16xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>
!b = tensor<4xf32>
!t = tensor<16x2x2xf32>

func.func @other_output(%do: !q, %q: !q, %kc: !kc, %k: !k, %o: !q, %l: !l, %i: !i, %z: !z, %t: !t, %u: !t) {
  %r:6 = nsa.fused %do, %q, %kc, %k, %o, %l, %i, %z, %t, %u : (!q, !q, !kc, !k, !q, !l, !i, !z, !t, !t) -> (!q, !kc, !kc, !k, !k, !z) {
  ^bb0(%dout: !q, %x: !q, %b: !kc, %key: !k, %out: !q, %lse: !l, %idx: !i, %logits: !z, %angles: !t, %others: !t):
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %dg, %dc, %ds = nsa.combine_backward %dout, %gates, %out, %out : (!q, !g, !q, !q) -> (!g, !q, !q)
    %dz, %db = nn.gate_backward sigmoid %dg, %gates {logits_type = f32} : (!g, !g) -> (!z, !b)
    %dqc, %dkc, %dvc = nsa.attention_backward %dc, %x, %b, %b, %out, %lse visible(#nsa.compressed<block = 8, stride = 4>) : !q, !q, !kc, !kc, !q, !l
    // expected-error @below {{has another output than branch 1 of the sum}}
    %dqs, %dks, %dvs = nsa.attention_backward %ds, %x, %key, %key, %dout, %lse visible(#nsa.selected<block = 8>, %idx : !i) : !q, !q, !k, !k, !q, !l
    %dq = nn.add %dqc, %dqs : (!q, !q) -> !q
    nsa.yield %dq, %dkc, %dvc, %dks, %dvs, %dz : !q, !kc, !kc, !k, !k, !z
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!l = tensor<1x2x16xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>
!b = tensor<4xf32>
!t = tensor<16x2x2xf32>

func.func @missing(%do: !q, %q: !q, %kc: !kc, %k: !k, %o: !q, %l: !l, %i: !i, %z: !z, %t: !t, %u: !t) {
  %r:4 = nsa.fused %do, %q, %kc, %k, %o, %l, %i, %z, %t, %u : (!q, !q, !kc, !k, !q, !l, !i, !z, !t, !t) -> (!q, !k, !k, !z) {
  ^bb0(%dout: !q, %x: !q, %b: !kc, %key: !k, %out: !q, %lse: !l, %idx: !i, %logits: !z, %angles: !t, %others: !t):
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    // expected-error @below {{has no gradient of the attention of branch 0}}
    %dg, %dc, %ds = nsa.combine_backward %dout, %gates, %out, %out : (!q, !g, !q, !q) -> (!g, !q, !q)
    %dz, %db = nn.gate_backward sigmoid %dg, %gates {logits_type = f32} : (!g, !g) -> (!z, !b)
    %dqs, %dks, %dvs = nsa.attention_backward %ds, %x, %key, %key, %out, %lse visible(#nsa.selected<block = 8>, %idx : !i) : !q, !q, !k, !k, !q, !l
    nsa.yield %dqs, %dks, %dvs, %dz : !q, !k, !k, !z
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!l = tensor<1x2x16xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>
!t = tensor<16x2x2xf32>

func.func @gate_without_gradient(%do: !q, %q: !q, %kc: !kc, %k: !k, %o: !q, %l: !l, %i: !i, %z: !z, %t: !t, %u: !t) {
  %r:5 = nsa.fused %do, %q, %kc, %k, %o, %l, %i, %z, %t, %u : (!q, !q, !kc, !k, !q, !l, !i, !z, !t, !t) -> (!q, !kc, !kc, !k, !k) {
  ^bb0(%dout: !q, %x: !q, %b: !kc, %key: !k, %out: !q, %lse: !l, %idx: !i, %logits: !z, %angles: !t, %others: !t):
    // expected-error @below {{has no gradient}}
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %dg, %dc, %ds = nsa.combine_backward %dout, %gates, %out, %out : (!q, !g, !q, !q) -> (!g, !q, !q)
    %dqc, %dkc, %dvc = nsa.attention_backward %dc, %x, %b, %b, %out, %lse visible(#nsa.compressed<block = 8, stride = 4>) : !q, !q, !kc, !kc, !q, !l
    %dqs, %dks, %dvs = nsa.attention_backward %ds, %x, %key, %key, %out, %lse visible(#nsa.selected<block = 8>, %idx : !i) : !q, !q, !k, !k, !q, !l
    %dq = nn.add %dqc, %dqs : (!q, !q) -> !q
    nsa.yield %dq, %dkc, %dvc, %dks, %dvs : !q, !kc, !kc, !k, !k
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!l = tensor<1x2x16xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>
!b = tensor<4xf32>
!t = tensor<16x2x2xf32>

func.func @other_activation(%do: !q, %q: !q, %kc: !kc, %k: !k, %o: !q, %l: !l, %i: !i, %z: !z, %t: !t, %u: !t) {
  %r:6 = nsa.fused %do, %q, %kc, %k, %o, %l, %i, %z, %t, %u : (!q, !q, !kc, !k, !q, !l, !i, !z, !t, !t) -> (!q, !kc, !kc, !k, !k, !z) {
  ^bb0(%dout: !q, %x: !q, %b: !kc, %key: !k, %out: !q, %lse: !l, %idx: !i, %logits: !z, %angles: !t, %others: !t):
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %dg, %dc, %ds = nsa.combine_backward %dout, %gates, %out, %out : (!q, !g, !q, !q) -> (!g, !q, !q)
    // expected-error @below {{is not the gradient of the gates of the sum}}
    %dz, %db = nn.gate_backward softmax %dg, %gates {logits_type = f32} : (!g, !g) -> (!z, !b)
    %dqc, %dkc, %dvc = nsa.attention_backward %dc, %x, %b, %b, %out, %lse visible(#nsa.compressed<block = 8, stride = 4>) : !q, !q, !kc, !kc, !q, !l
    %dqs, %dks, %dvs = nsa.attention_backward %ds, %x, %key, %key, %out, %lse visible(#nsa.selected<block = 8>, %idx : !i) : !q, !q, !k, !k, !q, !l
    %dq = nn.add %dqc, %dqs : (!q, !q) -> !q
    nsa.yield %dq, %dkc, %dvc, %dks, %dvs, %dz : !q, !kc, !kc, !k, !k, !z
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!l = tensor<1x2x16xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>
!b = tensor<4xf32>
!t = tensor<16x2x2xf32>

func.func @other_logits(%do: !q, %q: !q, %kc: !kc, %k: !k, %o: !q, %l: !l, %i: !i, %z: !z, %t: !t, %u: !t) {
  %r:6 = nsa.fused %do, %q, %kc, %k, %o, %l, %i, %z, %t, %u : (!q, !q, !kc, !k, !q, !l, !i, !z, !t, !t) -> (!q, !kc, !kc, !k, !k, tensor<1x16x4xbf16>) {
  ^bb0(%dout: !q, %x: !q, %b: !kc, %key: !k, %out: !q, %lse: !l, %idx: !i, %logits: !z, %angles: !t, %others: !t):
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %dg, %dc, %ds = nsa.combine_backward %dout, %gates, %out, %out : (!q, !g, !q, !q) -> (!g, !q, !q)
    // expected-error @below {{gives other sums or logits than the gates have}}
    %dz, %db = nn.gate_backward sigmoid %dg, %gates {logits_type = bf16} : (!g, !g) -> (tensor<1x16x4xbf16>, !b)
    %dqc, %dkc, %dvc = nsa.attention_backward %dc, %x, %b, %b, %out, %lse visible(#nsa.compressed<block = 8, stride = 4>) : !q, !q, !kc, !kc, !q, !l
    %dqs, %dks, %dvs = nsa.attention_backward %ds, %x, %key, %key, %out, %lse visible(#nsa.selected<block = 8>, %idx : !i) : !q, !q, !k, !k, !q, !l
    %dq = nn.add %dqc, %dqs : (!q, !q) -> !q
    nsa.yield %dq, %dkc, %dvc, %dks, %dvs, %dz : !q, !kc, !kc, !k, !k, tensor<1x16x4xbf16>
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!l = tensor<1x2x16xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>
!b = tensor<4xf32>
!t = tensor<16x2x2xf32>

func.func @bias(%do: !q, %q: !q, %kc: !kc, %k: !k, %o: !q, %l: !l, %i: !i, %z: !z, %t: !t, %u: !t) {
  %r:6 = nsa.fused %do, %q, %kc, %k, %o, %l, %i, %z, %t, %u : (!q, !q, !kc, !k, !q, !l, !i, !z, !t, !t) -> (!q, !kc, !kc, !k, !k, !b) {
  ^bb0(%dout: !q, %x: !q, %b: !kc, %key: !k, %out: !q, %lse: !l, %idx: !i, %logits: !z, %angles: !t, %others: !t):
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %dg, %dc, %ds = nsa.combine_backward %dout, %gates, %out, %out : (!q, !g, !q, !q) -> (!g, !q, !q)
    // expected-error @below {{gives the gradient of a bias that the gates do not have}}
    %dz, %db = nn.gate_backward sigmoid %dg, %gates {logits_type = f32} : (!g, !g) -> (!z, !b)
    %dqc, %dkc, %dvc = nsa.attention_backward %dc, %x, %b, %b, %out, %lse visible(#nsa.compressed<block = 8, stride = 4>) : !q, !q, !kc, !kc, !q, !l
    %dqs, %dks, %dvs = nsa.attention_backward %ds, %x, %key, %key, %out, %lse visible(#nsa.selected<block = 8>, %idx : !i) : !q, !q, !k, !k, !q, !l
    %dq = nn.add %dqc, %dqs : (!q, !q) -> !q
    nsa.yield %dq, %dkc, %dvc, %dks, %dvs, %db : !q, !kc, !kc, !k, !k, !b
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!l = tensor<1x2x16xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>
!b = tensor<4xf32>
!t = tensor<16x2x2xf32>

func.func @not_added(%do: !q, %q: !q, %kc: !kc, %k: !k, %o: !q, %l: !l, %i: !i, %z: !z, %t: !t, %u: !t) {
  // expected-error @below {{does not add the gradients of the queries}}
  %r:6 = nsa.fused %do, %q, %kc, %k, %o, %l, %i, %z, %t, %u : (!q, !q, !kc, !k, !q, !l, !i, !z, !t, !t) -> (!q, !kc, !kc, !k, !k, !z) {
  ^bb0(%dout: !q, %x: !q, %b: !kc, %key: !k, %out: !q, %lse: !l, %idx: !i, %logits: !z, %angles: !t, %others: !t):
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %dg, %dc, %ds = nsa.combine_backward %dout, %gates, %out, %out : (!q, !g, !q, !q) -> (!g, !q, !q)
    %dz, %db = nn.gate_backward sigmoid %dg, %gates {logits_type = f32} : (!g, !g) -> (!z, !b)
    %dqc, %dkc, %dvc = nsa.attention_backward %dc, %x, %b, %b, %out, %lse visible(#nsa.compressed<block = 8, stride = 4>) : !q, !q, !kc, !kc, !q, !l
    %dqs, %dks, %dvs = nsa.attention_backward %ds, %x, %key, %key, %out, %lse visible(#nsa.selected<block = 8>, %idx : !i) : !q, !q, !k, !k, !q, !l
    nsa.yield %dqs, %dkc, %dvc, %dks, %dvs, %dz : !q, !kc, !kc, !k, !k, !z
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!l = tensor<1x2x16xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>
!b = tensor<4xf32>
!t = tensor<16x2x2xf32>

func.func @other_sum(%do: !q, %q: !q, %kc: !kc, %k: !k, %o: !q, %l: !l, %i: !i, %z: !z, %t: !t, %u: !t) {
  %r:6 = nsa.fused %do, %q, %kc, %k, %o, %l, %i, %z, %t, %u : (!q, !q, !kc, !k, !q, !l, !i, !z, !t, !t) -> (!q, !kc, !kc, !k, !k, !z) {
  ^bb0(%dout: !q, %x: !q, %b: !kc, %key: !k, %out: !q, %lse: !l, %idx: !i, %logits: !z, %angles: !t, %others: !t):
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %dg, %dc, %ds = nsa.combine_backward %dout, %gates, %out, %out : (!q, !g, !q, !q) -> (!g, !q, !q)
    %dz, %db = nn.gate_backward sigmoid %dg, %gates {logits_type = f32} : (!g, !g) -> (!z, !b)
    %dqc, %dkc, %dvc = nsa.attention_backward %dc, %x, %b, %b, %out, %lse visible(#nsa.compressed<block = 8, stride = 4>) : !q, !q, !kc, !kc, !q, !l
    %dqs, %dks, %dvs = nsa.attention_backward %ds, %x, %key, %key, %out, %lse visible(#nsa.selected<block = 8>, %idx : !i) : !q, !q, !k, !k, !q, !l
    // expected-error @below {{is not of the sum of the gradients of the queries}}
    %dq = nn.add %dqs, %dqs : (!q, !q) -> !q
    nsa.yield %dq, %dkc, %dvc, %dks, %dvs, %dz : !q, !kc, !kc, !k, !k, !z
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!l = tensor<1x2x16xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>
!b = tensor<4xf32>
!t = tensor<16x2x2xf32>

func.func @some_turned(%do: !q, %q: !q, %kc: !kc, %k: !k, %o: !q, %l: !l, %i: !i, %z: !z, %t: !t, %u: !t) {
  // expected-error @below {{turns back 1 gradients of tokens, expected all 2 or none}}
  %r:6 = nsa.fused %do, %q, %kc, %k, %o, %l, %i, %z, %t, %u : (!q, !q, !kc, !k, !q, !l, !i, !z, !t, !t) -> (!q, !kc, !kc, !k, !k, !z) {
  ^bb0(%dout: !q, %x: !q, %b: !kc, %key: !k, %out: !q, %lse: !l, %idx: !i, %logits: !z, %angles: !t, %others: !t):
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %dg, %dc, %ds = nsa.combine_backward %dout, %gates, %out, %out : (!q, !g, !q, !q) -> (!g, !q, !q)
    %dz, %db = nn.gate_backward sigmoid %dg, %gates {logits_type = f32} : (!g, !g) -> (!z, !b)
    %dqc, %dkc, %dvc = nsa.attention_backward %dc, %x, %b, %b, %out, %lse visible(#nsa.compressed<block = 8, stride = 4>) : !q, !q, !kc, !kc, !q, !l
    %dqs, %dks, %dvs = nsa.attention_backward %ds, %x, %key, %key, %out, %lse visible(#nsa.selected<block = 8>, %idx : !i) : !q, !q, !k, !k, !q, !l
    %dq = nn.add %dqc, %dqs : (!q, !q) -> !q
    %turned = nn.rotary %dq, %angles {inverse} : (!q, !t) -> !q
    nsa.yield %turned, %dkc, %dvc, %dks, %dvs, %dz : !q, !kc, !kc, !k, !k, !z
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!l = tensor<1x2x16xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>
!b = tensor<4xf32>
!t = tensor<16x2x2xf32>

func.func @not_back(%do: !q, %q: !q, %kc: !kc, %k: !k, %o: !q, %l: !l, %i: !i, %z: !z, %t: !t, %u: !t) {
  %r:6 = nsa.fused %do, %q, %kc, %k, %o, %l, %i, %z, %t, %u : (!q, !q, !kc, !k, !q, !l, !i, !z, !t, !t) -> (!q, !kc, !kc, !k, !k, !z) {
  ^bb0(%dout: !q, %x: !q, %b: !kc, %key: !k, %out: !q, %lse: !l, %idx: !i, %logits: !z, %angles: !t, %others: !t):
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %dg, %dc, %ds = nsa.combine_backward %dout, %gates, %out, %out : (!q, !g, !q, !q) -> (!g, !q, !q)
    %dz, %db = nn.gate_backward sigmoid %dg, %gates {logits_type = f32} : (!g, !g) -> (!z, !b)
    %dqc, %dkc, %dvc = nsa.attention_backward %dc, %x, %b, %b, %out, %lse visible(#nsa.compressed<block = 8, stride = 4>) : !q, !q, !kc, !kc, !q, !l
    %dqs, %dks, %dvs = nsa.attention_backward %ds, %x, %key, %key, %out, %lse visible(#nsa.selected<block = 8>, %idx : !i) : !q, !q, !k, !k, !q, !l
    %dq = nn.add %dqc, %dqs : (!q, !q) -> !q
    // expected-error @below {{does not turn rows at a distance of 1 back}}
    %turned = nn.rotary %dq, %angles : (!q, !t) -> !q
    nsa.yield %turned, %dkc, %dvc, %dks, %dvs, %dz : !q, !kc, !kc, !k, !k, !z
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!l = tensor<1x2x16xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>
!b = tensor<4xf32>
!t = tensor<16x2x2xf32>

func.func @other_angles(%do: !q, %q: !q, %kc: !kc, %k: !k, %o: !q, %l: !l, %i: !i, %z: !z, %t: !t, %u: !t) {
  %r:6 = nsa.fused %do, %q, %kc, %k, %o, %l, %i, %z, %t, %u : (!q, !q, !kc, !k, !q, !l, !i, !z, !t, !t) -> (!q, !kc, !kc, !k, !k, !z) {
  ^bb0(%dout: !q, %x: !q, %b: !kc, %key: !k, %out: !q, %lse: !l, %idx: !i, %logits: !z, %angles: !t, %others: !t):
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %dg, %dc, %ds = nsa.combine_backward %dout, %gates, %out, %out : (!q, !g, !q, !q) -> (!g, !q, !q)
    %dz, %db = nn.gate_backward sigmoid %dg, %gates {logits_type = f32} : (!g, !g) -> (!z, !b)
    %dqc, %dkc, %dvc = nsa.attention_backward %dc, %x, %b, %b, %out, %lse visible(#nsa.compressed<block = 8, stride = 4>) : !q, !q, !kc, !kc, !q, !l
    %dqs, %dks, %dvs = nsa.attention_backward %ds, %x, %key, %key, %out, %lse visible(#nsa.selected<block = 8>, %idx : !i) : !q, !q, !k, !k, !q, !l
    %dq = nn.add %dqc, %dqs : (!q, !q) -> !q
    %turned = nn.rotary %dq, %angles {inverse} : (!q, !t) -> !q
    // expected-error @below {{has other angles than others have}}
    %turned2 = nn.rotary %dks, %others {inverse} : (!k, !t) -> !k
    nsa.yield %turned, %dkc, %dvc, %turned2, %dvs, %dz : !q, !kc, !kc, !k, !k, !z
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!kc = tensor<1x3x1x4xf32>
!l = tensor<1x2x16xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x2xf32>
!z = tensor<1x16x4xf32>
!b = tensor<4xf32>
!t = tensor<16x2x2xf32>

func.func @values_turned(%do: !q, %q: !q, %kc: !kc, %k: !k, %o: !q, %l: !l, %i: !i, %z: !z, %t: !t, %u: !t) {
  %r:6 = nsa.fused %do, %q, %kc, %k, %o, %l, %i, %z, %t, %u : (!q, !q, !kc, !k, !q, !l, !i, !z, !t, !t) -> (!q, !kc, !kc, !k, !k, !z) {
  ^bb0(%dout: !q, %x: !q, %b: !kc, %key: !k, %out: !q, %lse: !l, %idx: !i, %logits: !z, %angles: !t, %others: !t):
    %gates = nn.gate sigmoid %logits {branches = 2 : i64} : (!z) -> !g
    %dg, %dc, %ds = nsa.combine_backward %dout, %gates, %out, %out : (!q, !g, !q, !q) -> (!g, !q, !q)
    %dz, %db = nn.gate_backward sigmoid %dg, %gates {logits_type = f32} : (!g, !g) -> (!z, !b)
    %dqc, %dkc, %dvc = nsa.attention_backward %dc, %x, %b, %b, %out, %lse visible(#nsa.compressed<block = 8, stride = 4>) : !q, !q, !kc, !kc, !q, !l
    %dqs, %dks, %dvs = nsa.attention_backward %ds, %x, %key, %key, %out, %lse visible(#nsa.selected<block = 8>, %idx : !i) : !q, !q, !k, !k, !q, !l
    %dq = nn.add %dqc, %dqs : (!q, !q) -> !q
    // expected-error @below {{does not turn the gradient of rows}}
    %turned = nn.rotary %dvs, %angles {inverse} : (!k, !t) -> !k
    nsa.yield %dq, %dkc, %dvc, %dks, %turned, %dz : !q, !kc, !kc, !k, !k, !z
  }
  return
}

// -----

!q = tensor<1x16x2x4xf32>
!k = tensor<1x16x1x4xf32>
!l = tensor<1x2x16xf32>
!i = tensor<1x1x16x2xi32>
!g = tensor<1x16x2x1xf32>
!t = tensor<16x2x2xf32>
!s = tensor<1x16xi32>

func.func @rotation_start(%do: !q, %q: !q, %k: !k, %l: !l, %i: !i, %g: !g, %t: !t, %s: !s) {
  %r:2 = nsa.fused %do, %q, %k, %l, %i, %g, %t, %s : (!q, !q, !k, !l, !i, !g, !t, !s) -> (!q, !k) {
  ^bb0(%dout: !q, %x: !q, %key: !k, %lse: !l, %idx: !i, %gates: !g, %table: !t, %start: !s):
    %dg, %ds = nsa.combine_backward %dout, %gates, %x : (!q, !g, !q) -> (!g, !q)
    %dq, %dk, %dv = nsa.attention_backward %ds, %x, %key, %key, %x, %lse visible(#nsa.selected<block = 8>, %idx : !i) start(%start : !s) : !q, !q, !k, !k, !q, !l
    // expected-error @below {{has another start than the attention}}
    %turned = nn.rotary %dq, %table {inverse} : (!q, !t) -> !q
    %dkt = nn.rotary %dk, %table, %start {inverse} : (!k, !t, !s) -> !k
    nsa.yield %turned, %dkt : !q, !k
  }
  return
}
