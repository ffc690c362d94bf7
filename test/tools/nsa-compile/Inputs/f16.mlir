func.func @main(%a: tensor<4xf16>) -> tensor<4xf16> {
  %0 = nn.silu %a : (tensor<4xf16>) -> tensor<4xf16>
  return %0 : tensor<4xf16>
}
