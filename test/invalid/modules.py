"""Wrong modules, written by hand. The line with the mark is the one that the error
names."""

MARK = " // <--"


def marked_line(text):
    for number, line in enumerate(text.split("\n"), 1):
        if MARK in line:
            return number
    return None


OPT = "nsa-opt"
COMPILE = "nsa-compile"


def function(*lines, arguments="%a: tensor<4xf32>", results="tensor<4xf32>"):
    arrow = f" -> {results}" if results else ""
    return f"func.func @f({arguments}){arrow} {{\n" + "".join(f"  {l}\n" for l in lines) + "}\n"


def argument(attributes, kind="tensor<4xf32>"):
    return f"func.func @f(%a: {kind} {{{attributes}}}) -> {kind} {{{MARK}\n  return %a : {kind}\n}}\n"


def kernel(*lines, arguments="%x: memref<8xf32>, %y: memref<8xf32>", attributes=None):
    attributes = attributes or "grid = array<i32: 1, 1, 1>, num_outputs = 1 : i32"
    body = "".join(f"  {line}\n" for line in lines)
    return f"tile.kernel private @k({arguments}) attributes {{{attributes}}} {{\n{body}  tile.return\n}}\n"


SILU = "%0 = nn.silu %a : (tensor<4xf32>) -> tensor<4xf32>"
RETURN = "return %0 : tensor<4xf32>"

# (name, tool, flags, text, expected message)
SYNTAX = [
    ("no module", OPT, [], "this is no module" + MARK, "custom op 'this' is unknown"),
    ("an unknown operation", OPT, [], function("%0 = nn.silo %a : (tensor<4xf32>) -> tensor<4xf32>" + MARK, RETURN), "'nn.silo' is unknown"),
    ("a missing brace", OPT, [], "func.func @f() {\n  return" + MARK + "\n", "expected"),
    ("an unknown way to compress", OPT, [], "func.func @f(%a: tensor<1x8x1x4xf32>) {\n  %0 = nsa.compress max %a {block = 2 : i64, stride = 2 : i64}" + MARK + " : (tensor<1x8x1x4xf32>) -> tensor<1x4x1x4xf32>\n  return\n}\n", "mean"),
    ("an unknown gate", OPT, [], "func.func @f(%a: tensor<1x8x6xf32>) {\n  %0 = nn.gate relu %a : (tensor<1x8x6xf32>) -> tensor<1x8x2x3xf32>" + MARK + "\n  return\n}\n", "sigmoid"),
    ("a third dynamic size", OPT, [], argument("", "tensor<?x?x?xf32>"), "has `?` in dimension 2"),
    ("angles with an end", OPT, [], "func.func @f(%a: tensor<?x?x2x4xf32>, %t: tensor<64x2x2xf32>) -> tensor<?x?x2x4xf32> {\n  %0 = nn.rotary %a, %t : (tensor<?x?x2x4xf32>, tensor<64x2x2xf32>) -> tensor<?x?x2x4xf32>" + MARK + "\n  return %0 : tensor<?x?x2x4xf32>\n}\n", "has a table of 64 positions, but sequences of any length"),
    ("an integer type", OPT, [], function("%0 = nn.silu %a : (tensor<4xi32>) -> tensor<4xi32>" + MARK, "return %0 : tensor<4xi32>", arguments="%a: tensor<4xi32>", results="tensor<4xi32>"), "tensor<4xi32>"),
    ("a cast to an integer", OPT, [], function("%0 = nn.cast %a to i32 : (tensor<4xf32>) -> tensor<4xi32>" + MARK, "return %a : tensor<4xf32>"), ""),
    ("a fill with text", OPT, [], function('%0 = nn.fill "x" : tensor<4xf32>' + MARK, RETURN), ""),
]

X = "tensor<?x4xf32>"


def open_function(*lines, arguments=f"%x: {X}", results=X):
    """One whose first argument has `?`, which takes a number before all is verified."""
    return function(*lines, arguments=arguments, results=results)


def generic(name, operands, properties="", result=X, types=X):
    count = len(operands.split(",")) if operands else 0
    return f'%0 = "{name}"({operands}) {properties} : ({", ".join([types] * count)}) -> {result}'


