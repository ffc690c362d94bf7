"""The nn operations, forward and backward, against NumPy."""

import numpy as np
import pytest

import reference as ref
from support import F32, assert_close, random, run

ELEMENTS = ["f32", "bf16"]
ROWS = (2, 33)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def wide(*arrays):
    return [np.asarray(x, np.float64) for x in arrays]


@pytest.mark.parametrize("element", ELEMENTS)
def test_embedding(rng, element):
    vocab, dim = 19, 24
    table = random(rng, vocab, dim, element=element)
    ids = rng.integers(-1, vocab + 1, ROWS)
    inside = (ids >= 0) & (ids < vocab)
    (y,) = run("nn.embedding {}", [table, ids], [(ROWS + (dim,), element)], element)
    assert_close(y, np.where(inside[..., None], table[np.clip(ids, 0, vocab - 1)], 0), tolerance=0)

    dy = random(rng, *ROWS, dim, element=element)
    (dtable,) = run("nn.embedding_backward {} {{vocab = 19 : i64}}", [dy, ids], [((vocab, dim), "f32")], element)
    want = np.zeros((vocab, dim))
    np.add.at(want, ids[inside], dy[inside].astype(np.float64))
    assert_close(dtable, want)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("transpose_lhs", [False, True])
@pytest.mark.parametrize("transpose_rhs", [False, True])
def test_matmul(rng, transpose_lhs, transpose_rhs, element):
    rows, columns, length = ROWS[0] * ROWS[1], 20, 12
    lhs_shape = (*ROWS, length)
    if transpose_lhs:
        rows, length = length, rows
    rhs_shape = (columns, length) if transpose_rhs else (length, columns)
    lhs, rhs = random(rng, *lhs_shape, element=element), random(rng, *rhs_shape, element=element)
    flags = [name for name, given in [("transpose_lhs", transpose_lhs), ("transpose_rhs", transpose_rhs)] if given]
    attributes = f"{{{{{', '.join(flags)}}}}}" if flags else ""
    shape = (rows, columns) if transpose_lhs else (*ROWS, columns)
    (y,) = run(f"nn.matmul {{}} {attributes}", [lhs, rhs], [(shape, element)], element)
    a, b = wide(lhs.reshape(-1, lhs.shape[-1]), rhs)
    want = ((a.T if transpose_lhs else a) @ (b.T if transpose_rhs else b)).reshape(shape)
    assert_close(y, want, ref.rounder(element)(want))


@pytest.mark.parametrize("element", ELEMENTS)
def test_matmul_result_type(rng, element):
    lhs, rhs = random(rng, 40, 8, element=element), random(rng, 40, 12, element=element)
    (y,) = run("nn.matmul {} {{transpose_lhs, result_type = f32}}", [lhs, rhs], [((8, 12), "f32")], element)
    a, b = wide(lhs, rhs)
    assert_close(y, a.T @ b)


