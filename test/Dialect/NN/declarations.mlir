// A function without a body may have the attributes of a model. Neither their
// verifier nor a pass reads the block that is not there.

// RUN: nsa-opt %s | nsa-opt | FileCheck %s
// RUN: nsa-opt %s --nsa-differentiate --nsa-recompute="policy=cheap" --nsa-optimizer --nsa-fuse \
// RUN:   --nsa-convert-to-tile --nsa-buffer --nsa-schedule --nsa-plan | FileCheck %s
// RUN: not nsa-opt %s --nsa-set-input-shapes="micro-batch=2" 2>&1 | FileCheck %s --check-prefix=SIZE
// SIZE: error: option micro-batch (2) has no effect

// CHECK: func.func private @model(tensor<1x64x32xf32>
// CHECK-SAME: nn.dims = ["batch", "seq", ""]
// CHECK-SAME: nn.decay
// CHECK-SAME: nn.init = #nn.init<rotary
// CHECK-SAME: nn.objective
func.func private @model(
    %x: tensor<1x64x32xf32> {nn.name = "x", nn.role = "input", nn.dims = ["batch", "seq", ""]},
    %w: tensor<4x4xf32> {nn.name = "w", nn.role = "parameter", nn.init = #nn.init<normal, 0.02>, nn.decay, nn.differentiate},
    %t: tensor<4x4x2xf32> {nn.name = "t", nn.role = "constant", nn.init = #nn.init<rotary, 10000.0>})
    -> (tensor<f32> {nn.name = "loss", nn.objective})
