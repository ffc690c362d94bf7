// RUN: nsa-opt %s --nsa-bucket-all-reduce=bucket-mib=1 --nsa-overlap-all-reduce | FileCheck %s
// RUN: nsa-opt %s --nsa-bucket-all-reduce=bucket-mib=2 --nsa-overlap-all-reduce | FileCheck %s --check-prefix=TWO

// Backward completes @grad.c first and @grad.a last: a full bucket starts while
// the rest is computed. A tensor that is complete before those after it does not
// wait for them.

rt.tensor gradient @grad.a : memref<131072xf32>
rt.tensor gradient @grad.b : memref<131072xf32>
rt.tensor gradient @grad.c : memref<131072xf32>
rt.tensor gradient @grad.late : memref<131072xf32>
rt.tensor output @norm : memref<131072xf32>

// CHECK-LABEL: rt.entry @step
// CHECK: rt.fill 3.0{{.*}}, %grad.c
// CHECK-NEXT: rt.fill 2.0{{.*}}, %grad.b
// CHECK-NEXT: %[[FIRST:.*]] = rt.flat_view [@grad.b, @grad.c] : memref<262144xf32>
// CHECK-NEXT: rt.collective_start all_reduce %[[FIRST]]
// CHECK-NEXT: rt.fill 1.0{{.*}}, %grad.a
// CHECK-NEXT: rt.collective_start all_reduce %[[A:grad.a.*]] :
// CHECK-NEXT: rt.fill 4.0{{.*}}, %grad.late
// CHECK-NEXT: rt.collective_start all_reduce %[[LATE:grad.late.*]] :
// CHECK: rt.collective_done %[[A]] :
// CHECK: rt.copy %grad.a
// CHECK: rt.collective_done %[[FIRST]] :
// CHECK: rt.copy %grad.b

// TWO-LABEL: rt.entry @step
// TWO: rt.fill 1.0{{.*}}, %grad.a
// TWO-NEXT: %[[FIRST:.*]] = rt.flat_view [@grad.a, @grad.b, @grad.c] : memref<393216xf32>
// TWO-NEXT: rt.collective_start all_reduce %[[FIRST]]
// TWO-NEXT: rt.fill 4.0
// TWO-NEXT: rt.collective_start all_reduce %grad.late
rt.entry @step inputs [] outputs [@norm] {
  %a = rt.get @grad.a : memref<131072xf32>
  %b = rt.get @grad.b : memref<131072xf32>
  %c = rt.get @grad.c : memref<131072xf32>
  %late = rt.get @grad.late : memref<131072xf32>
  %norm = rt.get @norm : memref<131072xf32>
  rt.fill 3.0, %c : memref<131072xf32>
  rt.fill 2.0, %b : memref<131072xf32>
  rt.fill 1.0, %a : memref<131072xf32>
  rt.fill 4.0, %late : memref<131072xf32>
  rt.collective_start all_reduce %a : memref<131072xf32>
  rt.collective_done %a : memref<131072xf32>
  rt.collective_start all_reduce %b : memref<131072xf32>
  rt.collective_done %b : memref<131072xf32>
  rt.collective_start all_reduce %c : memref<131072xf32>
  rt.collective_done %c : memref<131072xf32>
  rt.collective_start all_reduce %late : memref<131072xf32>
  rt.collective_done %late : memref<131072xf32>
  rt.copy %a, %norm : memref<131072xf32>
  rt.copy %b, %norm : memref<131072xf32>
  rt.copy %c, %norm : memref<131072xf32>
  rt.copy %late, %norm : memref<131072xf32>
}
