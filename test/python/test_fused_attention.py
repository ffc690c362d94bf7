"""Branches of attention, their gates and their sum, as one operation, against NumPy."""

import numpy as np
import pytest

import nsa
import reference as ref
from support import F32, assert_close, random, tensor

# batch, length, query heads, kv heads, dk, dv
SHAPES = [(2, 65, 4, 2, 16, 16), (1, 40, 3, 1, 16, 24), (1, 7, 2, 2, 16, 16)]
BLOCK, STRIDE, SELECT_BLOCK, WINDOW = 8, 4, 16, 16
VISIBLE = {"cmp": f"#nsa.compressed<block = {BLOCK}, stride = {STRIDE}>", "slc": f"#nsa.selected<block = {SELECT_BLOCK}>",
           "win": f"#nsa.window<{WINDOW}>", "all": "#nsa.causal", "str": "#nsa.strided<block = 8, stride = 2>"}
NSA = ("cmp", "slc", "win")
CASES = [(shape, NSA, gating) for shape in SHAPES for gating in ("given", "sigmoid", "softmax")]
# Two branches, one alone, and more than one of a kind, in another order.
CASES += [(SHAPES[0], ("slc", "win"), "softmax"), (SHAPES[1], ("slc",), "sigmoid"), (SHAPES[0], ("win", "slc"), "given"),
          (SHAPES[1], ("str", "win", "all", "slc", "cmp"), "softmax"), (SHAPES[0], ("win", "cmp", "slc", "win", "cmp"), "sigmoid")]


def activate(gating, z):
    if gating == "sigmoid":
        return 1 / (1 + np.exp(-z))
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def differentiate(gating, dy, y):
    if gating == "sigmoid":
        return dy * y * (1 - y)
    return y * (dy - (dy * y).sum(-1, keepdims=True))


