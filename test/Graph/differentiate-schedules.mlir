// RUN: nsa-opt %s --nsa-differentiate --mlir-print-local-scope | FileCheck %s

// What an operation says of the kernels of its gradient goes with that.
// CHECK: nsa.attention {{.*}} {nsa.schedules = {forward = [#nsa.schedule<queries = 64>], query_grad = [#nsa.schedule<queries = 32>]}}
// CHECK: nsa.attention_backward {{.*}} {nsa.schedules = {query_grad = [#nsa.schedule<queries = 32>]}}
!x = tensor<1x64x4x16xbf16>
func.func @main(%q: !x {nn.differentiate}) -> (!x {nn.objective}) {
  %o, %lse = nsa.attention %q, %q, %q visible(#nsa.causal)
      {nsa.schedules = {forward = [#nsa.schedule<queries = 64>], query_grad = [#nsa.schedule<queries = 32>]}} : !x, !x, !x
  return %o : !x
}
