// RUN: nsa-opt %s --nsa-expand-math --split-input-file --verify-diagnostics | FileCheck %s

// Clamped above, so that the result becomes inf; 0 below the normal numbers.
// CHECK-LABEL: func.func @exp(
// CHECK-SAME: %[[X:.*]]: vector<8xf32>
// CHECK-NOT: math.exp
// CHECK: %[[HIGH:.*]] = arith.cmpf ogt, %[[X]]
// CHECK: %[[L:.*]] = arith.select %[[HIGH]], %{{.*}}, %[[X]]
// CHECK-COUNT-8: llvm.intr.fmuladd
// CHECK: arith.shli
// CHECK: %[[LOW:.*]] = arith.cmpf olt, %[[X]]
// CHECK: arith.select %[[LOW]], %{{.*}}, %{{.*}}
func.func @exp(%x: vector<8xf32>) -> vector<8xf32> {
  %y = math.exp %x : vector<8xf32>
  return %y : vector<8xf32>
}

// -----

// CHECK-LABEL: func.func @scalars(
// CHECK-NOT: math.{{exp|log|rsqrt|tanh}}
// CHECK: math.sqrt
// CHECK: arith.divf
// CHECK: return
func.func @scalars(%x: f32) -> (f32, f32, f32, f32) {
  %a = math.exp2 %x : f32
  %b = math.log %x : f32
  %c = math.rsqrt %x : f32
  %d = math.tanh %x : f32
  return %a, %b, %c, %d : f32, f32, f32, f32
}

// -----

// Processors without such an instruction round twice: they have no function to
// call.
// CHECK-LABEL: func.func @multiply_add(
// CHECK-NEXT: %[[Y:.*]] = llvm.intr.fmuladd(%arg0, %arg1, %arg2) : (vector<8xf32>, vector<8xf32>, vector<8xf32>) -> vector<8xf32>
// CHECK-NEXT: %[[Z:.*]] = llvm.intr.fmuladd(%arg3, %arg3, %arg3) : (f32, f32, f32) -> f32
// CHECK-NEXT: return %[[Y]], %[[Z]]
func.func @multiply_add(%a: vector<8xf32>, %b: vector<8xf32>, %c: vector<8xf32>, %x: f32) -> (vector<8xf32>, f32) {
  %y = math.fma %a, %b, %c : vector<8xf32>
  %z = math.fma %x, %x, %x : f32
  return %y, %z : vector<8xf32>, f32
}

// -----

func.func @power(%x: f32) -> f32 {
  // expected-error@+1 {{'math.powf' op has no lowering to the CPU}}
  %y = math.powf %x, %x : f32
  return %y : f32
}

// -----

func.func @remainder(%x: f32) -> f32 {
  // expected-error@+1 {{'arith.remf' op has no lowering to the CPU}}
  %y = arith.remf %x, %x : f32
  return %y : f32
}