Q = "tensor<?x?x4x16xf32>"
LSE = "tensor<?x4x?xf32>"
OPEN = [
    ("an empty body", "func.func @f(%x: tensor<?xf32>) {" + MARK + "\n}\n", "is empty, expected func.return"),
    ("no return", open_function(f"%0 = nn.silu %x : ({X}) -> {X}").replace("{\n", "{" + MARK + "\n", 1), "ends with nn.silu, expected func.return"),
    ("two blocks", open_function("cf.br ^bb1", "^bb1:", f"return %x : {X}").replace("{\n", "{" + MARK + "\n", 1), "has 2 blocks, expected 1"),
    ("a return of too little", open_function(f"return %x : {X}" + MARK, results=f"({X}, tensor<4xf32>)"), "has 1 operands, but enclosing function (@f) returns 2"),
    ("a return of another type", open_function(f"return %x : {X}" + MARK, results="tensor<?x5xf32>"), "doesn't match function result type"),
    ("another result", open_function(f"%0 = nn.silu %x : ({X}) -> tensor<?x5xf32>" + MARK, "return %0 : tensor<?x5xf32>", results="tensor<?x5xf32>"), "tensor<?x5xf32>"),
    ("too few operands", open_function(generic("nn.add", "%x") + MARK, f"return %0 : {X}"), "expected 2 operands, but found 1"),
    ("too many operands", open_function(generic("nn.silu", "%x, %x") + MARK, f"return %0 : {X}"), "requires a single operand"),
    ("no operands", open_function(generic("nn.silu", "") + MARK, f"return %x : {X}"), "requires a single operand"),
    ("two results", open_function(f'%0:2 = "nn.silu"(%x) : ({X}) -> ({X}, {X})' + MARK, f"return %0#0 : {X}"), "requires one result"),
    ("no table", open_function(generic("nn.rotary", "%x", types=Q, result=Q) + MARK, f"return %0 : {Q}", arguments=f"%x: {Q}", results=Q), "expected 2 or more operands, but found 1"),
    ("no visibility", open_function(f'%0:2 = "nsa.attention"(%x, %x, %x) : ({Q}, {Q}, {Q}) -> ({Q}, {LSE})' + MARK, f"return %0#0 : {Q}", arguments=f"%x: {Q}", results=Q), "operandSegmentSizes"),
    ("no heads", open_function(generic("nn.split_heads", "%x", types="tensor<?x?x48xf32>", result=Q) + MARK, f"return %0 : {Q}", arguments="%x: tensor<?x?x48xf32>", results=Q), "heads"),
    ("an operand of another rank", open_function(generic("nn.merge_heads", "%x", result="tensor<?x?x48xf32>") + MARK, f"return %x : {X}"), "operand #0 must be"),
    ("a use before the value", open_function(f"%0 = nn.add %x, %1 : ({X}, {X}) -> {X}" + MARK, f"%1 = nn.silu %x : ({X}) -> {X}", f"return %0 : {X}"), "does not dominate this use"),
    ("a function without a type", '"func.func"() <{sym_name = "f"}> ({' + MARK + f"\n^bb0(%x: {X}):\n  func.return %x : {X}\n}}) : () -> ()\n", "function_type"),
    ("arguments of another type", f'"func.func"() <{{sym_name = "f", function_type = ({X}) -> ()}}> ({{' + MARK + "\n^bb0(%x: tensor<?xf32>):\n  func.return\n}) : () -> ()\n", "type of entry block argument #0"),
    ("a module in a module", "module {\n" + open_function(f"%0 = nn.silu %x : ({X}) -> {X}" + MARK, f"return %0 : {X}") + "}\n" + function(f"return %x : {X}", arguments=f"%x: {X}", results=X), "statically shaped"),
    ("parts of other ranks", open_function(f"%0 = \"nn.concat\"(%x, %y) : ({X}, tensor<f32>) -> {X}" + MARK, f"return %0 : {X}", arguments=f"%x: {X}, %y: tensor<f32>"), "operand #1 must be"),
    ("a matrix of rank 0", open_function(f"%0 = \"nn.matmul\"(%x, %y) : ({X}, tensor<f32>) -> {X}" + MARK, f"return %0 : {X}", arguments=f"%x: {X}, %y: tensor<f32>"), "operand #1 must be"),
    ("parts without sizes", open_function(generic("nn.split", "%x") + MARK, f"return %x : {X}"), "sizes"),
    ("fewer parts than sizes", open_function(generic("nn.split", "%x", "<{sizes = array<i64: 1, 3>}>", result="tensor<?x1xf32>") + MARK, f"return %x : {X}"), "extent of all parts (1) must be equal to extent of the whole (4)"),
    ("a call", open_function(f"%0 = func.call @g(%x) : ({X}) -> {X}" + MARK, f"return %0 : {X}") + f"func.func private @g({X}) -> {X}\n", "does not infer its result types"),
]
OPEN = [(f"`?` and {name}", tool, [], text, expected) for name, text, expected in OPEN for tool in (OPT, COMPILE)]
OPEN.append(("the largest size beside `?`", COMPILE, [], open_function(f"return %x : {X}", arguments=f"%x: {X}, %y: tensor<9223372036854775807xf32>").replace("{\n", "{" + MARK + "\n", 1), "elements"))

