"""Storage types, and how far a result may be from the formula in float64.

The rule is one: a result may be off by twice what errors of rounding make of the formula. `Errors` evaluates it
with such errors: in every result of every operation, and where an operation rounds inside (probabilities, the hidden
rows of an MLP). An fp32 kernel on a CPU may be off by 1e-5 of its largest element, on a GPU by 1e-4.
"""

import numpy as np

#: What rounding to nearest changes at most, of the element itself.
ROUNDING = {"bf16": 2.0**-8, "f16": 2.0**-11}
SINGLE = {"cpu": 1e-5, "gpu": 1e-4}
#: Evaluations with errors: at first, and before a result is called wrong.
FEW, MANY = 3, 24


def to_bf16(x):
    """The nearest bfloat16 values, ties to even, as float32."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32).reshape(np.shape(x))


def store(x, element):
    """`x` as a tensor of this element type holds it, in float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        if element == "i32":
            return np.asarray(x, np.int32)
        if element == "bf16":
            return to_bf16(x).astype(np.float64)
        return np.asarray(x, np.float16 if element == "f16" else np.float32).astype(np.float64)


class Exact:
    """The formula as it is; with `casts`, what an operation only copies or casts has the bits that it must have."""

    def __init__(self, casts=True):
        self.casts = casts

    def inner(self, x):
        """What an operation rounds to the type of its activations before it goes on."""
        return x

    def sum(self, x, size):
        """A sum of terms whose magnitudes add up to `size`."""
        return x

    def result(self, x, element):
        return x

    def argument(self, x, element):
        return x


class Errors(Exact):
    """The formula with errors of rounding. `kind` is the type of the activations of the operation at hand."""

    def __init__(self, rng, place="cpu", narrow=None):
        """`narrow` is the type that a precision of the compiler puts in place of fp32."""
        super().__init__()
        self.rng, self.narrow = rng, narrow
        self.single = SINGLE[place] / 2
        self.kind = "f32"

    def _relative(self, x, amount):
        # Rounding does the same to equal numbers: where a row is read often, its errors add up. So they are hashes of
        # the numbers (the finalizer of SplitMix64).
        numbers = np.asarray(x, np.float64).reshape(-1) + 0.0  # one zero
        bits = numbers.view(np.uint64) ^ self.rng.integers(1 << 64, dtype=np.uint64)
        bits = (bits ^ (bits >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> 27)) * np.uint64(0x94D049BB133111EB)
        uniform = ((bits ^ (bits >> 31)) >> 11) * 2.0**-52 - 1
        return x * (1 + amount * uniform.reshape(np.shape(x)))

    def inner(self, x):
        kind = self.narrow or self.kind
        return self._relative(x, ROUNDING[kind]) if kind in ROUNDING else x

    def sum(self, x, size):
        return x + 2.0**-20 * size * self.rng.uniform(-1, 1, np.shape(x))

    def argument(self, x, element):
        """Weights are cast to the type that the compiler computes in."""
        return self._relative(x, ROUNDING[self.narrow]) if self.narrow and element == "f32" and np.ndim(x) else x

    def result(self, x, element):
        finite = np.isfinite(x)
        if element == "i32" or not finite.any():
            return x
        top = np.abs(x[finite]).max()
        moved = np.where(finite, x, 0) + self.single * top * self.rng.uniform(-1, 1, np.shape(x))
        element = self.narrow if self.narrow and np.ndim(x) else element
        if element in ROUNDING:
            moved = self._relative(moved, ROUNDING[element])
        return np.where(finite, moved, x)


def distance(found, expected):
    """The largest |found - expected|; infinite where infinities or NaNs are not the same."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    finite = np.isfinite(expected)
    if not np.array_equal(found[~finite], expected[~finite], equal_nan=True) or not np.isfinite(found[finite]).all():
        return np.inf
    return float(np.abs(found[finite] - expected[finite]).max(initial=0.0))
