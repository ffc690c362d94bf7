// Causal attention forward for one head of 64: each block takes 64 queries and
// iterates over the keys up to the last of them, 64 at a time, with the softmax
// of FlashAttention-2. docs/gpu-codegen.md shows it after each pass;
// --mlir-use-nameloc-as-prefix keeps the names.

!row = !tile.tile<64x1xi32>
!col = !tile.tile<1x64xi32>
!stat = !tile.tile<64x1xf32>
!half = !tile.tile<64x64xbf16>
!full = !tile.tile<64x64xf32>
!tensor = memref<1024x64xbf16>

tile.kernel @causal(%q: !tensor loc("q"), %k: !tensor loc("k"), %v: !tensor loc("v"), %o: !tensor loc("o"))
    attributes {grid = array<i32: 16, 1, 1>, num_outputs = 1 : i32} {
  %c0 = arith.constant 0 : i32 loc("c0")
  %c64 = arith.constant 64 : i32 loc("c64")
  %scale = arith.constant 0.180336878 : f32 loc("scale")
  %zero = arith.constant 0.0 : f32 loc("zero")
  %lowest = arith.constant 0xFF800000 : f32 loc("lowest")
  %block = tile.program_id 0 : i32 loc("block")
  %first = arith.muli %block, %c64 : i32 loc("first")
  %end = arith.addi %first, %c64 : i32 loc("end")
  %row = tile.range %first : !row loc("row")
  %dim = tile.range %c0 : !col loc("dim")
  %qt = tile.load %q[%row, %dim] : !tensor, (!row, !col) -> !half loc("qt")
  %zeros = tile.splat %zero : !full loc("zeros")
  %m0 = tile.splat %lowest : !stat loc("m0")
  %l0 = tile.splat %zero : !stat loc("l0")
  %r:3 = scf.for %i = %c0 to %end step %c64 iter_args(%acc = %zeros, %m = %m0, %l = %l0) -> (!full, !stat, !stat) : i32 {
    %key = tile.range %i : !row loc("key")
    %col = tile.range %i : !col loc("col")
    %kt = tile.load %k[%key, %dim] : !tensor, (!row, !col) -> !half loc("kt")
    %s = tile.dot %qt, %kt, %zeros {transpose_b} : !half, !half, !full loc("s")
    %scores = tile.map (%s, %row, %col : !full, !row, !col) -> !full {
    ^bb0(%x: f32, %t: i32, %u: i32):
      %visible = arith.cmpi sle, %u, %t : i32
      %y = arith.mulf %x, %scale : f32
      %z = arith.select %visible, %y, %lowest : f32
      tile.yield %z : f32
    } loc("scores")
    %top = tile.reduce max %scores {axis = 1 : i32} : !full -> !stat loc("top")
    %max = tile.map (%m, %top : !stat, !stat) -> !stat {
    ^bb0(%x: f32, %y: f32):
      %z = arith.maxnumf %x, %y : f32
      tile.yield %z : f32
    } loc("max")
    %factor = tile.map (%m, %max : !stat, !stat) -> !stat {
    ^bb0(%x: f32, %y: f32):
      %d = arith.subf %x, %y : f32
      %e = math.exp2 %d : f32
      tile.yield %e : f32
    } loc("factor")
    %e = tile.map (%scores, %max : !full, !stat) -> !full {
    ^bb0(%x: f32, %y: f32):
      %d = arith.subf %x, %y : f32
      %e = math.exp2 %d : f32
      tile.yield %e : f32
    } loc("e")
    %es = tile.reduce add %e {axis = 1 : i32} : !full -> !stat loc("es")
    %sum = tile.map (%l, %factor, %es : !stat, !stat, !stat) -> !stat {
    ^bb0(%x: f32, %y: f32, %z: f32):
      %w = math.fma %x, %y, %z : f32
      tile.yield %w : f32
    } loc("sum")
    %scaled = tile.map (%acc, %factor : !full, !stat) -> !full {
    ^bb0(%x: f32, %y: f32):
      %z = arith.mulf %x, %y : f32
      tile.yield %z : f32
    } loc("scaled")
    %p = tile.map (%e : !full) -> !half {
    ^bb0(%x: f32):
      %z = arith.truncf %x : f32 to bf16
      tile.yield %z : bf16
    } loc("p")
    %vt = tile.load %v[%key, %dim] : !tensor, (!row, !col) -> !half loc("vt")
    %pv = tile.dot %p, %vt, %scaled : !half, !half, !full loc("pv")
    scf.yield %pv, %max, %sum : !full, !stat, !stat
  }
  %mean = tile.map (%r#0, %r#2 : !full, !stat) -> !full {
  ^bb0(%x: f32, %y: f32):
    %z = arith.divf %x, %y : f32
    tile.yield %z : f32
  } loc("mean")
  %ot = tile.map (%mean : !full) -> !half {
  ^bb0(%x: f32):
    %z = arith.truncf %x : f32 to bf16
    tile.yield %z : bf16
  } loc("ot")
  tile.store %ot, %o[%row, %dim] : !half, !tensor, (!row, !col)
  tile.return
}
