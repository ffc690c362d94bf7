// RUN: nsa-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{has the precision `fp8`, expected fp32, bf16 or fp16}}
nn.module @m precision fp8 {
}

// -----

// expected-error @below {{attribute `nn.precision` is `fp8`, expected fp32, bf16 or fp16}}
module attributes {nn.precision = "fp8"} {
}

// -----

nn.module @m {
  // expected-error @below {{`nn.silu` stands in an nn.module, expected nn.parameter, nn.scope or nn.func}}
  %0 = "nn.silu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
}

// -----

// expected-error @below {{has two functions to train, @a and @b}}
nn.module @m {
  nn.func train @a(%x: tensor<4xf32>) -> (y: tensor<4xf32>) {
    nn.return %x : tensor<4xf32>
  }
  nn.func train @b(%x: tensor<4xf32>) -> (y: tensor<4xf32>) {
    nn.return %x : tensor<4xf32>
  }
}

// -----

nn.module @m {
  nn.scope @a[0 to 2] named "layers" {
    // expected-note @below {{the other parameter}}
    nn.parameter @norm.weight : tensor<4xf32> = constant 1.0
  }
  nn.scope @b[1 to 3] named "layers" {
    // expected-error @below {{has the name `layers.1.norm.weight` of another parameter}}
    nn.parameter @norm.weight : tensor<4xf32> = constant 1.0
  }
}

// -----

// expected-error @below {{stands in no nn.module and no nn.scope}}
nn.parameter @p : tensor<4xf32> = constant 1.0

// -----

nn.module @m {
  // expected-error @below {{layers 0 to 0 are no range from 0 up to at most 10000}}
  nn.scope @layers[0 to 0] {
  }
}

// -----

nn.module @m {
  // expected-error @below {{has no layers, expected at least one}}
  "nn.scope"() <{sym_name = "layers", indices = array<i64>}> ({
  ^bb0:
  }) : () -> ()
}

// -----

nn.module @m {
  // expected-error @below {{has the layer -1, expected 0 to 9999}}
  "nn.scope"() <{sym_name = "layers", indices = array<i64: -1>}> ({
  ^bb0:
  }) : () -> ()
}

// -----

nn.module @m {
  // expected-error @below {{has the layer 2 twice}}
  nn.scope @layers[0 to 3, 2] {
  }
}

// -----

nn.module @m {
  nn.scope @layers[0 to 3] {
    // expected-error @below {{`nn.func` stands in an nn.scope, expected nn.parameter}}
    "nn.func"() <{arg_names = [], function_type = () -> (), sym_name = "f"}> ({
      "nn.return"() : () -> ()
    }) : () -> ()
  }
}

// -----

// expected-error @below {{stands in no nn.module}}
nn.scope @layers[0 to 3] {
}

// -----

nn.module @m {
  // expected-error @below {{has arguments of other types than its type '() -> ()'}}
  "nn.func"() <{arg_names = ["x"], function_type = () -> (), sym_name = "f"}> ({
  ^bb0(%x: tensor<4xf32>):
    "nn.return"() : () -> ()
  }) : () -> ()
}

// -----

nn.module @m {
  // expected-error @below {{has an argument or result of type 'tensor<?xf32>', expected a tensor of static shape}}
  nn.func @f(%x: tensor<?xf32>) {
    nn.return
  }
}

// -----

nn.module @m {
  // expected-error @below {{has 1 arguments but 2 names}}
  "nn.func"() <{arg_names = ["x", "y"], function_type = (tensor<4xf32>) -> (), sym_name = "f"}> ({
  ^bb0(%x: tensor<4xf32>):
    "nn.return"() : () -> ()
  }) : () -> ()
}

// -----

nn.module @m {
  // expected-error @below {{argument 0 has dimensions that are no array of names}}
  "nn.func"() <{arg_dims = [3], arg_names = ["x"], function_type = (tensor<4xf32>) -> (), sym_name = "f"}> ({
  ^bb0(%x: tensor<4xf32>):
    "nn.return"() : () -> ()
  }) : () -> ()
}

// -----

nn.module @m {
  // expected-error @below {{has 1 results but 0 names}}
  "nn.func"() <{arg_names = [], function_type = () -> tensor<4xf32>, sym_name = "f", train}> ({
    %0 = nn.fill 0.0 : tensor<4xf32>
    "nn.return"(%0) : (tensor<4xf32>) -> ()
  }) : () -> ()
}

// -----

nn.module @m {
  // expected-error @below {{is to be trained but has no result}}
  nn.func train @f(%x: tensor<4xf32>) {
    nn.return
  }
}

// -----

nn.module @m {
  // expected-error @below {{has two results of the name `y`}}
  nn.func train @f(%x: tensor<4xf32>) -> (y: tensor<4xf32>, y: tensor<4xf32>) {
    nn.return %x, %x : tensor<4xf32>, tensor<4xf32>
  }
}

// -----

