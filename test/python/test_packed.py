"""Packed sequences: each document is what it is alone, whatever its neighbours are."""

import numpy as np
import pytest

import nsa
import reference as ref
from support import assert_close, tensor

HQ, HKV, DK, DV = 4, 2, 16, 24
# Lengths of documents: aligned ones, one token, less than a block, a block, primes, longer than the window.
LAYOUTS = [
    [[64, 1, 7, 8, 13, 37, 62], [192]],
    [[128, 5, 3, 56], [31, 33, 64, 64]],
]
COMPRESSED = "#nsa.compressed<block = 8, stride = 4>"
BLOCK, STRIDE, SELECT, COUNT = 8, 4, 16, 3


def starts(layout):
    return np.array([np.repeat(np.cumsum([0] + row[:-1]), row) for row in layout], np.int32)


def documents(layout):
    """Row, first token and length of each."""
    for b, row in enumerate(layout):
        begin = 0
        for length in row:
            yield b, begin, length
            begin += length


def part(x, axis, b, begin, length):
    """What a document has along an axis: "tokens", "heads" (the second one after the batch) or "blocks"."""
    if axis == "blocks":
        begin, length = begin // STRIDE, ref.compressed_rows(length, BLOCK, STRIDE)
    rows = slice(begin, begin + length)
    return x[b:b + 1, :, rows] if axis == "heads" else x[b:b + 1, rows]


class Program:
    """One operation on arrays with names; `%s` is their start."""

    def __init__(self, op, inputs, results, type_of):
        self.names = list(inputs)
        args = ", ".join(f"%{n}: {tensor(*t)}" for n, t in inputs.items())
        outs = [tensor(*t) for t in results]
        names = ", ".join(f"%r{i}" for i in range(len(outs)))
        types = type_of([tensor(*t) for t in inputs.values()], outs)
        self.count = len(outs)
        self.module = nsa.compile(f"func.func @main({args}) -> ({', '.join(outs)}) {{\n  {names} = {op} : {types}\n"
                                  f"  return {names} : {', '.join(outs)}\n}}\n", poison=True)

    def __call__(self, **values):
        out = self.module.run("main", {f"arg{i}": values[n] for i, n in enumerate(self.names)})
        return [out[f"result{i}"] for i in range(self.count)]


def without_start(ins, outs):
    return ", ".join(ins[:-1])


def functional(ins, outs):
    return f"({', '.join(ins)}) -> ({', '.join(outs)})"


def check(program, layout, inputs, axes, out_axes, alone, terms=0.0):
    """The results of each document are `alone(inputs of it)`, and do not change in a bit when the tokens of the
    others do; those of a document at a multiple of 64 have the bits that it has at the beginning of a row."""
    rng = np.random.default_rng(7)
    start = starts(layout)
    got = program(**inputs, s=start)
    for b, begin, length in documents(layout):
        own = {n: part(x, axes[n], b, begin, length) if axes[n] else x for n, x in inputs.items()}
        want = alone(**own)
        for x, axis, expected in zip(got, out_axes, want):
            if axis and expected.size:
                assert_close(part(x, axis, b, begin, length), expected, terms=terms)
    for kept in [d for d in documents(layout) if d[0] == 0 and d[2] in (13, 37, 56, 128)]:
        other = {}
        for n, x in inputs.items():
            other[n] = x
            if axes[n] and x.dtype == np.float32:
                other[n] = rng.standard_normal(x.shape).astype(np.float32)
                part(other[n], axes[n], *kept)[:] = part(x, axes[n], *kept)
        changed = program(**other, s=start)
        for x, y, axis in zip(got, changed, out_axes):
            if axis:
                np.testing.assert_array_equal(part(x, axis, *kept), part(y, axis, *kept))
    for b, begin, length in documents(layout):
        if begin == 0 or begin % 64:
            continue
        moved, first = {}, (b, 0, length)
        for n, x in inputs.items():
            moved[n] = x.copy() if axes[n] else x
            if axes[n]:
                part(moved[n], axes[n], *first)[:] = part(x, axes[n], b, begin, length)
        rest = start.shape[1] - length
        again = start.copy()
        again[b] = np.repeat([0, length], [length, rest])
        out = program(**moved, s=again)
        for x, y, axis in zip(got, out, out_axes):
            if axis:
                np.testing.assert_array_equal(part(x, axis, b, begin, length), part(y, axis, *first))
    return got


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def make_attention(rng, layout, blocks):
    b, s = starts(layout).shape
    rows = s // STRIDE if blocks else s
    return {"q": normal(rng, b, s, HQ, DK), "k": normal(rng, b, rows, HKV, DK), "v": normal(rng, b, rows, HKV, DV)}


def types_of(inputs):
    kinds = {"float32": "f32", "int32": "i32"}
    return {n: (x.shape, kinds[str(x.dtype)]) for n, x in inputs.items()}


def attend_alone(mask_of):
    def alone(q, k, v, **others):
        return ref.attention(q, k, v, mask_of(q.shape[1], **others))
    return alone


