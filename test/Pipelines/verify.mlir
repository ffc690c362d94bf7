// A phase ends with a verifier: what it should have removed is an error.
// RUN: not nsa-opt %s --nsa-phase-schedule 2>&1 | FileCheck %s --check-prefix=SCHEDULE
// RUN: not nsa-opt %s --nsa-pipeline=until=binary 2>&1 | FileCheck %s --check-prefix=UNTIL

// SCHEDULE: error: after phase schedule, `func.func` may no longer be in a module
// UNTIL: Cannot find option named 'binary'
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
