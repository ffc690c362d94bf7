"""Runs one operation as a program of its own."""

import numpy as np

import nsa
from reference import to_bf16


def tensor(shape, element):
    return "tensor<" + "".join(f"{n}x" for n in shape) + element + ">"


def program(op, inputs, results):
    """The text of a function with one operation.

    `op` is its mnemonic with `{}` for the operands; `inputs` and `results` are
    lists of (shape, element type).
    """
    ins = [tensor(*t) for t in inputs]
    outs = [tensor(*t) for t in results]
    args = ", ".join(f"%a{i}: {t}" for i, t in enumerate(ins))
    names = [f"%r{i}" for i in range(len(outs))]
    text = op.format(", ".join(f"%a{i}" for i in range(len(ins))))
    types = f"({', '.join(ins)}) -> ({', '.join(outs)})"
    if "visible(" in op and op.startswith("nsa.attention"):
        types = ", ".join(ins)
    return (f"func.func @main({args}) -> ({', '.join(outs)}) {{\n"
            f"  {', '.join(names)} = {text} : {types}\n"
            f"  return {', '.join(names)} : {', '.join(outs)}\n}}\n")


def run(op, inputs, results, element="f32"):
    """Runs `op` on arrays. Float arrays are stored as `element`, those wrapped
    in `F32` as f32; `results` are (shape, element type)."""
    types, values = [], []
    for x in inputs:
        kind = element
        if isinstance(x, F32):
            x, kind = x.array, "f32"
        x = np.asarray(x)
        if np.issubdtype(x.dtype, np.integer):
            types.append((x.shape, "i32"))
            values.append(x.astype(np.int32))
        else:
            types.append((x.shape, kind))
            values.append(x.astype(np.float32))
    module = nsa.compile(program(op, types, results), poison=True)
    out = module.run("main", {f"arg{i}": v for i, v in enumerate(values)})
    return [out[f"result{i}"] for i in range(len(results))]


class F32:
    """An input that stays fp32 whatever the activations are."""

    def __init__(self, array):
        self.array = array


def random(rng, *shape, element="f32", scale=1.0):
    x = (rng.standard_normal(shape) * scale).astype(np.float32)
    return to_bf16(x) if element == "bf16" else x


def assert_close(actual, expected, emulated=None, tolerance=1e-5, terms=0.0):
    """max|actual - expected| / max|expected| <= tolerance or, with the same
    formula rounded as a kernel may round (a list: in several ways), at most
    twice its error. Where all is
    expected to cancel to 0, the error is measured by the size of the `terms`."""
    expected = np.asarray(expected, np.float64)
    assert actual.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    if not finite.any():
        return
    top = np.abs(expected[finite]).max()
    if top <= 1e-10 * terms:
        top = terms
    error = np.abs(actual - np.where(finite, expected, 0))[finite].max()
    limit = tolerance * top
    if emulated is not None:
        for way in emulated if isinstance(emulated, list) else [emulated]:
            limit = max(limit, 2 * np.abs(way - expected)[finite].max())
    assert error <= limit, f"error {error:.3g} over {limit:.3g}"