def check_attention(rng, layout, visibility, mask_of, blocks=False, indices=None):
    """Forward, then the gradient of the reference's own output."""
    inputs = make_attention(rng, layout, blocks)
    keys = "blocks" if blocks else "tokens"
    axes = {"q": "tokens", "k": keys, "v": keys}
    visible = f"visible({visibility})"
    if indices is not None:
        inputs["i"], axes["i"] = indices, "heads"
        visible = f"visible({visibility}, %i : {tensor(indices.shape, 'i32')})"
    start = starts(layout)
    b, s = start.shape
    clause = f"{visible} start(%s : {tensor(start.shape, 'i32')})"
    types = {**types_of(inputs), "s": (start.shape, "i32")}
    extra = 2 if indices is not None else 1
    results = [((b, s, HQ, DV), "f32"), ((b, HQ, s), "f32")]
    forward = Program(f"nsa.attention %q, %k, %v {clause}", types, results, lambda i, o: ", ".join(i[:-extra]))
    o, lse = check(forward, layout, inputs, axes, ["tokens", "heads"], attend_alone(mask_of))

    inputs = {"do": normal(rng, b, s, HQ, DV), "q": inputs["q"], "k": inputs["k"], "v": inputs["v"], "o": o,
              "lse": lse, **({"i": indices} if indices is not None else {})}
    axes |= {"do": "tokens", "o": "tokens", "lse": "heads"}
    types = {**types_of(inputs), "s": (start.shape, "i32")}
    backward = Program(f"nsa.attention_backward %do, %q, %k, %v, %o, %lse {clause}", types,
                       [(inputs[n].shape, "f32") for n in "qkv"], lambda i, o: ", ".join(i[:-extra]))
    grads = check(backward, layout, inputs, axes, ["tokens", keys, keys],
                  lambda do, q, k, v, o, lse, **others: ref.attention_backward(do, q, k, v, o, lse,
                                                                               mask_of(q.shape[1], **others)),
                  terms=np.abs(inputs["do"]).max())
    if blocks:
        for grad in grads[1:]:
            assert_no_block_is_zero(grad, layout)


def assert_no_block_is_zero(x, layout):
    """Rows that are no block of any document are 0."""
    is_block = np.zeros(x.shape[:2], bool)
    for d in documents(layout):
        part(is_block, "blocks", *d)[:] = True
    assert not x[~is_block].any()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("window", [5, 150])
def test_packed_window_attention(rng, layout, window):
    check_attention(rng, layout, f"#nsa.window<{window}>", lambda s: ref.window_mask(s, window))


def test_packed_causal_attention(rng):
    check_attention(rng, LAYOUTS[0], "#nsa.causal", lambda s: ref.window_mask(s, s))


