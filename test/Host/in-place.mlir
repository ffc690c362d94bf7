// RUN: nsa-opt %s --nsa-pipeline=until=buffer --split-input-file --verify-diagnostics | FileCheck %s

// A row is written into the memory of the cache.
// CHECK: rt.tensor state @cache
// CHECK-LABEL: rt.entry @step
// CHECK: %[[CACHE:.*]] = rt.get @cache
// CHECK: rt.launch @cache_append_{{.*}}(%[[CACHE]], %{{.*}}, %{{.*}}) {{.*}}%[[CACHE]]
func.func @step(%cache: tensor<1x8x1x4xf32> {nn.init = #nn.init<constant, 0.0>, nn.name = "cache", nn.role = "state"},
    %row: tensor<1x1x1x4xf32>, %index: tensor<1xi32>) -> (tensor<1x8x1x4xf32> {nn.alias = "cache"}) {
  %new = nsa.cache_append %cache, %row, %index : (tensor<1x8x1x4xf32>, tensor<1x1x1x4xf32>, tensor<1xi32>) -> tensor<1x8x1x4xf32>
  return %new : tensor<1x8x1x4xf32>
}

// -----

// The row is written into the result, after all that it is a part of.
// CHECK-LABEL: rt.entry @end
// CHECK: %[[RESULT:.+]] = rt.get @new
// CHECK: %[[SUM:.+]] = rt.buffer
// CHECK: rt.copy %[[SUM]], %[[RESULT]]
// CHECK-NEXT: rt.launch @cache_append_{{.*}}(%[[RESULT]], %{{.*}}, %{{.*}}) {{.*}}%[[RESULT]]
func.func @end(%cache: tensor<1x8x1x4xf32> {nn.name = "cache"}, %row: tensor<1x1x1x4xf32> {nn.name = "row"}, %index: tensor<1xi32> {nn.name = "index"})
    -> (tensor<1x8x1x4xf32> {nn.name = "new"}) {
  %sum = nn.add %cache, %cache : (tensor<1x8x1x4xf32>, tensor<1x8x1x4xf32>) -> tensor<1x8x1x4xf32>
  %new = nsa.cache_append %sum, %row, %index : (tensor<1x8x1x4xf32>, tensor<1x1x1x4xf32>, tensor<1xi32>) -> tensor<1x8x1x4xf32>
  return %new : tensor<1x8x1x4xf32>
}

// -----

func.func @copy(%cache: tensor<1x8x1x4xf32>, %row: tensor<1x1x1x4xf32>, %index: tensor<1xi32>) -> tensor<1x8x1x4xf32> {
  // expected-error@+1 {{updates operand 0 in place, but its old value is still needed or is no named tensor}}
  %new = nsa.cache_append %cache, %row, %index : (tensor<1x8x1x4xf32>, tensor<1x1x1x4xf32>, tensor<1xi32>) -> tensor<1x8x1x4xf32>
  return %new : tensor<1x8x1x4xf32>
}
