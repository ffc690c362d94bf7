// RUN: nsa-opt %s --split-input-file --verify-diagnostics --nsa-set-machine=mma-rows=64 --nsa-select-schedule

!q = tensor<1x64x4x16xbf16>
!g = tensor<1x64x4x2xf32>
!i = tensor<1x4x64x1xi32>

func.func @two_lists(%q: !q, %i: !i, %g: !g) -> !q {
  %o = nsa.fused %q, %i, %g : (!q, !i, !g) -> !q {
  ^bb0(%x: !q, %b: !i, %z: !g):
    %o0, %l0 = nsa.attention %x, %x, %x visible(#nsa.selected<block = 16>, %b : !i)
        {nsa.schedules = {forward = [#nsa.schedule<keys = 16>]}} : !q, !q, !q
    // expected-error @+1 {{has the schedules [#nsa.schedule<keys = 32>] of "forward", but what it is fused with has [#nsa.schedule<keys = 16>]}}
    %o1, %l1 = nsa.attention %x, %x, %x visible(#nsa.causal)
        {nsa.schedules = {forward = [#nsa.schedule<keys = 32>]}} : !q, !q, !q
    %s = nsa.combine %z, %o0, %o1 : (!g, !q, !q) -> !q
    nsa.yield %s : !q
  }
  return %o : !q
}

// -----

!q = tensor<1x64x4x16xbf16>
!g = tensor<1x64x4x1xf32>
!i = tensor<1x4x64x1xi32>

func.func @gathered(%q: !q, %i: !i, %g: !g) -> !q {
  %o = nsa.fused %q, %i, %g : (!q, !i, !g) -> !q {
  ^bb0(%x: !q, %b: !i, %z: !g):
    // expected-error @+1 {{is to gather queries, which takes several launches, in an nsa.fused, which is one}}
    %o0, %l0 = nsa.attention %x, %x, %x visible(#nsa.selected<block = 16>, %b : !i)
        {nsa.schedules = {selected_forward = [#nsa.schedule<form = gathered>]}} : !q, !q, !q
    %s = nsa.combine %z, %o0 : (!g, !q) -> !q
    nsa.yield %s : !q
  }
  return %o : !q
}
