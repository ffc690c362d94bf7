// RUN: nsa-opt %s --nsa-expand-model --split-input-file --verify-diagnostics

// expected-error @below {{has no function to train: one is to begin with `nn.func train`}}
nn.module @m {
}

// -----

nn.module @a {
  nn.func train @f(%x: tensor<4xf32>) -> (y: tensor<4xf32>) {
    nn.return %x : tensor<4xf32>
  }
}
// expected-error @below {{is the second model of the file, expected one}}
nn.module @b {
}

// -----

nn.module @m {
  // expected-error @below {{@f has the name of a function next to the model}}
  nn.func train @f(%x: tensor<4xf32>) -> (y: tensor<4xf32>) {
    nn.return %x : tensor<4xf32>
  }
}
func.func private @f()

// -----

nn.module @m {
  nn.func @a(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = nn.call @b(%x) : (tensor<4xf32>) -> tensor<4xf32>
    nn.return %y : tensor<4xf32>
  }
  nn.func @b(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @below {{makes @a call itself}}
    %y = nn.call @a(%x) : (tensor<4xf32>) -> tensor<4xf32>
    nn.return %y : tensor<4xf32>
  }
  nn.func train @f(%x: tensor<4xf32>) -> (y: tensor<4xf32>) {
    %y = nn.call @a(%x) : (tensor<4xf32>) -> tensor<4xf32>
    nn.return %y : tensor<4xf32>
  }
}

// -----

nn.module @m {
  nn.scope @layers[0 to 2] {
    nn.parameter @w : tensor<4xf32> = constant 1.0
  }
  nn.func train @f(%x: tensor<2x4xf32>) -> (y: tensor<2x4xf32>) {
    // expected-error @below {{reads @layers::@w outside of an nn.repeat of @layers}}
    %y = nn.norm %x, @layers::@w eps 1.0e-5 : tensor<2x4xf32>
    nn.return %y : tensor<2x4xf32>
  }
}

// -----

nn.module @m {
  // expected-error @below {{@unused is read by no operation of @f}}
  nn.parameter @unused : tensor<4xf32> = constant 1.0
  nn.func train @f(%x: tensor<4xf32>) -> (y: tensor<4xf32>) {
    nn.return %x : tensor<4xf32>
  }
}

// -----

nn.module @m {
  nn.scope @layers[0 to 2] {
  }
  nn.func train @f(%x: tensor<4xf32>) -> (y: tensor<4xf32>) {
    %y = nn.repeat @layers (%h = %x : tensor<4xf32>) {
      // expected-error @below {{repeats @layers within itself}}
      %z = nn.repeat @layers (%i = %h : tensor<4xf32>) {
        nn.next %i : tensor<4xf32>
      }
      nn.next %z : tensor<4xf32>
    }
    nn.return %y : tensor<4xf32>
  }
}

// -----

nn.module @m {
  // expected-error @below {{logs or returns two values of the name `y`}}
  nn.func train @f(%x: tensor<4xf32>) -> (y: tensor<4xf32>) {
    nn.log "y", %x : tensor<4xf32>
    nn.return %x : tensor<4xf32>
  }
}
