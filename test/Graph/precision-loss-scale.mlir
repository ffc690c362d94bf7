// RUN: nsa-opt %s --nsa-precision=precision=fp16 --split-input-file --verify-diagnostics

// expected-error @below {{argument 1 has the name `loss_scale`, which fp16 needs for the scale of the loss}}
func.func @model(%x: tensor<4xf32> {nn.name = "x", nn.role = "parameter"},
                 %scale: tensor<f32> {nn.name = "loss_scale", nn.role = "state"})
    -> (tensor<4xf32> {nn.name = "loss"}) attributes {nn.train} {
  return %x : tensor<4xf32>
}

// -----

// expected-error @below {{option precision (fp16) has no effect: no function is marked nn.train, and others keep the types they are written with}}
module {
  func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}
