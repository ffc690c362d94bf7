"""The fused nsa operations against NumPy."""

import numpy as np
import pytest

import reference as ref
from support import F32, assert_close, random, run

# batch, length, query heads, kv heads, dk, dv
SHAPES = [(2, 65, 4, 2, 16, 16), (1, 40, 3, 1, 16, 24), (1, 7, 2, 2, 16, 16)]
BLOCK, STRIDE, SELECT_BLOCK, WINDOW = 8, 4, 16, 16
BRANCHES = f"#nsa.selected<block = {SELECT_BLOCK}>, #nsa.window<{WINDOW}>"


def activate(gating, z):
    if gating == "sigmoid":
        return 1 / (1 + np.exp(-z))
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def differentiate(gating, dy, y):
    if gating == "sigmoid":
        return dy * y * (1 - y)
    return y * (dy - (dy * y).sum(-1, keepdims=True))


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("gating", ["given", "sigmoid", "softmax"])
@pytest.mark.parametrize("shape", SHAPES)
def test_gated_attention(rng, shape, gating, element):
    b, s, hq, hkv, dk, dv = shape
    rows = ref.compressed_rows(s, BLOCK, STRIDE)
    q, do = random(rng, b, s, hq, dk, element=element), random(rng, b, s, hq, dv, element=element)
    keys = [random(rng, b, n, hkv, dk, element=element) for n in (rows, s, s)]
    values = [random(rng, b, n, hkv, dv, element=element) for n in (rows, s, s)]
    indices, _ = ref.select(rng.random((b, hkv, s, -(-s // SELECT_BLOCK))), SELECT_BLOCK, 3)
    masks = [ref.compressed_mask(s, BLOCK, STRIDE), ref.selected_mask(indices, s, SELECT_BLOCK),
             ref.window_mask(s, WINDOW)]
    exact = [ref.attention(q, k, v, m) for k, v, m in zip(keys, values, masks)]
    rounded, late = ([ref.attention(q, k, v, m, kind=element, late=late) for k, v, m in zip(keys, values, masks)]
                     for late in (False, True))
    r = ref.rounder(element)
    store = ref.to_bf16 if element == "bf16" else np.float32
    outputs = [store(o) for o, _ in exact]
    lses = [F32(lse.astype(np.float32)) for _, lse in exact]

    if gating == "given":
        gates = rng.random((b, s, hq, 3)).astype(np.float32)
        gating_operands = [F32(gates)]
    else:
        logits = random(rng, b, s, 3 * hq, element=element)
        bias = rng.standard_normal(3 * hq).astype(np.float32)
        gates = activate(gating, (logits.astype(np.float64) + bias).reshape(b, s, hq, 3))
        gating_operands = [logits, F32(bias)]

    def mix(branches):
        return sum(gates[..., c, None] * np.asarray(x, np.float64) for c, x in enumerate(branches))

    o_type, lse_type = ((b, s, hq, dv), element), ((b, hq, s), "f32")
    got = run(f"nsa.gated_attention {gating} {{}} visible({BRANCHES}) {{{{keep}}}}",
              [q, outputs[0], keys[1], values[1], indices, keys[2], values[2], *gating_operands],
              [o_type, o_type, lse_type, o_type, lse_type], element)
    assert_close(got[0], mix([outputs[0], exact[1][0], exact[2][0]]),
                 [r(mix([outputs[0], way[1][0], way[2][0]])) for way in (rounded, late)])
    for branch, o, lse in ((1, got[1], got[2]), (2, got[3], got[4])):
        assert_close(o, exact[branch][0], [rounded[branch][0], late[branch][0]])
        assert_close(lse, exact[branch][1])

    types = [(x.shape, element) for x in (q, keys[0], values[0], keys[1], values[1], keys[2], values[2])]
    types += [((gates if gating == "given" else logits).shape, "f32" if gating == "given" else element)]
    types += [] if gating == "given" else [(bias.shape, "f32")]
    operands = [do, q, keys[0], values[0], outputs[0], lses[0], keys[1], values[1], outputs[1], lses[1], indices,
                keys[2], values[2], outputs[2], lses[2], *gating_operands]
    got = run(f"nsa.gated_attention_backward {gating} {{}} "
              f"visible(#nsa.compressed<block = {BLOCK}, stride = {STRIDE}>, {BRANCHES})", operands, types, element)

    def gradients(kind, late=False):
        # A branch's output gradient is a tensor of the element type.
        branch_do = [ref.rounder(kind)(gates[..., c, None] * do.astype(np.float64)) for c in range(3)]
        parts = [ref.attention_backward(branch_do[c], q, keys[c], values[c], outputs[c],
                                        lses[c].array, masks[c], kind=kind, late=late) for c in range(3)]
        return [sum(p[0] for p in parts)] + [x for p in parts for x in p[1:]]

    terms = np.abs(do).max()
    for actual, expected, *emulated in zip(got, gradients("f32"), gradients(element), gradients(element, late=True)):
        if expected.size:
            assert_close(actual, expected, [r(way) for way in emulated], terms=terms)
    dgates = np.stack([(do.astype(np.float64) * x).sum(-1) for x in outputs], -1)
    if gating == "given":
        assert_close(got[7], dgates)
    else:
        dlogits = differentiate(gating, dgates, gates)
        assert_close(got[7], dlogits.reshape(logits.shape), r(dlogits.reshape(logits.shape)))
        assert_close(got[8], dlogits.sum((0, 1)).ravel())
