"""The nsa operations, forward and backward, against NumPy."""

import numpy as np
import pytest

import reference as ref
from support import F32, assert_close, random, run

# batch, length, query heads, kv heads, dk, dv
SHAPES = [
    (1, 33, 2, 1, 16, 16),
    (2, 65, 4, 2, 16, 16),
    (1, 64, 6, 2, 24, 16),
    (1, 7, 1, 1, 16, 32),
]
ELEMENTS = ["f32", "bf16"]


def make_qkv(rng, shape, element, rows=None):
    b, s, hq, hkv, dk, dv = shape
    rows = s if rows is None else rows
    return (random(rng, b, s, hq, dk, element=element), random(rng, b, rows, hkv, dk, element=element),
            random(rng, b, rows, hkv, dv, element=element))


def check_attention(rng, name, attributes, shape, element, mask, rows=None, extra=()):
    """Forward, then backward from the reference's own output. `attributes` are those
    of the op, or its clause `visible(...)`."""
    clause = attributes if attributes.startswith("visible(") else f"{{{{{attributes}}}}}"
    b, s, hq, hkv, dk, dv = shape
    q, k, v = make_qkv(rng, shape, element, rows)
    o, lse = run(f"nsa.{name} {{}} {clause}", [q, k, v, *extra],
                 [((b, s, hq, dv), element), ((b, hq, s), "f32")], element)
    want_o, want_lse = ref.attention(q, k, v, mask)
    emulated = ref.attention(q, k, v, mask, kind=element)
    assert_close(o, want_o, emulated[0])
    assert_close(lse, want_lse)

    do = random(rng, b, s, hq, dv, element=element)
    o = ref.to_bf16(want_o) if element == "bf16" else want_o.astype(np.float32)
    lse = want_lse.astype(np.float32)
    grads = run(f"nsa.{name}_backward {{}} {clause}", [do, q, k, v, o, F32(lse), *extra],
                [(x.shape, element) for x in (q, k, v)], element)
    want = ref.attention_backward(do, q, k, v, o, lse, mask)
    emulated = ref.attention_backward(do, q, k, v, o, lse, mask, kind=element)
    for got, expected, rounded in zip(grads, want, emulated):
        if expected.size:
            assert_close(got, expected, rounded, terms=np.abs(do).max())


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("window", [1, 16, 100])
@pytest.mark.parametrize("shape", SHAPES)
def test_window_attention(rng, shape, window, element):
    check_attention(rng, "window_attention", f"window = {window} : i64", shape, element,
                    ref.window_mask(shape[1], window))


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_causal_attention(rng, shape, element):
    check_attention(rng, "attention", "visible(#nsa.causal)", shape, element, ref.window_mask(shape[1], shape[1]))


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("block,stride", [(1, 2), (8, 3), (100, 2)])
@pytest.mark.parametrize("shape", SHAPES)
def test_strided_attention(rng, shape, block, stride, element):
    t, u = np.arange(shape[1])[:, None], np.arange(shape[1])[None, :]
    mask = (u <= t) & ((t // block - u // block) % stride == 0)
    check_attention(rng, "attention", f"visible(#nsa.strided<block = {block}, stride = {stride}>)", shape, element, mask)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("block,stride", [(8, 4), (16, 16), (16, 8)])
@pytest.mark.parametrize("shape", SHAPES)
def test_compressed_attention(rng, shape, block, stride, element):
    rows = ref.compressed_rows(shape[1], block, stride)
    check_attention(rng, "compressed_attention", f"block = {block} : i64, stride = {stride} : i64",
                    shape, element, ref.compressed_mask(shape[1], block, stride), rows)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("count", [1, 3, 16])
@pytest.mark.parametrize("shape", SHAPES)
def test_selected_attention(rng, shape, count, element):
    b, s, _, hkv, _, _ = shape
    score = rng.random((b, hkv, s, -(-s // 16)))
    indices, _ = ref.select(score, 16, count)
    check_attention(rng, "selected_attention", "select_block = 16 : i64", shape, element,
                    ref.selected_mask(indices, s, 16), extra=[indices])


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("sizes", [(8, 4, 16), (16, 8, 16), (8, 8, 8), (16, 8, 48)])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 40])
def test_select(rng, sizes, count, element):
    block, stride, select_block = sizes
    b, s, hq, hkv, d = 2, 129, 4, 2, 16
    rows = ref.compressed_rows(s, block, stride)
    q = random(rng, b, s, hq, d, element=element, scale=2)
    k = random(rng, b, rows, hkv, d, element=element)
    _, lse = ref.attention(q, k, k, ref.compressed_mask(s, block, stride))
    lse = lse.astype(np.float32)
    (got,) = run(f"nsa.select {{}} {{{{block = {block} : i64, stride = {stride} : i64, "
                 f"select_block = {select_block} : i64, count = {count} : i64}}}}", [q, k, F32(lse)],
                 [((b, hkv, s, count), "i32")], element)
    score = ref.block_scores(q, k, lse, block, stride, select_block)
    want, gap = ref.select(score, select_block, count)
    clear = gap > 1e-5
    assert clear.mean() > 0.5
    np.testing.assert_array_equal(got[clear], want[clear])
    # Where scores are close, the choice may differ but has as many blocks.
    np.testing.assert_array_equal((got >= 0).sum(-1), (want >= 0).sum(-1))


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("kind,names", [
    ("mean", []),
    ("linear", ["weight"]),
    ("linear", ["weight", "positions"]),
    ("mlp", ["weight", "output_weight"]),
    ("mlp", ["weight", "output_weight", "positions"]),
])
@pytest.mark.parametrize("block,stride,length,d", [(8, 4, 33, 16), (16, 16, 64, 16), (16, 8, 15, 16), (8, 4, 300, 12)])
def test_compress(rng, block, stride, length, d, kind, names, element):
    b, h = 2, 2
    rows = ref.compressed_rows(length, block, stride)
    x = random(rng, b, length, h, d, element=element)
    shapes = {"weight": ((h, block * d, d), 0.1), "output_weight": ((h, d, d), 0.5), "positions": ((h, block, d), 0.5)}
    phi = {name: random(rng, *shapes[name][0], element=element, scale=shapes[name][1]) for name in names}
    attributes = f"{{{{block = {block} : i64, stride = {stride} : i64}}}}"
    (y,) = run(f"nsa.compress {kind} {{}} {attributes}", [x, *phi.values()], [((b, rows, h, d), element)], element)
    wide = {name: value.astype(np.float64) for name, value in phi.items()}
    if rows:
        assert_close(y, ref.compress(x, block, stride, **wide), ref.compress(x, block, stride, **wide, kind=element))

    dy = random(rng, b, rows, h, d, element=element)
    types = [(x.shape, element)] + [(p.shape, "f32") for p in phi.values()]
    grads = run(f"nsa.compress_backward {kind} {{}} {attributes}", [dy, x, *phi.values()], types, element)
    want = ref.compress_backward(dy, x, block, stride, **wide)
    rounded = ref.compress_backward(dy, x, block, stride, **wide, kind=element)
    assert len(grads) == len(want)
    for gradient, expected, emulated in zip(grads, want, rounded):
        assert_close(gradient, expected, emulated)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("shape,count", [*((shape, 3) for shape in SHAPES), (SHAPES[0], 1), (SHAPES[1], 5)])
def test_combine(rng, shape, count, element):
    b, s, hq, _, _, dv = shape
    branches = [random(rng, b, s, hq, dv, element=element) for _ in range(count)]
    gates = rng.random((b, s, hq, count)).astype(np.float32)
    r = ref.rounder(element)
    (o,) = run("nsa.combine {}", [F32(gates), *branches], [((b, s, hq, dv), element)], element)
    want = sum(gates[..., c, None].astype(np.float64) * x for c, x in enumerate(branches))
    assert_close(o, want, r(want))

    do = random(rng, b, s, hq, dv, element=element)
    grads = run("nsa.combine_backward {}", [do, F32(gates), *branches],
                [(gates.shape, "f32")] + [(do.shape, element)] * count, element)
    wide = do.astype(np.float64)
    assert_close(grads[0], np.stack([(wide * x).sum(-1) for x in branches], -1))
    for c in range(count):
        expected = gates[..., c, None] * wide
        assert_close(grads[c + 1], expected, r(expected))


@pytest.mark.parametrize("rows", [(1, 1, 1), (2, 33, 3), (2, 300, 4)])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("collapsed", [False, True])
def test_gate_statistics(rng, rows, count, collapsed):
    gates = rng.random((*rows, count)).astype(np.float32)
    if collapsed:
        gates[..., 1:] = 0
    (y,) = run("nsa.gate_statistics {}", [F32(gates)], [((count + 1,), "f32")])
    g = gates.astype(np.float64)
    p = g / g.sum(-1, keepdims=True)
    entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(-1).mean()
    assert_close(y, np.array([*g.mean((0, 1, 2)), entropy]))


@pytest.mark.parametrize("length,select_block,count", [(1, 16, 1), (64, 16, 3), (129, 16, 4), (200, 48, 80), (40, 100, 2)])
def test_selection_statistics(rng, length, select_block, count):
    b, h = 2, 2
    score = rng.random((b, h, length, -(-length // select_block)))
    indices, _ = ref.select(score, select_block, count)
    (y,) = run(f"nsa.selection_statistics {{}} {{{{select_block = {select_block} : i64}}}}", [indices], [((3,), "f32")])
    block = (np.arange(length) // select_block)[:, None]
    chosen = indices >= 0
    distinct = [len(set(indices[i, j][block[:, 0] == n].ravel()) - {-1})
                for i in range(b) for j in range(h) for n in range(block.max() + 1)]
    want = [chosen.sum(-1).mean(), np.where(chosen, block - indices, 0).sum() / chosen.sum(), np.mean(distinct)]
    assert_close(y, np.array(want))
