// A phase ends with a verifier: what it should have removed is an error.
// RUN: not nsa-opt %s --nsa-phase-schedule --dump-pass-pipeline 2>&1 | FileCheck %s --check-prefix=SCHEDULE
// RUN: not nsa-opt %s --nsa-pipeline=until=binary 2>&1 | FileCheck %s --check-prefix=UNTIL

// SCHEDULE: nsa-require-phase{after=buffer phase=schedule}
// SCHEDULE: nsa-verify-phase{phase=schedule}
// UNTIL: unknown phase 'binary'
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