nn.module @m {
  // expected-error @below {{does not end with nn.return}}
  "nn.func"() <{arg_names = [], function_type = () -> (), sym_name = "f"}> ({
    llvm.unreachable
  }) : () -> ()
}

// -----

nn.module @m {
  nn.func @f(%x: tensor<4xf32>) -> tensor<5xf32> {
    // expected-error @below {{returns ('tensor<4xf32>'), expected the results ('tensor<5xf32>') of @f}}
    nn.return %x : tensor<4xf32>
  }
}

// -----

nn.module @m {
  nn.func @f(%x: tensor<4xf32>) {
    // expected-error @below {{calls @g, which is no nn.func of the module}}
    nn.call @g(%x) : (tensor<4xf32>) -> ()
    nn.return
  }
}

// -----

nn.module @m {
  nn.func @f(%x: tensor<4xf32>) {
    // expected-error @below {{calls @g, the function to train}}
    %y = nn.call @g(%x) : (tensor<4xf32>) -> tensor<4xf32>
    nn.return
  }
  nn.func train @g(%x: tensor<4xf32>) -> (y: tensor<4xf32>) {
    nn.return %x : tensor<4xf32>
  }
}

// -----

nn.module @m {
  nn.func @f(%x: tensor<4xf32>) {
    // expected-error @below {{calls @g as '(tensor<4xf32>) -> ()', expected '(tensor<5xf32>) -> ()'}}
    nn.call @g(%x) : (tensor<4xf32>) -> ()
    nn.return
  }
  nn.func @g(%x: tensor<5xf32>) {
    nn.return
  }
}

// -----

nn.module @m {
  nn.func @f(%x: tensor<4xf32>) {
    // expected-error @below {{has no scope, expected at least one}}
    %y = "nn.repeat"(%x) <{scopes = [], arg_names = ["h"]}> ({
    ^bb0(%h: tensor<4xf32>):
      nn.next %h : tensor<4xf32>
    }) : (tensor<4xf32>) -> tensor<4xf32>
    nn.return
  }
}

// -----

nn.module @m {
  nn.scope @layers[0 to 2] {
  }
  nn.func @f(%x: tensor<4xf32>, %z: tensor<5xf32>) {
    // expected-error @below {{begins with ('tensor<4xf32>'), its layers take ('tensor<5xf32>')}}
    %y = "nn.repeat"(%x) <{scopes = [@layers], arg_names = ["h"]}> ({
    ^bb0(%h: tensor<5xf32>):
      nn.next %h : tensor<5xf32>
    }) : (tensor<4xf32>) -> tensor<4xf32>
    nn.return
  }
}

// -----

nn.module @m {
  nn.scope @layers[0 to 2] {
  }
  nn.func @f(%x: tensor<4xf32>, %z: tensor<5xf32>) {
    // expected-error @below {{begins with ('tensor<4xf32>'), its layers end with ('tensor<5xf32>')}}
    %y = nn.repeat @layers (%h = %x : tensor<4xf32>) {
      nn.next %z : tensor<5xf32>
    }
    nn.return
  }
}

// -----

nn.module @m {
  nn.scope @layers[0 to 2] {
  }
  nn.func @f(%x: tensor<4xf32>) {
    // expected-error @below {{begins with ('tensor<4xf32>'), its results are ('tensor<5xf32>')}}
    %y = "nn.repeat"(%x) <{scopes = [@layers], arg_names = ["h"]}> ({
    ^bb0(%h: tensor<4xf32>):
      nn.next %h : tensor<4xf32>
    }) : (tensor<4xf32>) -> tensor<5xf32>
    nn.return
  }
}

// -----

nn.module @m {
  nn.func @f(%x: tensor<4xf32>) {
    // expected-error @below {{repeats @layers, which is no nn.scope of the module}}
    %y = nn.repeat @layers (%h = %x : tensor<4xf32>) {
      nn.next %h : tensor<4xf32>
    }
    nn.return
  }
}

// -----

nn.module @m {
  nn.scope @a[0] {
  }
  nn.scope @b[0] {
  }
  nn.func @f(%x: tensor<4xf32>) {
    // expected-error @below {{repeats scopes named `a` and `b`, expected one name}}
    %y = nn.repeat @a, @b (%h = %x : tensor<4xf32>) {
      nn.next %h : tensor<4xf32>
    }
    nn.return
  }
}

// -----

nn.module @m {
  nn.scope @a[0 to 2] {
  }
  nn.scope @b[0 to 3] named "a" {
  }
  nn.func @f(%x: tensor<4xf32>) {
    // expected-error @below {{repeats @a and @b, which have other layers: say which ones with `at`}}
    %y = nn.repeat @a, @b (%h = %x : tensor<4xf32>) {
      nn.next %h : tensor<4xf32>
    }
    nn.return
  }
}

// -----