ATTRIBUTES = [
    ("an empty name", OPT, [], argument('nn.name = ""'), "nn.name"),
    ("a role on a result", OPT, [], 'func.func @f(%a: tensor<f32>) -> (tensor<f32> {nn.role = "input"}) {' + MARK + "\n  return %a : tensor<f32>\n}\n", "nn.role"),
    ("dims that are words", OPT, [], argument('nn.dims = "batch"'), "nn.dims"),
    ("an init that is a number", OPT, [], argument("nn.init = 0.02 : f64"), "nn.init"),
    ("an unknown init", OPT, [], argument("nn.init = #nn.init<uniform, 1.0>"), ""),
    ("an init without a value", OPT, [], argument("nn.init = #nn.init<normal>"), "expected"),
    ("a rotary table of base 0", OPT, [], argument('nn.role = "constant", nn.init = #nn.init<rotary, 0.0>', "tensor<4x2x2xf32>"), ""),
    ("a decay that is a number", OPT, [], argument("nn.decay = 0.1 : f64"), "nn.decay"),
    ("extents that are no table", OPT, [], "module attributes {nsa.extents = [[7 : i64]]} {}" + MARK, "must be a list of numbers and maps of two symbols"),
    ("extents of one symbol", OPT, [], "module attributes {nsa.extents = [[7 : i64, affine_map<()[s0] -> (s0)>]]} {}" + MARK, "maps of two symbols"),
    ("extents with a remainder", OPT, [], "module attributes {nsa.extents = [[7 : i64, affine_map<()[s0, s1] -> (s0 mod 2)>]]} {}" + MARK, "maps of two symbols"),
]

MODELS = [
    ("a call", COMPILE, [], function("%0 = func.call @g(%a) : (tensor<4xf32>) -> tensor<4xf32>" + MARK, RETURN) + "func.func private @g(tensor<4xf32>) -> tensor<4xf32>\n", "func.call"),
    ("arithmetic between operations", COMPILE, [], function("%0 = arith.addf %a, %a : tensor<4xf32>" + MARK, RETURN), "arith.addf"),
    ("a branch", COMPILE, [], function("cf.br ^bb1" + MARK, "^bb1:", "return %a : tensor<4xf32>"), ""),
    ("a function without a body", COMPILE, [], "func.func @f(tensor<4xf32>) -> tensor<4xf32>" + MARK, ""),
    ("a tensor that no machine holds", COMPILE, [], function("return %a : tensor<4294967296x4294967296xf32>", arguments="%a: tensor<4294967296x4294967296xf32>", results="tensor<4294967296x4294967296xf32>").replace("{\n", "{" + MARK + "\n", 1), "elements"),
]

PROGRAMS = [
    ("a kernel with results", OPT, [], "tile.kernel private @k() -> f32 attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32} {" + MARK + "\n  tile.return\n}\n", ""),
    ("a negative grid", OPT, [], kernel(attributes="grid = array<i32: 1, -1, 1>, num_outputs = 1 : i32").replace("{\n", "{" + MARK + "\n", 1), "grid extent -1 is negative"),
    ("no number of outputs", OPT, [], kernel(attributes="grid = array<i32: 1, 1, 1>").replace("{\n", "{" + MARK + "\n", 1), "num_outputs"),
    ("a kernel that does not return", OPT, [], "tile.kernel private @k() attributes {grid = array<i32: 1, 1, 1>, num_outputs = 0 : i32} {" + MARK + "\n}\n", "expected non-empty function body"),
    ("an unknown tile type", OPT, [], kernel("%c = arith.constant 0.0 : f32", "%t = tile.splat %c : !tile.til<4x4xf32>" + MARK), "til"),
    ("a tile of dynamic size", OPT, [], kernel("%c = arith.constant 0.0 : f32", "%t = tile.splat %c : !tile.tile<?x4xf32>" + MARK), ""),
    ("a splat of another type", OPT, [], kernel("%c = arith.constant 0 : i32", "%t = tile.splat %c : !tile.tile<4x4xf32>" + MARK), ""),
    ("an axis out of range", OPT, [], kernel("%p = tile.program_id 3 : i32" + MARK), "3"),
    ("too few indices", OPT, [], kernel("%c = arith.constant 0 : i32", "%t = tile.load %x[] : memref<8xf32>, () -> f32" + MARK), ""),
    ("a segment of negative size", OPT, [], "rt.segment arena @arena size -1 alignment 64" + MARK, ""),
    ("an unknown segment", OPT, [], "rt.segment heap @arena size 0 alignment 64" + MARK, ""),
]

CASES = SYNTAX + OPEN + ATTRIBUTES + MODELS + PROGRAMS