def test_packed_strided_attention(rng):
    def mask(s):
        t, u = np.arange(s)[:, None], np.arange(s)[None, :]
        return (u <= t) & ((t // 8 - u // 8) % 3 == 0)
    check_attention(rng, LAYOUTS[1], "#nsa.strided<block = 8, stride = 3>", mask)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_packed_compressed_attention(rng, layout):
    check_attention(rng, layout, COMPRESSED, lambda s: ref.compressed_mask(s, BLOCK, STRIDE), blocks=True)


def random_indices(rng, layout):
    """Each query's own block and others of its document, ascending, padded with -1."""
    b, s = starts(layout).shape
    indices = np.full((b, HKV, s, COUNT), -1, np.int32)
    for row, begin, length in documents(layout):
        for h in range(HKV):
            for t in range(length):
                last = t // SELECT
                some = rng.permutation(last)[:COUNT - 1]
                indices[row, h, begin + t, :len(some) + 1] = sorted([*some, last])
    return indices


@pytest.mark.parametrize("layout", LAYOUTS)
def test_packed_selected_attention(rng, layout):
    check_attention(rng, layout, f"#nsa.selected<block = {SELECT}>", lambda s, i: ref.selected_mask(i, s, SELECT),
                    indices=random_indices(rng, layout))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_packed_select(rng, layout):
    inputs = {n: x for n, x in make_attention(rng, layout, blocks=True).items() if n != "v"}
    b, s = starts(layout).shape
    inputs["lse"] = np.zeros((b, HQ, s), np.float32)
    for d in documents(layout):
        q, k = (part(inputs[n], axis, *d) for n, axis in (("q", "tokens"), ("k", "blocks")))
        lse = ref.attention(q, k, k, ref.compressed_mask(d[2], BLOCK, STRIDE))[1]
        part(inputs["lse"], "heads", *d)[:] = lse
    types = {**types_of(inputs), "s": ((b, s), "i32")}
    program = Program(
        f"nsa.select %q, %k, %lse start(%s : {tensor((b, s), 'i32')}) by({COMPRESSED}, "
        f"#nsa.selected<block = {SELECT}, count = {COUNT}>)", types, [((b, HKV, s, COUNT), "i32")],
        lambda i, o: f"{i[0]}, {i[1]} -> {o[0]}")
    axes = {"q": "tokens", "k": "blocks", "lse": "heads"}
    got = check(program, layout, inputs, axes, ["heads"], lambda **x: [np.zeros((0,))])[0]
    for d in documents(layout):
        q, k, lse = (part(inputs[n], axes[n], *d) for n in inputs)
        want, gap = ref.select(ref.block_scores(q, k, lse, BLOCK, STRIDE, SELECT), SELECT, COUNT)
        clear = gap > 1e-5
        np.testing.assert_array_equal(part(got, "heads", *d)[clear], want[clear])
        assert clear.mean() > 0.9


KINDS = {"mean": [], "linear": [(BLOCK * DK, DK), (BLOCK, DK)], "mlp": [(BLOCK * DK, DK), (DK, DK), (BLOCK, DK)]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_packed_compress(rng, layout, kind):
    b, s = starts(layout).shape
    x = normal(rng, b, s, HKV, DK)
    parameters = {f"p{i}": normal(rng, HKV, *shape) / 8 for i, shape in enumerate(KINDS[kind])}
    order = ["weight", "positions"] if kind == "linear" else ["weight", "output_weight", "positions"]

    def named(values):
        return dict(zip(order, [values[n].astype(np.float64) for n in parameters]))

    names = "".join(f", %{n}" for n in parameters)
    by = f"start(%s) by({COMPRESSED})"
    inputs = {"x": x, **parameters}
    axes = {"x": "tokens", **dict.fromkeys(parameters)}
    types = {**types_of(inputs), "s": ((b, s), "i32")}
    rows = (b, s // STRIDE, HKV, DK)
    forward = Program(f"nsa.compress {kind} %x{names} {by}", types, [(rows, "f32")], functional)
    y = check(forward, layout, inputs, axes, ["blocks"],
              lambda x, **p: [ref.compress(x, BLOCK, STRIDE, **named(p))])[0]
    assert_no_block_is_zero(y, layout)

    # Gradients of rows that are no block are whatever.
    inputs = {"dy": normal(rng, *rows), **inputs}
    axes["dy"] = "blocks"
    types = {**types_of(inputs), "s": ((b, s), "i32")}
    shapes = [x.shape, *(p.shape for p in parameters.values())]
    backward = Program(f"nsa.compress_backward {kind} %dy, %x{names} {by}", types,
                       [(shape, "f32") for shape in shapes], functional)

    def alone(dy, x, **p):
        return ref.compress_backward(dy, x, BLOCK, STRIDE, **named(p))

    grads = check(backward, layout, inputs, axes, ["tokens", *[None] * len(parameters)], alone)
    sums = [0.0] * len(parameters)
    for d in documents(layout):
        own = alone(**{n: part(v, axes[n], *d) if axes[n] else v for n, v in inputs.items()})
        sums = [a + g for a, g in zip(sums, own[1:])]
    for got, want in zip(grads[1:], sums):
        assert_close(got, want)


@pytest.mark.parametrize("stride", [1, STRIDE])
def test_packed_rotary(rng, stride):
    layout = LAYOUTS[0]
    start = starts(layout)
    b, s = start.shape
    angles = np.arange(s)[:, None] * 10000.0 ** (-np.arange(DK // 2) / (DK // 2))
    inputs = {"x": normal(rng, b, s // stride, HKV, DK),
              "t": np.stack([np.cos(angles), np.sin(angles)], 2).astype(np.float32)}
    axis = "tokens" if stride == 1 else "blocks"
    types = {**types_of(inputs), "s": ((b, s), "i32")}

    def alone(x, t):
        c, n = (np.asarray(t, np.float64)[:x.shape[1] * stride:stride, None, :, i] for i in (0, 1))
        low, high = np.split(x.astype(np.float64), 2, axis=3)
        return [np.concatenate([low * c - high * n, high * c + low * n], 3)]

    program = Program(f"nn.rotary %x, %t, %s {{stride = {stride} : i64}}", types, [(inputs["x"].shape, "f32")],
                      functional)
    check(program, layout, inputs, {"x": axis, "t": None}, [axis], alone)


def test_packed_selection_statistics(rng):
    layout = LAYOUTS[1]
    start, indices = starts(layout), random_indices(rng, LAYOUTS[1])
    program = Program(f"nsa.selection_statistics %i, %s {{select_block = {SELECT} : i64}}",
                      {"i": (indices.shape, "i32"), "s": (start.shape, "i32")}, [((3,), "f32")], functional)
    own = (np.arange(start.shape[1]) - start) // SELECT
    chosen = indices >= 0
    numbers = np.where(chosen, indices + (start // SELECT)[:, None, :, None], -1)
    different = [len(set(numbers[b, h, t:t + SELECT].ravel()) - {-1}) for b in range(len(layout)) for h in range(HKV)
                 for t in range(0, start.shape[1], SELECT)]
    want = [chosen.sum() / (indices.size / COUNT), (own[:, None, :, None] - indices)[chosen].mean(),
            np.mean(different)]
    np.testing.assert_allclose(program(i=indices, s=start)[0], want, rtol=1e-5)
