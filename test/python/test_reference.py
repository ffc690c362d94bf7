"""The references' gradients against finite differences."""

import numpy as np
import pytest

import reference as ref


def check_gradient(function, inputs, gradients, rng, step=1e-6):
    """The derivative along a random direction of each input."""
    for number, gradient in enumerate(gradients):
        direction = rng.standard_normal(inputs[number].shape)
        values = []
        for sign in (1, -1):
            moved = list(inputs)
            moved[number] = inputs[number] + sign * step * direction
            values.append(function(*moved))
        numeric = (values[0] - values[1]) / (2 * step)
        np.testing.assert_allclose((gradient * direction).sum(), numeric, rtol=1e-6, atol=1e-8)


def test_attention(rng):
    b, s, hq, hkv, dk, dv = 2, 13, 4, 2, 5, 3
    for mask in (ref.window_mask(s, 4), ref.compressed_mask(s, 4, 2)):
        n = mask.shape[1]
        inputs = [rng.standard_normal(x) for x in ((b, s, hq, dk), (b, n, hkv, dk), (b, n, hkv, dv))]
        do = rng.standard_normal((b, s, hq, dv))
        o, lse = ref.attention(*inputs, mask)
        gradients = ref.attention_backward(do, *inputs, o, lse, mask)
        check_gradient(lambda *x: (ref.attention(*x, mask)[0] * do).sum(), inputs, gradients, rng)


@pytest.mark.parametrize("shapes,positions", [([], False), *[(shapes, positions) for positions in (False, True) for shapes
                                              in ([(2, 12, 3)], [(2, 12, 3), (2, 3, 3)])]])
def test_compress(rng, shapes, positions):
    x, dy = rng.standard_normal((2, 13, 2, 3)), rng.standard_normal((2, 5, 2, 3))
    names = ["weight", "output_weight"][: len(shapes)] + ["positions"] * positions
    inputs = [x] + [rng.standard_normal(s) for s in shapes + [(2, 4, 3)] * positions]

    def parameters(arrays):
        return dict(zip(names, arrays[1:]))

    gradients = ref.compress_backward(dy, x, 4, 2, **parameters(inputs))
    assert len(gradients) == len(inputs)
    check_gradient(lambda *a: (ref.compress(a[0], 4, 2, **parameters(a)) * dy).sum(), inputs, gradients, rng)