nn.module @m {
  nn.scope @a[0 to 2] {
  }
  nn.func @f(%x: tensor<4xf32>) {
    // expected-error @below {{repeats layer 2, which @a does not have}}
    %y = nn.repeat @a at 1 to 3 (%h = %x : tensor<4xf32>) {
      nn.next %h : tensor<4xf32>
    }
    nn.return
  }
}

// -----

nn.module @m {
  // expected-error @below {{has 1 divisors for 2 pairs}}
  nn.parameter @p : tensor<4x2x2xf32> = rotary 100.0
      with #nn.rotary<scaling = longrope, factor = 2.0 : f64, length = 8, divisors = [2.0]> frozen
}

// -----

// A head that is tied to an embedding of another width.
nn.module @m {
  nn.parameter @embedding.weight : tensor<16x8xf32> = normal 0.02
  nn.func @f(%ids: tensor<2x4xi32>, %x: tensor<2x4x6xf32>) {
    %y = nn.embed %ids, @embedding.weight : tensor<2x4xi32> -> tensor<2x4x8xf32>
    // expected-error @below {{reads @embedding.weight of shape 16x8, expected 16x6}}
    %z = nn.linear %x, @embedding.weight : tensor<2x4x6xf32> -> tensor<2x4x16xf32>
    nn.return
  }
}

// -----

nn.module @m {
  nn.func @f(%x: tensor<4x4xf32>) {
    // expected-error @below {{reads @w, which is no nn.parameter of the module}}
    %y = nn.linear %x, @w : tensor<4x4xf32> -> tensor<4x4xf32>
    nn.return
  }
}

// -----

nn.module @m {
  nn.parameter @w : tensor<8x4xf32> = normal 0.02
  nn.func @f(%x: tensor<4x6xf32>) {
    // expected-error @below {{reads @w of shape 8x4, expected 8x6}}
    %y = nn.linear %x, @w : tensor<4x6xf32> -> tensor<4x8xf32>
    nn.return
  }
}

// -----

nn.module @m {
  nn.parameter @w : tensor<8x4xf32> = normal 0.02
  nn.func @f(%x: tensor<2x4x4xf32>) {
    // expected-error @below {{has a result of shape 2x4x8 for 2 heads, expected the shape BxTxHxD}}
    %y = nn.linear %x, @w heads 2 : tensor<2x4x4xf32> -> tensor<2x4x8xf32>
    nn.return
  }
}

// -----

nn.module @m {
  nn.parameter @w : tensor<8x4xf32> = normal 0.02
  nn.func @f(%x: tensor<2x4x4xf32>) {
    // expected-error @below {{has a result of shape 3x4x8 for an input of shape 2x4x4, expected 2x4x8}}
    %y = nn.linear %x, @w : tensor<2x4x4xf32> -> tensor<3x4x8xf32>
    nn.return
  }
}

// -----

nn.module @m {
  nn.parameter @w : tensor<4xf32> = constant 1.0
  nn.func @f(%x: tensor<2x6xf32>) {
    // expected-error @below {{reads @w of shape 4, expected 6}}
    %y = nn.norm %x, @w eps 1.0e-5 : tensor<2x6xf32>
    nn.return
  }
}

// -----

nn.module @m {
  nn.parameter @w : tensor<4x8xf32> = normal 0.02
  nn.func @f(%ids: tensor<2x6xi32>) {
    // expected-error @below {{has a result of shape 2x5x8 for ids of shape 2x6}}
    %y = nn.embed %ids, @w : tensor<2x6xi32> -> tensor<2x5x8xf32>
    nn.return
  }
}

// -----

nn.module @m {
  nn.parameter @w : tensor<8x2x2xf32> = normal 0.02
  nn.func @f(%x: tensor<1x8x2x4xf32>) {
    // expected-error @below {{reads @w, which starts from no rotary angles}}
    %y = nn.rope %x, @w : tensor<1x8x2x4xf32>
    nn.return
  }
}

// -----

nn.module @m {
  nn.parameter @w : tensor<8x2x2xf32> = rotary 100.0 frozen
  nn.func @f(%x: tensor<1x8x2x4xf32>) {
    // expected-error @below {{reads position 14, @w has 8}}
    %y = nn.rope %x, @w stride 2 : tensor<1x8x2x4xf32>
    nn.return
  }
}

// -----

nn.module @m {
  nn.parameter @w : tensor<8x2x2xf32> = rotary 100.0 frozen
  nn.func @f(%x: tensor<1x8x2x5xf32>) {
    // expected-error @below {{rotates heads of 5 channels, expected an even number}}
    %y = nn.rope %x, @w : tensor<1x8x2x5xf32>
    nn.return
  }
}

// -----

nn.module @m {
  nn.parameter @w : tensor<6xf32> = constant 0.0
  nn.func @f(%x: tensor<1x8x6xf32>) {
    // expected-error @below {{has gates of shape 1x8x4x3 for logits of shape 1x8x6}}
    %y = nn.gates sigmoid %x, @w : tensor<1x8x6xf32> -> tensor<1x8x4x3xf32>
    nn.return
  }
}
