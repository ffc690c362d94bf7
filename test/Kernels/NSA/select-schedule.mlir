// RUN: nsa-opt %s --nsa-set-machine=mma-rows=64 --nsa-select-schedule | FileCheck %s
// RUN: nsa-opt %s --nsa-select-schedule | FileCheck %s --check-prefix=CPU

// What an operation says stays, and so does what the module says.
// CHECK-DAG: #[[OWN:.*]] = {forward = [#nsa.schedule<queries = 64>]}
// CHECK-DAG: #[[QUERIES:.*]] = {selected_forward = [#nsa.schedule<form = masks>, #nsa.schedule<form = masks, queries = 64, min_blocks = 1>,
// CHECK-DAG: {select = [#nsa.schedule<blocks = 4>]}
// The last resort where a group of wide heads fills the registers.
// CHECK-DAG: #nsa.schedule<selected_queries = 1, selected_keys = 16, column_parts = 8, min_blocks = 1>]
// CHECK: nsa.attention {{.*}} visible(#nsa.window<64>) {nsa.schedules = #[[OWN]]}
// CHECK-NOT: nsa.schedules
// CHECK: nsa.attention {{.*}} visible(#nsa.selected<block = 64>{{.*}} {nsa.schedules = #[[QUERIES]]}
// CPU-NOT: min_blocks
module attributes {nsa.schedules = {select = [#nsa.schedule<blocks = 4>]}} {
func.func @main(%q: tensor<1x320x4x64xbf16>, %k: tensor<1x320x2x64xbf16>, %c: tensor<1x19x2x64xbf16>, %lse: tensor<1x4x320xf32>)
    -> (tensor<1x320x4x64xbf16>, tensor<1x320x4x64xbf16>) {
  %w, %l0 = nsa.attention %q, %k, %k visible(#nsa.window<64>) {nsa.schedules = {forward = [#nsa.schedule<queries = 64>]}}
      : tensor<1x320x4x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>
  %i = nsa.select %q, %c, %lse {block = 32 : i64, stride = 16 : i64, select_block = 64 : i64, count = 4 : i64}
      : (tensor<1x320x4x64xbf16>, tensor<1x19x2x64xbf16>, tensor<1x4x320xf32>) -> tensor<1x2x320x4xi32>
  // The form alone leaves the rest to be chosen.
  %s, %l1 = nsa.attention %q, %k, %k visible(#nsa.selected<block = 64>, %i : tensor<1x2x320x4xi32>)
      {nsa.schedules = {selected_forward = [#nsa.schedule<form = masks>]}}
      : tensor<1x320x4x64xbf16>, tensor<1x320x2x64xbf16>, tensor<1x320x2x64xbf16>
  return %w, %s : tensor<1x320x4x64xbf16>, tensor<1x320x4x64xbf16>
}
func.func @wide(%q: tensor<1x320x24x232xbf16>, %k: tensor<1x320x1x232xbf16>, %i: tensor<1x1x320x4xi32>) -> tensor<1x320x24x232xbf16> {
  %o, %lse = nsa.attention %q, %k, %k visible(#nsa.selected<block = 124>, %i : tensor<1x1x320x4xi32>)
      : tensor<1x320x24x232xbf16>, tensor<1x320x1x232xbf16>, tensor<1x320x1x232xbf16>
  return %o : tensor<1x320x24x232xbf16>
}
}
