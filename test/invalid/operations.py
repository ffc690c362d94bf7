"""Wrong operations: every operation of nsa and nn, valid as listed here, with one
thing changed at a time."""

import re

Q = "tensor<1x64x4x16xf32>"
KV = "tensor<1x64x2x16xf32>"
CKV = "tensor<1x15x2x16xf32>"
LSE = "tensor<1x4x64xf32>"
IDX = "tensor<1x2x64x3xi32>"
GATES = "tensor<1x64x4x3xf32>"
W = "tensor<2x128x16xf32>"
W2 = "tensor<2x16x16xf32>"
POSITIONS = "tensor<2x8x16xf32>"
X = "tensor<2x8x32xf32>"
SCALAR = "tensor<f32>"
BLOCKS = {"block": 8, "stride": 4}
SELECT = {**BLOCKS, "select_block": 16, "count": 3}

# (mnemonic, operand types, integer attributes, result types)
OPERATIONS = [
    ("nsa.compress mean", [KV], BLOCKS, [CKV]),
    ("nsa.compress linear", [KV, W], BLOCKS, [CKV]),
    ("nsa.compress mlp", [KV, W, W2, POSITIONS], BLOCKS, [CKV]),
    ("nsa.compress_backward mean", [CKV, KV], BLOCKS, [KV]),
    ("nsa.compress_backward linear", [CKV, KV, W], BLOCKS, [KV, W]),
    ("nsa.compress_backward mlp", [CKV, KV, W, W2, POSITIONS], BLOCKS, [KV, W, W2, POSITIONS]),
    ("nsa.compressed_attention", [Q, CKV, CKV], BLOCKS, [Q, LSE]),
    ("nsa.compressed_attention_backward", [Q, Q, CKV, CKV, Q, LSE], BLOCKS, [Q, CKV, CKV]),
    ("nsa.select", [Q, CKV, LSE], SELECT, [IDX]),
    ("nsa.selected_attention", [Q, KV, KV, IDX], {"select_block": 16}, [Q, LSE]),
    (
        "nsa.selected_attention_backward",
        [Q, Q, KV, KV, Q, LSE, IDX],
        {"select_block": 16},
        [Q, KV, KV],
    ),
    ("nsa.window_attention", [Q, KV, KV], {"window": 32}, [Q, LSE]),
    ("nsa.window_attention_backward", [Q, Q, KV, KV, Q, LSE], {"window": 32}, [Q, KV, KV]),
    ("nsa.combine", [GATES, Q, Q, Q], {}, [Q]),
    ("nsa.combine_backward", [Q, GATES, Q, Q, Q], {}, [GATES, Q, Q, Q]),
    ("nsa.gate_statistics", [GATES], {}, ["tensor<4xf32>"]),
    ("nsa.selection_statistics", [IDX], {"select_block": 16}, ["tensor<3xf32>"]),
    ("nn.embedding", ["tensor<16x32xf32>", "tensor<2x8xi32>"], {}, [X]),
    ("nn.embedding_backward", [X, "tensor<2x8xi32>"], {"vocab": 16}, ["tensor<16x32xf32>"]),
    ("nn.matmul", [X, "tensor<32x48xf32>"], {}, ["tensor<2x8x48xf32>"]),
    ("nn.rms_norm_backward", [X, X, "tensor<32xf32>", "tensor<2x8xf32>"], {}, [X, "tensor<32xf32>"]),
    ("nn.rotary", [CKV, "tensor<57x8x2xf32>"], {"stride": 4}, [CKV]),
    ("nn.split_heads", ["tensor<1x8x48xf32>"], {"heads": 4}, ["tensor<1x8x4x12xf32>"]),
    ("nn.merge_heads", ["tensor<1x8x4x12xf32>"], {}, ["tensor<1x8x48xf32>"]),
    ("nn.gate sigmoid", ["tensor<1x64x12xf32>", "tensor<12xf32>"], {}, [GATES]),
    ("nn.silu", [X], {}, [X]),
    ("nn.silu_backward", [X, X], {}, [X]),
    ("nn.swiglu", [X, X], {}, [X]),
    ("nn.swiglu_backward", [X, X, X], {}, [X, X]),
    ("nn.add_bias", [X, "tensor<32xf32>"], {}, [X]),
    ("nn.sum_rows", [X], {}, ["tensor<32xf32>"]),
    ("nn.geglu", [X, X], {}, [X]),
    ("nn.geglu_backward", [X, X, X], {}, [X, X]),
    ("nn.scale", [X], {"factor": "2.0 : f64"}, [X]),
    ("nn.gelu", [X], {}, [X]),
    ("nn.gelu_backward", [X, X], {}, [X]),
    ("nn.squared_relu", [X], {}, [X]),
    ("nn.squared_relu_backward", [X, X], {}, [X]),
    ("nn.softcap", [X], {"cap": "30.0 : f64"}, [X]),
    ("nn.softcap_backward", [X, X], {"cap": "30.0 : f64"}, [X]),
    ("nn.add", [X, X], {}, [X]),
    ("nn.cross_entropy", [X, "tensor<2x8xi32>"], {}, [SCALAR, "tensor<2x8xf32>", SCALAR]),
    (
        "nn.cross_entropy_backward",
        [SCALAR, X, "tensor<2x8xi32>", "tensor<2x8xf32>", SCALAR],
        {},
        [X],
    ),
    ("nn.argmax", [X, "tensor<32xf32>"], {}, ["tensor<2x8xi32>"]),
    (
        "nn.draw",
        ["tensor<2x1x32xf32>", "tensor<32xf32>", "tensor<2x1xi32>", "tensor<2x8x3xi32>", "tensor<2xi32>", "tensor<2xf32>",
         "tensor<2xi32>", "tensor<2x3xi32>"],
        {},
        ["tensor<2x1xi32>"],
    ),
    (
        "nsa.advance",
        ["tensor<2x1xi32>", "tensor<2xi32>", "tensor<2x32xi32>", "tensor<1xi32>"],
        {"context": 64},
        ["tensor<2xi32>", "tensor<2x32xi32>"],
    ),
    ("nn.adamw", [X, X, X, X, SCALAR, SCALAR, "tensor<8xf32>"], {}, [X, X, X]),
    ("nn.lion", [X, X, X, SCALAR, SCALAR, "tensor<8xf32>"], {}, [X, X]),
]


