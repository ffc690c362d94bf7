"""What passes make of several nn operations, against NumPy."""

import numpy as np
import pytest

import nsa
import reference as ref
from support import F32, assert_close, random, run

ELEMENTS = ["f32", "bf16"]


def ranges(rows, count, step=1):
    """The rows of each partial sum: ranges of equal length, the last ones
    maybe shorter or empty."""
    each = -(-rows // count)
    each += -each % step
    return [slice(i * each, min((i + 1) * each, rows)) for i in range(count)]


@pytest.mark.parametrize("parts", [1, 4, 33])
def test_partial_sums_of_a_norm(rng, parts):
    rows, width = 33, 20
    dy, x = random(rng, rows, width), random(rng, rows, width)
    weight, rstd = random(rng, width), np.abs(random(rng, rows)) + 0.5
    dx, sums = run(f"nn.rms_norm_backward {{}} {{{{partial_sums = {parts} : i64}}}}", [dy, x, weight, rstd],
                   [((rows, width), "f32"), ((parts, width), "f32")])
    product = dy.astype(np.float64) * x * rstd[:, None]
    assert_close(sums, np.stack([product[s].sum(0) for s in ranges(rows, parts)]))
    g, n = dy.astype(np.float64) * weight, x.astype(np.float64) * rstd[:, None]
    assert_close(dx, rstd[:, None] * (g - n * (g * n).mean(-1, keepdims=True)))


@pytest.mark.parametrize("activation", ["sigmoid", "softmax"])
def test_partial_sums_of_gates(rng, activation):
    b, s, h, parts = 2, 41, 3, 5
    gates, dgates = np.abs(random(rng, b, s, h, 3)), random(rng, b, s, h, 3)
    _, sums = run(f"nn.gate_backward {activation} {{}} {{{{logits_type = f32, partial_sums = {parts} : i64}}}}",
                  [dgates, gates], [((b, s, h * 3), "f32"), ((parts, h * 3), "f32")])
    g, d = gates.astype(np.float64), dgates.astype(np.float64)
    dz = d * g * (1 - g) if activation == "sigmoid" else g * (d - (d * g).sum(-1, keepdims=True))
    dz = dz.reshape(b * s, h * 3)
    assert_close(sums, np.stack([dz[r].sum(0) for r in ranges(b * s, parts, 16)]))


def test_accumulate_rows(rng):
    shapes = [(700, 3), (36, 17), (5, 1), (1, 64)]
    sums = [random(rng, width) for width, _ in shapes]
    rows = [random(rng, count, width) for width, count in shapes]
    results = run("nn.accumulate_rows {}", sums + rows, [((width,), "f32") for width, _ in shapes])
    for result, total, parts in zip(results, sums, rows):
        assert_close(result, total + parts.astype(np.float64).sum(0))


def test_cast_all(rng):
    tensors = [random(rng, *shape, scale=100) for shape in [(33, 7), (20000,), (1,), (3, 64, 5)]]
    results = run("nn.cast_all {} to bf16", tensors, [(x.shape, "bf16") for x in tensors])
    for result, x in zip(results, tensors):
        np.testing.assert_array_equal(result, ref.to_bf16(x))


@pytest.mark.parametrize("element", ELEMENTS)
def test_rows(rng, element):
    x = random(rng, 2, 70, 23, element=element)
    counts = [64, 75, 1]
    parts = run("nn.split_rows {}", [x], [((n, 23), element) for n in counts], element)
    flat = x.reshape(140, 23)
    for part, want in zip(parts, np.split(flat, np.cumsum(counts)[:-1])):
        np.testing.assert_array_equal(part, want)
    (whole,) = run("nn.concat_rows {}", parts, [((2, 70, 23), element)], element)
    np.testing.assert_array_equal(whole, x)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("vocab", [1, 17, 2500])
def test_loss_of_a_chunk(rng, vocab, element):
    tokens, first, rows = (3, 40), 37, 50
    targets = rng.integers(-1, vocab, tokens)
    logits = random(rng, rows, vocab, element=element, scale=4)
    (count,) = run("nn.count_targets {}", [targets], [((), "f32")])
    assert count == (targets >= 0).sum()
    (fraction,) = run("nn.count_targets {} {{over_all}}", [targets], [((), "f32")])
    assert fraction == np.float32(count) / np.float32(targets.size)
    dloss = np.float32(0.75)
    losses, dlogits = run(f"nn.cross_entropy_chunk {{}} {{{{first = {first} : i64}}}}",
                          [logits, targets, F32(count), F32(dloss)],
                          [((rows,), "f32"), ((rows, vocab), element)], element)
    x, t = logits.astype(np.float64), targets.reshape(-1)[first : first + rows]
    lse = np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1)) + x.max(-1)
    hit = np.arange(vocab) == t[:, None]
    valid = t >= 0
    want = np.where(valid, lse - (x * hit).sum(-1), 0)
    assert np.abs(losses - want).max() <= 1e-5 * max(1.0, np.abs(x).max())
    grad = np.where(valid[:, None], dloss / max(count, 1) * (np.exp(x - lse[:, None]) - hit), 0)
    if vocab > 1:
        assert_close(dlogits, grad, ref.rounder(element)(grad))
    (only,) = run(f"nn.cross_entropy_chunk {{}} {{{{first = {first} : i64}}}}", [logits, targets, F32(count)],
                  [((rows,), "f32")], element)
    np.testing.assert_array_equal(only, losses)
    (loss,) = run("nn.mean_loss {}", [count, losses, losses[:7]], [((), "f32")])
    expected = (losses.astype(np.float64).sum() + losses[:7].astype(np.float64).sum()) / max(float(count), 1.0)
    assert abs(loss - expected) <= 1e-5 * max(1.0, abs(expected))


def test_no_target_has_no_loss():
    targets = np.full((2, 9), -1)
    (count,) = run("nn.count_targets {}", [targets], [((), "f32")])
    assert count == 0
    (loss,) = run("nn.mean_loss {}", [np.float32(0), np.zeros(18, np.float32)], [((), "f32")])
    assert loss == 0


@pytest.mark.parametrize("rows,width", [(1, 1), (33, 36), (130, 257)])
def test_one_kernel_of_several_operations(rng, rows, width):
    t, w = f"tensor<{rows}x{width}xf32>", f"tensor<{width}xf32>"
    module = nsa.compile(f"""
      func.func @main(%x: {t}, %r: {t}, %w: {w}) -> ({t}, {t}, {t}) {{
        %s, %y, %a = nn.fused %x, %r, %w : ({t}, {t}, {w}) -> ({t}, {t}, {t}) {{
        ^bb0(%b: {t}, %c: {t}, %v: {w}):
          %0 = nn.add %b, %c : ({t}, {t}) -> {t}
          %1, %2 = nn.rms_norm %0, %v {{eps = 1.0e-5 : f64}} : ({t}, {w}) -> ({t}, tensor<{rows}xf32>)
          %3 = nn.swiglu %1, %c : ({t}, {t}) -> {t}
          nn.yield %0, %1, %3 : {t}, {t}, {t}
        }}
        return %s, %y, %a : {t}, {t}, {t}
      }}""", poison=True)
    x, r, weight = random(rng, rows, width), random(rng, rows, width), random(rng, width)
    out = module.run("main", {"arg0": x, "arg1": r, "arg2": weight})
    s = x.astype(np.float64) + r
    y = s / np.sqrt((s * s).mean(-1, keepdims=True) + 1e-5) * weight
    assert_close(out["result0"], s)
    assert_close(out["result1"], y)
    assert_close(out["result2"], y / (1 + np.exp(-y)) * r)