@pytest.mark.parametrize("element", ELEMENTS)
def test_rms_norm(rng, element):
    dim, eps = 40, 1e-5
    x, weight = random(rng, *ROWS, dim, element=element), random(rng, dim)
    r = ref.rounder(element)
    y, rstd = run("nn.rms_norm {} {{eps = 1.0e-5 : f64}}", [x, F32(weight)],
                  [(x.shape, element), (ROWS, "f32")], element)
    xw, ww = wide(x, weight)
    want_rstd = 1 / np.sqrt((xw**2).mean(-1) + eps)
    n = xw * want_rstd[..., None]
    assert_close(y, n * ww, r(n * ww))
    assert_close(rstd, want_rstd)

    dy = random(rng, *ROWS, dim, element=element)
    dx, dweight = run("nn.rms_norm_backward {}", [dy, x, F32(weight), F32(want_rstd)],
                      [(x.shape, element), ((dim,), "f32")], element)
    (g,) = wide(dy)
    gw = g * ww
    want = want_rstd[..., None] * (gw - n * (gw * n).mean(-1, keepdims=True))
    assert_close(dx, want, r(want))
    assert_close(dweight, (g * n).sum((0, 1)))


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("stride", [1, 4])
def test_rotary(rng, stride, inverse, element):
    b, s, h, d = 2, 9, 2, 16
    x = random(rng, b, s, h, d, element=element)
    positions = (s - 1) * stride + 1
    angle = np.arange(positions)[:, None] * 10000.0 ** (-2 * np.arange(d // 2) / d)
    table = np.stack([np.cos(angle), np.sin(angle)], -1).astype(np.float32)
    flags = f"stride = {stride} : i64" + (", inverse" if inverse else "")
    (y,) = run(f"nn.rotary {{}} {{{{{flags}}}}}", [x, F32(table)], [(x.shape, element)], element)
    cos, sin = wide(*(table[::stride][:s, :, i][None, :, None, :] for i in range(2)))
    sin = -sin if inverse else sin
    (low, high) = wide(x[..., : d // 2], x[..., d // 2 :])
    want = np.concatenate([cos * low - sin * high, cos * high + sin * low], -1)
    assert_close(y, want, ref.rounder(element)(want))


@pytest.mark.parametrize("element", ELEMENTS)
def test_heads(rng, element):
    x = random(rng, 2, 5, 12, element=element)
    (split,) = run("nn.split_heads {} {{heads = 3 : i64}}", [x], [((2, 5, 3, 4), element)], element)
    np.testing.assert_array_equal(split, x.reshape(2, 5, 3, 4))
    (merged,) = run("nn.merge_heads {}", [split], [((2, 5, 12), element)], element)
    np.testing.assert_array_equal(merged, x)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation, n", [("sigmoid", 3), ("softmax", 3), ("sigmoid", 1), ("softmax", 2), ("softmax", 5)])
def test_gate(rng, activation, n, bias, element):
    b, s, h = 2, 17, 3
    logits = random(rng, b, s, h * n, element=element, scale=3)
    biases = [F32(random(rng, h * n))] if bias else []
    (gates,) = run(f"nn.gate {activation} {{}} {{{{branches = {n} : i64}}}}", [logits, *biases], [((b, s, h, n), "f32")], element)
    z = logits.astype(np.float64) + (biases[0].array if bias else 0)
    z = z.reshape(b, s, h, n)
    e = np.exp(z - z.max(-1, keepdims=True))
    want = sigmoid(z) if activation == "sigmoid" else e / e.sum(-1, keepdims=True)
    assert_close(gates, want)

    dgates = random(rng, b, s, h, n)
    dlogits, dbias = run(f"nn.gate_backward {activation} {{}} {{{{logits_type = {element}}}}}",
                         [F32(dgates), F32(want)], [((b, s, h * n), element), ((h * n,), "f32")], element)
    if activation == "sigmoid":
        dz = dgates * want * (1 - want)
    else:
        dz = want * (dgates - (dgates * want).sum(-1, keepdims=True))
    dz = dz.reshape(b, s, h * n)
    assert_close(dlogits, dz, ref.rounder(element)(dz))
    assert_close(dbias, dz.sum((0, 1)))


@pytest.mark.parametrize("element", ELEMENTS)
def test_elementwise(rng, element):
    shape = (*ROWS, 20)
    x, u, dy = (random(rng, *shape, element=element, scale=2) for _ in range(3))
    xw, uw, dyw = wide(x, u, dy)
    s = sigmoid(xw)
    dsilu = s * (1 + xw * (1 - s))
    slope = np.sqrt(2 / np.pi)
    t = np.tanh(slope * (xw + 0.044715 * xw**3))
    dgelu = (1 + t) / 2 + xw / 2 * (1 - t**2) * slope * (1 + 3 * 0.044715 * xw**2)
    relu = np.maximum(xw, 0)
    cases = [
        ("nn.silu", [x], [xw * s]),
        ("nn.silu_backward", [dy, x], [dyw * dsilu]),
        ("nn.swiglu", [x, u], [xw * s * uw]),
        ("nn.swiglu_backward", [dy, x, u], [dyw * uw * dsilu, dyw * xw * s]),
        ("nn.gelu", [x], [xw * (1 + t) / 2]),
        ("nn.gelu_backward", [dy, x], [dyw * dgelu]),
        ("nn.squared_relu", [x], [relu**2]),
        ("nn.squared_relu_backward", [dy, x], [dyw * 2 * relu]),
        ("nn.softcap {} {{cap = 1.5 : f64}}", [x], [1.5 * np.tanh(xw / 1.5)]),
        ("nn.softcap_backward {} {{cap = 8.0 : f64}}", [dy, x], [dyw * (1 - (xw / 8) ** 2)]),
        ("nn.add", [x, u], [xw + uw]),
    ]
    for op, inputs, wants in cases:
        results = run(op if "{}" in op else op + " {}", inputs, [(shape, element)] * len(wants), element)
        for result, want in zip(results, wants):
            assert_close(result, want, ref.rounder(element)(want))


def test_cast(rng):
    x = random(rng, 7, 33, scale=100)
    (narrow,) = run("nn.cast {} to bf16", [x], [(x.shape, "bf16")])
    np.testing.assert_array_equal(narrow, ref.to_bf16(x))
    (back,) = run("nn.cast {} to f32", [narrow], [(x.shape, "f32")], "bf16")
    np.testing.assert_array_equal(back, narrow)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("ignored", ["none", "some", "all"])
def test_cross_entropy(rng, ignored, element):
    vocab = 70
    logits = random(rng, *ROWS, vocab, element=element, scale=3)
    targets = rng.integers(0, vocab, ROWS)
    if ignored != "none":
        targets = np.where(rng.random(ROWS) < (0.3 if ignored == "some" else 2), -1, targets)
    valid = targets >= 0
    loss, lse, count = run("nn.cross_entropy {}", [logits, targets],
                           [((), "f32"), (ROWS, "f32"), ((), "f32")], element)
    (x,) = wide(logits)
    top = x.max(-1)
    want_lse = top + np.log(np.exp(x - top[..., None]).sum(-1))
    picked = np.take_along_axis(x, np.maximum(targets, 0)[..., None], -1)[..., 0]
    want_loss = ((want_lse - picked) * valid).sum() / max(valid.sum(), 1)
    assert_close(lse, want_lse)
    assert_close(loss, want_loss)
    assert count == valid.sum()
    sums = run("nn.cross_entropy {} {{over_all}}", [logits, targets], [((), "f32"), (ROWS, "f32"), ((), "f32")], element)
    assert_close(sums[0], ((want_lse - picked) * valid).sum() / valid.size)
    np.testing.assert_array_equal(sums[1], lse)
    assert sums[2] == np.float32(valid.sum()) / np.float32(valid.size)

    dloss = np.float32(0.7)
    (dlogits,) = run("nn.cross_entropy_backward {}", [F32(dloss), logits, targets, F32(want_lse), F32(count)],
                     [(logits.shape, element)], element)
    one_hot = np.arange(vocab) == targets[..., None]
    want = float(dloss) / max(valid.sum(), 1) * (np.exp(x - want_lse[..., None]) - one_hot) * valid[..., None]
    assert_close(dlogits, want, ref.rounder(element)(want))


@pytest.mark.parametrize("count", [-0.3, 0.0, 0.25, 1.0, 2.5])
def test_cross_entropy_backward_counts_one_target_at_least(rng, count):
    logits, targets = random(rng, 4, 9), rng.integers(0, 9, (4,))
    lse, dloss = random(rng, 4), np.float32(1.3)
    (dlogits,) = run("nn.cross_entropy_backward {}", [F32(dloss), logits, targets, lse, F32(count)],
                     [(logits.shape, "f32")])
    one_hot = np.arange(9) == targets[..., None]
    want = 1.3 / max(count, 1) * (np.exp(logits.astype(np.float64) - lse[..., None]) - one_hot)
    assert_close(dlogits, want)


def test_gradient_norm(rng):
    gradients = [random(rng, 40, 30), random(rng, 17), random(rng, 1, 2, 3), random(rng, 3000)]
    (norm,) = run("nn.gradient_norm {}", gradients, [((), "f32")])
    assert_close(norm, np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in gradients)))


@pytest.mark.parametrize("decay", [False, True])
@pytest.mark.parametrize("clip", [0.0, 0.5, 1e6])
def test_adamw(rng, clip, decay):
    shape = (13, 20)
    w, m, g = (random(rng, *shape) for _ in range(3))
    v = random(rng, *shape) ** 2
    lr, b1, b2, eps, wd, scale, step = 1e-2, 0.9, 0.95, 1e-8, 0.1, 0.25, 7
    hyper = np.array([lr, b1, b2, eps, wd, clip, scale, step], np.float32)
    norm, loss = np.float32(np.sqrt((g**2).sum())), np.float32(1.0)
    op = "nn.adamw {}" + (" {{decay}}" if decay else "")
    types = [(shape, "f32")] * 3
    got = run(op, [w, m, v, g, norm, loss, hyper], types)

    n = norm * scale
    factor = clip / n if clip > 0 and n > clip else 1.0
    ww, mw, vw, gw = wide(w, m, v, g)
    gw = gw * scale * factor
    ww = ww - lr * wd * ww if decay else ww
    mw = b1 * mw + (1 - b1) * gw
    vw = b2 * vw + (1 - b2) * gw**2
    ww = ww - lr * (mw / (1 - b1**step)) / (np.sqrt(vw / (1 - b2**step)) + eps)
    for result, want in zip(got, (ww, mw, vw)):
        assert_close(result, want)

    for bad in (np.nan, np.inf):
        for values in ([np.float32(bad), loss], [norm, np.float32(bad)]):
            kept = run(op, [w, m, v, g, *values, hyper], types)
            for result, before in zip(kept, (w, m, v)):
                np.testing.assert_array_equal(result, before)


@pytest.mark.parametrize("decay", [False, True])
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_lion(rng, clip, decay):
    shape = (13, 20)
    w, ema, g = (random(rng, *shape) for _ in range(3))
    # sign(0) is 0.
    ema[0], g[0] = 0, 0
    lr, b1, b2, wd, scale = 1e-2, 0.9, 0.99, 0.1, 0.25
    hyper = np.array([lr, b1, b2, 1e-8, wd, clip, scale, 7], np.float32)
    norm, loss = np.float32(np.sqrt((g**2).sum())), np.float32(1.0)
    op = "nn.lion {}" + (" {{decay}}" if decay else "")
    types = [(shape, "f32")] * 2
    got = run(op, [w, ema, g, norm, loss, hyper], types)

    n = norm * scale
    ww, ew, gw = wide(w, ema, g)
    gw = gw * scale * (clip / n if clip > 0 and n > clip else 1.0)
    ww = ww - lr * wd * ww if decay else ww
    ww = ww - lr * np.sign(b1 * ew + (1 - b1) * gw)
    for result, want in zip(got, (ww, b2 * ew + (1 - b2) * gw)):
        assert_close(result, want)

    kept = run(op, [w, ema, g, norm, np.float32(np.nan), hyper], types)
    for result, before in zip(kept, (w, ema)):
        np.testing.assert_array_equal(result, before)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("transpose_lhs", [False, True])
@pytest.mark.parametrize("transpose_rhs", [False, True])
def test_batch_matmul(rng, transpose_lhs, transpose_rhs, element):
    batch, rows, columns, length = 5, 17, 20, 12
    lhs_shape = (length, rows) if transpose_lhs else (rows, length)
    rhs_shape = (columns, length) if transpose_rhs else (length, columns)
    lhs, rhs, addend = (
        random(rng, batch * shape[0], shape[1], element=element) for shape in (lhs_shape, rhs_shape, (rows, columns))
    )
    flags = [f", {name}" for name, given in [("transpose_lhs", transpose_lhs), ("transpose_rhs", transpose_rhs)] if given]
    op = "nn.batch_matmul {} {{alpha = 0.5 : f64, batch = 5 : i64, beta = BETA : f64" + "".join(flags) + "}}"
    a, b = (x.reshape(batch, *shape) for x, shape in zip(wide(lhs, rhs), (lhs_shape, rhs_shape)))
    product = 0.5 * (a.swapaxes(1, 2) if transpose_lhs else a) @ (b.swapaxes(1, 2) if transpose_rhs else b)
    for beta, inputs in ((-3.0, [lhs, rhs, addend]), (0.0, [lhs, rhs])):
        (y,) = run(op.replace("BETA", str(beta)), inputs, [((batch * rows, columns), element)], element)
        want = product.reshape(y.shape) + beta * wide(addend)[0]
        assert_close(y, want, ref.rounder(element)(want))


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("shape", [(3, 5), (130, 700)])
def test_normalize(rng, shape, element):
    x = random(rng, 3 * shape[0], shape[1])
    x[: shape[0]] = 0
    op = f"nn.normalize {{}} {{{{batch = 3 : i64, result_type = {element}}}}}"
    (y,) = run(op, [x], [(x.shape, element)])
    matrices = wide(x)[0].reshape(3, *shape)
    want = (matrices / (np.linalg.norm(matrices, axis=(1, 2), keepdims=True) + 1e-7)).reshape(x.shape)
    assert_close(y, want, ref.rounder(element)(want))


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("shape", [(12, 20), (20, 12)])
def test_muon(rng, shape, element):
    w, m, g = (random(rng, *shape) for _ in range(3))
    lr, b1, wd, scale = 1e-2, 0.95, 0.1, 0.25
    hyper = np.array([lr, b1, 0.99, 1e-8, wd, 0.0, scale, 7], np.float32)
    norm, loss = np.float32(np.sqrt((g**2).sum())), np.float32(1.0)
    types = [(shape, "f32")] * 2
    op = "nn.muon {} {{decay" + (f", element_type = {element}" if element != "f32" else "") + "}}"
    got = run(op, [w, m, g, norm, loss, hyper], types)

    ww, mw, gw = wide(w, m, g * np.float32(scale))
    mw = b1 * mw + (1 - b1) * gw
    x = b1 * mw + (1 - b1) * gw
    x = x / (np.linalg.norm(x) + 1e-7)

    def newton_schulz(x, rounded):
        x = rounded(x if shape[0] <= shape[1] else x.T)
        for _ in range(5):
            a = rounded(x @ x.T)
            b = rounded(-4.775 * a + 2.0315 * rounded(a @ a))
            x = rounded(3.4445 * x + rounded(b @ x))
        return x if shape[0] <= shape[1] else x.T

    def step(x):
        return ww - lr * wd * ww - lr * 0.2 * np.sqrt(max(shape)) * x

    exact = step(newton_schulz(x, np.float64))
    if element == "f32":
        assert_close(got[0], exact)
    else:
        # At most twice as far from fp64 as products that are rounded one by one.
        near = step(newton_schulz(x, lambda y: wide(ref.rounder(element)(y))[0]))
        assert np.abs(got[0] - exact).max() <= 2 * np.abs(near - exact).max()
    assert_close(got[1], mw)

    kept = run(op, [w, m, g, norm, np.float32(np.nan), hyper], types)
    for result, before in zip(kept, (w, m)):
        np.testing.assert_array_equal(result, before)


@pytest.mark.parametrize(
    "scale, streak, norm, loss, want",
    [
        (1024.0, 3.0, 6.5, 2.0, (1024.0, 4.0, 5.0)),
        (1024.0, 99.0, 6.5, 2.0, (2048.0, 0.0, 5.0)),
        (2.0**24, 99.0, 6.5, 2.0, (2.0**24, 0.0, 5.0)),
        (1024.0, 3.0, np.inf, 2.0, (512.0, 0.0, 6.0)),
        (1.0, 3.0, np.nan, 2.0, (0.5, 0.0, 6.0)),
        (1024.0, 99.0, 6.5, np.nan, (512.0, 0.0, 6.0)),
    ],
)
def test_update_loss_scale(scale, streak, norm, loss, want):
    hyper = np.array([1e-2, 0.9, 0.95, 1e-8, 0.1, 1.0, 0.25, 40], np.float32)
    values = [np.float32(x) for x in (norm, loss, scale, streak, 5.0)]
    types = [((8,), "f32")] + [((), "f32")] * 4
    op = "nn.update_loss_scale {} {{growth_interval = 100 : i64}}"
    got, unscaled, *state = run(op, [hyper, *values], types)
    hyper[6] /= scale
    hyper[7] -= 5
    np.testing.assert_array_equal(got, hyper)
    np.testing.assert_array_equal(unscaled, np.float32(norm) / np.float32(scale))
    assert tuple(float(x) for x in state) == want


@pytest.mark.parametrize("count", [0.0, 0.25, 3.0])
def test_average_step_divides_the_scale_and_the_loss(count):
    hyper = np.array([1e-2, 0.9, 0.95, 1e-8, 0.1, 1.0, 0.5, 40], np.float32)
    loss = np.float32(1.7 * count)
    got, mean = run("nn.average_step {}", [hyper, loss, np.float32(count)], [((8,), "f32"), ((), "f32")])
    with np.errstate(divide="ignore", invalid="ignore"):
        hyper[6] /= np.float32(count)
        np.testing.assert_array_equal(mean, loss / np.float32(count))
    np.testing.assert_array_equal(got, hyper)