# (mnemonic, operand, dimension) that no other type depends on.
FREE = {
    ("nsa.compress mean", 0, 1),
    ("nsa.compress linear", 0, 1),
    ("nsa.compress mlp", 0, 1),
    *(("nsa.gate_statistics", 0, at) for at in range(3)),
    *(("nsa.selection_statistics", 0, at) for at in range(4)),
    ("nsa.selected_attention", 3, 3),
    ("nsa.selected_attention_backward", 6, 3),
    ("nn.embedding", 0, 0),
    ("nn.rotary", 0, 1),
    ("nn.rotary", 1, 0),
    ("nn.cross_entropy", 0, 2),
    ("nn.draw", 3, 1),
    ("nn.sum_rows", 0, 0),
    ("nn.sum_rows", 0, 1),
}


def attribute(value):
    return f"{value} : i64" if isinstance(value, int) else value


def write(mnemonic, operands, attributes, results):
    """A function of the operation, which stands on line 2."""
    arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(operands))
    names = ", ".join(f"%r{i}" for i in range(len(results)))
    values = ", ".join(f"%a{i}" for i in range(len(operands)))
    inside = ", ".join(f"{key} = {attribute(v)}" for key, v in attributes.items())
    dictionary = f" {{{inside}}}" if inside else ""
    return (
        f"func.func @f({arguments}) {{\n"
        f"  {names} = {mnemonic} {values}{dictionary} : ({', '.join(operands)}) -> ({', '.join(results)})\n"
        "  return\n}\n"
    )


def sizes(kind):
    return re.findall(r"(\d+)x", kind)


def retype(kind, shape, element=None):
    old = re.search(r"[x<]([a-z]+\d+)>", kind)[1]
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element or old}>"


def valid():
    for mnemonic, operands, attributes, results in OPERATIONS:
        yield mnemonic, write(mnemonic, operands, attributes, results)


def attribute_mutations():
    for mnemonic, operands, attributes, results in OPERATIONS:
        for key in attributes:
            def case(value, expected):
                changed = {k: v for k, v in attributes.items() if k != key}
                if value is not None:
                    changed[key] = value
                return (
                    f"{mnemonic}, {key} = {value}",
                    write(mnemonic, operands, changed, results),
                    2,
                    expected,
                )

            broken = f"attribute '{key}' failed to satisfy constraint"
            if mnemonic != "nn.rotary":
                yield case(None, f"requires attribute '{key}'")
            yield case(0, broken)
            yield case(-3, broken)
            yield case('"8"', broken)
            yield case(9223372036854775807, "9223372036854775807" if isinstance(attributes[key], int) else broken)


def operand_mutations():
    turn = 0
    for mnemonic, operands, attributes, results in OPERATIONS:
        for i, kind in enumerate(operands):
            shape = sizes(kind)
            kinds = [
                ("element f64", retype(kind, shape, "f64"), "f64"),
                ("element i8", retype(kind, shape, "i8"), "i8"),
                ("no known rank", "tensor<*xf32>", "tensor<*xf32>"),
                ("a vector", kind.replace("tensor", "vector"), "vector<"),
            ]
            if shape and mnemonic != "nn.sum_rows":  # takes any rank
                kinds.append(("one dimension less", retype(kind, shape[1:]), ""))
                if mnemonic != "nn.matmul":
                    kinds.append(("one dimension more", retype(kind, ["1"] + shape), ""))
            if shape:
                for at in range(len(shape)):
                    longer = shape[:at] + [str(int(shape[at]) + 3)] + shape[at + 1:]
                    if (mnemonic, i, at) not in FREE:
                        expected = (longer[at], "have same type", "inferred type(s)")
                        kinds.append((f"dimension {at} longer", retype(kind, longer), expected))
            for what, other, expected in kinds:
                changed = operands[:i] + [other] + operands[i + 1:]
                yield (
                    f"{mnemonic}, operand {i} with {what}",
                    write(mnemonic, changed, attributes, results),
                    2,
                    expected,
                )