class Module:
    """Text of one function, and the values of its arguments."""

    def __init__(self, element):
        self.element, self.lines, self.args, self.values = element, [], [], {}

    def add(self, x):
        """An argument; its name and its type."""
        kind = self.element
        if isinstance(x, F32):
            x, kind = x.array, "f32"
        integer = np.issubdtype(x.dtype, np.integer)
        name, kind = f"%a{len(self.args)}", tensor(x.shape, "i32" if integer else kind)
        self.values[f"arg{len(self.args)}"] = x.astype(np.int32 if integer else np.float32)
        self.args.append(f"{name}: {kind}")
        return name, kind

    def line(self, results, op, operands, clause, types=None):
        """`results = op operands clause`; without `types` of results, they follow from those of the operands."""
        names, kinds = zip(*operands)
        end = ", ".join(kinds) if types is None else f"({', '.join(kinds)}) -> ({', '.join(types)})"
        self.lines.append(f"  {', '.join(results)} = {op} {', '.join(names)} {clause} : {end}")

    def attention(self, results, op, operands, branch, indices):
        clause = VISIBLE[branch] + (f", {indices[0]} : {indices[1]}" if branch == "slc" else "")
        self.line(results, op, operands, f"visible({clause})")

    def run(self, returned):
        names, types = zip(*returned)
        text = (f"func.func @main({', '.join(self.args)}) -> ({', '.join(types)}) {{\n" + "\n".join(self.lines) +
                f"\n  return {', '.join(names)} : {', '.join(types)}\n}}\n")
        out = nsa.compile(text, poison=True).run("main", self.values)
        return [out[f"result{i}"] for i in range(len(names))]


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("shape, branches, gating", CASES)
def test_gated_attention(rng, shape, branches, gating, element):
    b, s, hq, hkv, dk, dv = shape
    n, numbers = len(branches), range(len(branches))
    lengths = [ref.compressed_rows(s, BLOCK, STRIDE) if kind == "cmp" else s for kind in branches]
    q, do = random(rng, b, s, hq, dk, element=element), random(rng, b, s, hq, dv, element=element)
    keys = [random(rng, b, rows, hkv, dk, element=element) for rows in lengths]
    values = [random(rng, b, rows, hkv, dv, element=element) for rows in lengths]
    indices, _ = ref.select(rng.random((b, hkv, s, -(-s // SELECT_BLOCK))), SELECT_BLOCK, 3)
    t, u = np.arange(s)[:, None], np.arange(s)[None, :]
    known = {"cmp": ref.compressed_mask(s, BLOCK, STRIDE), "slc": ref.selected_mask(indices, s, SELECT_BLOCK),
             "win": ref.window_mask(s, WINDOW), "all": u <= t, "str": (u <= t) & ((t // 8 - u // 8) % 2 == 0)}
    masks = [known[kind] for kind in branches]
    exact = [ref.attention(q, k, v, m) for k, v, m in zip(keys, values, masks)]
    rounded, late = ([ref.attention(q, k, v, m, kind=element, late=late) for k, v, m in zip(keys, values, masks)]
                     for late in (False, True))
    r = ref.rounder(element)
    store = ref.to_bf16 if element == "bf16" else np.float32
    outputs = [store(o) for o, _ in exact]
    lses = [F32(lse.astype(np.float32)) for _, lse in exact]
    gates = F32(rng.random((b, s, hq, n)).astype(np.float32))
    logits, bias = random(rng, b, s, n * hq, element=element), F32(rng.standard_normal(n * hq).astype(np.float32))
    if gating != "given":
        z = (logits.astype(np.float64) + bias.array).reshape(b, s, hq, n)
        gates = F32(activate(gating, z))
    y = gates.array

    gates_type, lse_type = tensor(y.shape, "f32"), tensor((b, hq, s), "f32")

    def add_gates(module):
        if gating == "given":
            return module.add(gates)
        operands = [module.add(logits), module.add(bias)]
        module.line(["%g"], f"nn.gate {gating}", operands, f"{{branches = {n} : i64}}", [gates_type])
        return "%g", gates_type

    def mix(terms):
        return sum(y[..., c, None] * np.asarray(x, np.float64) for c, x in enumerate(terms))

    forward = Module(element)
    query, chosen = forward.add(q), forward.add(indices)
    o_type = tensor(do.shape, element)
    for c in numbers:
        forward.attention([f"%o{c}", f"%l{c}"], "nsa.attention", [query, forward.add(keys[c]), forward.add(values[c])],
                          branches[c], chosen)
    forward.line(["%y"], "nsa.combine", [add_gates(forward)] + [(f"%o{c}", o_type) for c in numbers], "", [o_type])
    got = forward.run([("%y", o_type)] + [x for c in numbers for x in ((f"%o{c}", o_type), (f"%l{c}", lse_type))])
    assert_close(got[0], mix([o for o, _ in exact]), [r(mix([o for o, _ in way])) for way in (rounded, late)])
    for c in numbers:
        assert_close(got[1 + 2 * c], exact[c][0], [rounded[c][0], late[c][0]])
        assert_close(got[2 + 2 * c], exact[c][1])

    backward = Module(element)
    query, grad, chosen = backward.add(q), backward.add(do), backward.add(indices)
    stored = [backward.add(o) for o in outputs]
    gate = add_gates(backward)
    backward.line(["%dg"] + [f"%do{c}" for c in numbers], "nsa.combine_backward", [grad, gate] + stored, "",
                  [gates_type] + [o_type] * n)
    results, total = [], None
    for c in numbers:
        k, v = backward.add(keys[c]), backward.add(values[c])
        backward.attention([f"%dq{c}", f"%dk{c}", f"%dv{c}"], "nsa.attention_backward",
                           [(f"%do{c}", o_type), query, k, v, stored[c], backward.add(lses[c])], branches[c], chosen)
        results += [(f"%dk{c}", k[1]), (f"%dv{c}", v[1])]
        term = (f"%dq{c}", query[1])
        if total:
            backward.line([f"%sum{c}"], "nn.add", [total, term], "", [query[1]])
            term = (f"%sum{c}", query[1])
        total = term
    if gating == "given":
        results += [("%dg", gates_type)]
    else:
        types = [tensor(logits.shape, element), tensor(bias.array.shape, "f32")]
        backward.line(["%dz", "%db"], f"nn.gate_backward {gating}", [("%dg", gates_type), gate], f"{{logits_type = {element}}}", types)
        results += list(zip(["%dz", "%db"], types))
    got = backward.run([total] + results)

    def gradients(kind, late=False, fused=False):
        # A branch's output gradient is a tensor of the element type, but in a kernel of all branches.
        branch_do = [do if fused else ref.rounder(kind)(y[..., c, None] * do.astype(np.float64)) for c in numbers]
        parts = [ref.attention_backward(branch_do[c], q, keys[c], values[c], outputs[c], lses[c].array, masks[c],
                                        kind=kind, late=late, gate=y[..., c] if fused else None) for c in numbers]
        return [sum(p[0] for p in parts)] + [x for p in parts for x in p[1:]]

    terms = np.abs(do).max()
    ways = [gradients(element, late, fused) for late in (False, True) for fused in (False, True)]
    for actual, expected, *emulated in zip(got, gradients("f32"), *ways):
        if expected.size:
            assert_close(actual, expected, [r(way) for way in emulated], terms=terms)
    dgates = np.stack([(do.astype(np.float64) * x).sum(-1) for x in outputs], -1)
    if gating == "given":
        assert_close(got[-1], dgates)
    else:
        dlogits = differentiate(gating, dgates, y)
        assert_close(got[-2], dlogits.reshape(logits.shape), r(dlogits.reshape(logits.shape)))
        assert_close(got[-1], dlogits.sum((0, 1)).ravel())
