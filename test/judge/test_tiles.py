"""Kernels of a few tile operations, on processors and for GPUs, against NumPy; what they write elsewhere is found."""

import pathlib
import subprocess

import numpy as np
import pytest
from executors import BUILD
from numerics import store, to_bf16

#: Without tensor cores of warpgroups, and with them.
PLACES = ["x86-64-v3", "sm_80"]
UNIT = {"f32": 0.0, "bf16": 1 / 128, "f16": 1 / 1024}


def encode(array, element):
    if element == "bf16":
        return (to_bf16(array).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return np.asarray(array).astype({"f32": np.float32, "f16": np.float16, "i32": np.int32}[element]).tobytes()


def decode(data, element):
    if element == "bf16":
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.frombuffer(data, {"f32": np.float32, "f16": np.float16, "i32": np.int32}[element]).astype(np.float64)


class Kernel:
    """The text of a kernel. Its values are (name, shape, element); arguments are whole matrices."""

    def __init__(self):
        self.inputs, self.outputs, self.lines, self.count = [], [], ["%zero = arith.constant 0 : i32"], 0

    def add(self, text, shape, element):
        self.count += 1
        self.lines.append(f"%v{self.count} = {text}")
        return f"%v{self.count}", shape, element

    @staticmethod
    def tile(value):
        return f"!tile.tile<{value[1][0]}x{value[1][1]}x{value[2]}>"

    def range(self, shape):
        return self.add(f"tile.range %zero : !tile.tile<{shape[0]}x{shape[1]}xi32>", shape, "i32")

    def zeros(self, shape):
        self.lines.append(f"%f{self.count} = arith.constant 0.0 : f32")
        return self.add(f"tile.splat %f{self.count} : !tile.tile<{shape[0]}x{shape[1]}xf32>", shape, "f32")

    def place(self, rows, columns):
        rows, columns = self.range((rows, 1)), self.range((1, columns))
        return f"[{rows[0]}, {columns[0]}]", f"({self.tile(rows)}, {self.tile(columns)})"

    def load(self, array, element="f32", name=None, shape=None):
        """Of an argument, a new one with this content unless `name` is given, the first rows and columns."""
        if name is None:
            name = f"%i{len(self.inputs)}"
            self.inputs.append((array, element))
        shape = shape or array.shape
        place, types = self.place(*shape)
        value = "", shape, element
        return self.add(f"tile.load {name}{place} : memref<{array.shape[0]}x{array.shape[1]}x{element}>, {types} -> "
                        f"{self.tile(value)}", shape, element)

    def store(self, value, expected):
        name, shape, element = value
        place, types = self.place(*shape)
        self.lines.append(f"tile.store {name}, %o{len(self.outputs)}{place} : {self.tile(value)}, "
                          f"memref<{shape[0]}x{shape[1]}x{element}>, {types}")
        self.outputs.append((np.broadcast_to(expected, shape), element))

    def map(self, values, element, *body):
        """The last line of the body gives the result; it has elements %e0, %e1, ..."""
        shape = tuple(max(v[1][i] for v in values) for i in range(2))
        inputs, types = (", ".join(x) for x in ((v[0] for v in values), map(self.tile, values)))
        arguments = ", ".join(f"%e{i}: {v[2]}" for i, v in enumerate(values))
        lines = [f"%x{i} = {line}" for i, line in enumerate(body)]
        return self.add(f"tile.map ({inputs} : {types}) -> {self.tile(('', shape, element))} {{\n^bb0({arguments}):\n"
                        + "\n".join([*lines, f"tile.yield %x{len(body) - 1} : {element}"]) + "\n}", shape, element)

    def reduce(self, kind, value, axis):
        shape = (1, value[1][1]) if axis == 0 else (value[1][0], 1)
        result = "", shape, value[2]
        return self.add(f"tile.reduce {kind} {value[0]} {{axis = {axis} : i32}} : {self.tile(value)} -> {self.tile(result)}",
                        *result[1:])

    def dot(self, lhs, rhs, acc, flags):
        return self.add(f"tile.dot {lhs[0]}, {rhs[0]}, {acc[0]}{flags} : {self.tile(lhs)}, {self.tile(rhs)}, {self.tile(acc)}",
                        *acc[1:])

    def check(self, folder, target, tolerance=1e-5):
        """i32 exactly, 16 bits up to one unit in the last place, f32 up to this part of the largest element."""
        arguments = [("i", i, *x) for i, x in enumerate(self.inputs)] + [("o", i, *x) for i, x in enumerate(self.outputs)]
        types = [f"%{kind}{i}: memref<{x.shape[0]}x{x.shape[1]}x{element}>" for kind, i, x, element in arguments]
        text = (f"tile.kernel private @kernel({', '.join(types)}) attributes {{grid = array<i32: 1, 1, 1>, "
                f"num_outputs = {len(self.outputs)} : i32}} {{\n" + "\n".join([*self.lines, "tile.return", "}"]))
        folder = pathlib.Path(folder)
        (folder / "kernel.mlir").write_text(text)
        paths = [folder / f"{kind}{i}" for kind, i, *_ in arguments]
        for path, (kind, _, x, element) in zip(paths, arguments):
            path.write_bytes(encode(x if kind == "i" else np.full(x.shape, 77), element))
        done = subprocess.run([BUILD / "test" / "judge" / "nsa-run-kernel", folder / "kernel.mlir", target, *paths],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr + text
        for path, (_, _, x, element) in zip(paths, arguments):
            wanted = (x if element == "i32" else store(x, element)).astype(np.float64).ravel()
            found, finite = decode(path.read_bytes(), element), np.isfinite(wanted)
            most = np.abs(wanted[finite]).max(initial=1e-30)
            with np.errstate(invalid="ignore"):
                near = 0 if element == "i32" else np.maximum(np.abs(wanted) * UNIT[element], tolerance * most)
                right = (found == wanted) | (np.isnan(found) & np.isnan(wanted)) | (np.abs(found - wanted) <= near)
            assert right.all(), f"{path.name} on {target}: {found[~right][:4]}, not {wanted[~right][:4]}\n{text}"


# --- Elements ------------------------------------------------------------------


def between(low, high):
    return np.linspace(low, high, 501, dtype=np.float32)


INF, NAN = np.inf, np.nan
FUNCTIONS = [
    # The tolerance is relative to the largest number: small ranges.
    *(("exp", np.exp, between(low, low + 1)) for low in (-80, -10, -1, 0, 40, 87)), ("exp2", np.exp2, between(-3, 3)),
    ("exp", np.exp, [-INF, INF, NAN, 0, -0.0, 89, 1000, -104, -1e30]),
    ("exp2", np.exp2, [-INF, INF, NAN, 0, -0.0, 128, 1000, -200]),
    ("log", np.log, between(0.01, 3)), ("log", np.log, between(0.99, 1.01)), ("log", np.log, [0, INF, NAN, 1e-40, 3e38, -1]),
    ("rsqrt", lambda x: 1 / np.sqrt(x), between(0.1, 10)), ("rsqrt", lambda x: 1 / np.sqrt(x), [INF, 4, NAN]),
    ("sqrt", np.sqrt, between(0, 10)), ("tanh", np.tanh, between(-5, 5)), ("sin", np.sin, between(-5, 5)),
    ("cos", np.cos, between(-5, 5))]


@pytest.mark.parametrize("target", PLACES)
def test_functions_are_exact_on_tiles_and_scalars(target, tmp_path):
    for name, function, numbers in FUNCTIONS:
        x = np.asarray(numbers, np.float32)[None]
        with np.errstate(all="ignore"):
            wanted = function(x.astype(np.float64))
        k = Kernel()
        k.store(k.map([k.load(x)], "f32", f"math.{name} %e0 : f32"), wanted)
        k.lines += [f"%s = tile.load %i0[%zero, %zero] : memref<1x{x.size}xf32>, (i32, i32) -> f32", f"%t = math.{name} %s : f32",
                    "tile.store %t, %o1[%zero, %zero] : f32, memref<1x1xf32>, (i32, i32)"]
        k.outputs.append((wanted[:, :1], "f32"))
        k.check(tmp_path, target, 1e-6 if name in ("tanh", "sin", "cos") else 3e-7)


ROUNDED = {
    "bf16": [1.00390625, 1.01171875, 1.005859375, INF, -INF, NAN, -0.0, 1.0000001192092896, 65504, 3.38e38, 1e-30, -1.0039062,
             1.0117189884185791, 0],
    # Beside ties: subnormal numbers, the largest one, and what rounds to infinity.
    "f16": [1.00048828125, 1.00146484375, 1.000732421875, INF, -INF, NAN, -0.0, 65504, 65519.99, 65520, 6e-8, 2.9e-8, -6.1e-5,
            1.0000001192092896]}


@pytest.mark.parametrize("target", PLACES)
@pytest.mark.parametrize("element", ROUNDED)
def test_casts_round_to_nearest_even(element, target, tmp_path):
    x = np.asarray(ROUNDED[element], np.float32)[None]
    k = Kernel()
    narrow = k.map([k.load(x)], element, f"arith.truncf %e0 : f32 to {element}")
    k.store(narrow, x)
    k.store(k.map([narrow], "f32", f"arith.extf %e0 : {element} to f32"), store(x, element))
    k.check(tmp_path, target, 0)


def random(shape, element="f32", seed=7):
    rng = np.random.default_rng([seed, *shape])
    return rng.integers(-99, 100, shape) if element == "i32" else store(rng.uniform(-1, 1, shape), element)


@pytest.mark.parametrize("target", PLACES)
@pytest.mark.parametrize("kind, function", [("add", np.sum), ("max", np.max), ("min", np.min)])
def test_reductions_of_every_shape(kind, function, target, tmp_path):
    for shape in ((8, 16), (5, 11), (1, 33), (33, 1), (1, 1), (3, 3), (7, 8)):
        for axis in (0, 1):
            x, n = random(shape), random(shape, "i32")
            k = Kernel()
            powers = k.map([k.load(x)], "f32", "math.exp %e0 : f32")
            k.store(k.reduce(kind, powers, axis), function(np.exp(x), axis, keepdims=True))
            k.store(k.reduce(kind, k.load(n, "i32"), axis), function(n, axis, keepdims=True))
            k.store(powers, np.exp(x))
            k.check(tmp_path, target)


@pytest.mark.parametrize("target", PLACES)
def test_masks_and_divisions(target, tmp_path):
    x, n = random((9, 13)), random((9, 13), "i32")
    row, column = np.arange(9)[:, None], np.arange(13)[None]
    k = Kernel()
    values = [k.load(x), k.load(n, "i32"), k.range((9, 1)), k.range((1, 13))]
    mask = k.map(values, "i1", "arith.cmpi sle, %e2, %e3 : i32", "arith.constant 3 : i32", "arith.cmpi ne, %e1, %x1 : i32",
                 "arith.andi %x0, %x2 : i1")
    square = k.map(values, "f32", "arith.mulf %e0, %e0 : f32", "arith.constant 1.0 : f32", "arith.subf %x0, %x1 : f32")
    # The mask is used twice, so it lies in memory.
    for i in (0.0, 1.0):
        chosen = k.map([mask, square], "f32", f"arith.constant {i} : f32", "arith.addf %e1, %x0 : f32",
                       "arith.constant -1.0 : f32", "arith.select %e0, %x1, %x2 : f32")
        k.store(chosen, np.where((row <= column) & (n != 3), x * x - 1 + i, -1))
    parts = k.map(values, "i32", "arith.constant 7 : i32", "arith.constant 5 : i32", "arith.divsi %e1, %x0 : i32",
                  "arith.remsi %e1, %x1 : i32", "arith.addi %x2, %x3 : i32")
    sums = np.trunc(n / 7) + np.fmod(n, 5)
    k.store(parts, sums)
    # By a variable, which is 0 in the padding.
    k.store(k.map([parts, values[3]], "i32", "arith.constant 1 : i32", "arith.addi %e1, %x0 : i32", "arith.divsi %e0, %x1 : i32"),
            np.trunc(sums / (column + 1)))
    k.check(tmp_path, target)


@pytest.mark.parametrize("target", PLACES)
def test_elements_do_not_depend_on_their_place(target, tmp_path):
    """The last of nine columns is alone in its vector, and rounded no other way."""
    x = random((64, 16))
    k = Kernel()
    wide = k.load(x)
    body = ["arith.constant 1.0 : f32", "arith.constant 3.0 : f32", "arith.subf %x0, %e0 : f32", "arith.mulf %e0, %x2 : f32",
            "arith.addf %x3, %x0 : f32", "arith.mulf %e0, %x4 : f32", "arith.subf %x4, %x5 : f32", "arith.mulf %x4, %x4 : f32",
            "arith.subf %x1, %x7 : f32", "arith.mulf %x6, %x8 : f32"]
    y = x * (1 - x) + 1
    wanted = (y - x * y) * (3 - y * y)
    k.store(k.map([wide], "f32", *body), wanted)
    k.store(k.map([k.load(x, name="%i0", shape=(64, 9))], "f32", *body), wanted[:, :9])
    stored = [k.load(np.empty((64, columns)), name=name, shape=(64, 9)) for name, columns in (("%o0", 16), ("%o1", 9))]
    k.store(k.map(stored, "f32", "arith.subf %e0, %e1 : f32"), np.zeros((64, 9)))
    k.check(tmp_path, target)


@pytest.mark.parametrize("shape", [(16, 17, 11), (64, 75, 16), (40, 20, 5)], ids=str)
@pytest.mark.parametrize("lowest", [-1, 1.5])
@pytest.mark.parametrize("target", PLACES)
def test_lists_of_the_largest_leave_those_before(target, lowest, shape, tmp_path):
    """In lanes or in threads; many candidates are above the lowest of a list, or few, and equal ones come later."""
    (rows, cols, count), base = shape, 100
    x = np.round(np.abs(random((rows, cols))) * 16) / 16
    values, indices = (np.tile([[*first, *[rest] * (count - 2)]], (rows, 1))
                       for first, rest in (([2, 1.75], lowest), ([7, 9], 10 if lowest > 0 else -1)))
    k = Kernel()
    candidates, before = k.load(x), [k.load(values), k.load(indices, "i32")]
    k.lines += [f"%base = arith.constant {base} : i32",
                f"%best:2 = tile.top_n {candidates[0]}, %base, {before[0][0]}, {before[1][0]} : "
                f"{', '.join(map(k.tile, [candidates, *before]))}"]
    together = np.concatenate([values, x], 1), np.concatenate([indices, np.tile(np.arange(cols) + base, (rows, 1))], 1)
    order = np.argsort(-together[0], 1, kind="stable")[:, :count]
    for i in range(2):
        k.store((f"%best#{i}", *before[i][1:]), np.take_along_axis(together[i], order, 1))
        k.store(before[i], (values, indices)[i])
    k.check(tmp_path, target, 0)


# --- Dots --------------------------------------------------------------------

SHAPES = [(64, 64, 64), (1, 1, 1), (5, 7, 3), (17, 9, 13), (6, 64, 64), (1, 64, 24), (64, 1, 32), (33, 24, 1), (3, 4, 6), (20, 8, 8),
          (12, 31, 40), (2, 2, 2),
          # One to three warpgroups, swizzle atom columns of 32, 64 and 128 bytes, the last M-tile cut off.
          (64, 16, 32), (128, 96, 16), (192, 48, 48), (60, 128, 64), (256, 72, 128)]


def check_dot(folder, target, shape, transposed, element):
    m, n, depth = shape
    a, b, c = random((m, depth), element), random((depth, n), element), random((m, n))
    k = Kernel()
    lhs, rhs = (k.load(x.T if t else x, element) for x, t in zip((a, b), transposed))
    flags = ", ".join(flag for flag, t in zip(("transpose_a", "transpose_b"), transposed) if t)
    flags = f" {{{flags}}}" if flags else ""
    total = k.dot(lhs, rhs, k.load(c), flags)
    k.store(total, a @ b + c)
    k.store(k.dot(lhs, rhs, k.zeros((m, n)), flags), a @ b)
    k.check(folder, target, 3e-6)


@pytest.mark.parametrize("target", ["x86-64-v3", "sm_80", "sm_90a"])
@pytest.mark.parametrize("transposed", [(False, False), (False, True), (True, False), (True, True)])
def test_dots_of_all_forms_and_remainders(transposed, target, tmp_path):
    for shape in SHAPES:
        element = "f32" if (shape[0] + shape[2]) % 2 else "bf16" if transposed[1] else "f16"
        check_dot(tmp_path, target, shape, transposed, element)


@pytest.mark.parametrize("transposed", [False, True])
def test_dots_of_other_processors(transposed, tmp_path):
    check_dot(tmp_path, "x86-64-v2", (13, 21, 10), (False, transposed), "f32")
    check_dot(tmp_path, "x86-64-v2", (20, 21, 10), (False, transposed), "bf16")
    if "avx512f" in pathlib.Path("/proc/cpuinfo").read_text():
        check_dot(tmp_path, "x86-64-v4", (13, 40, 19), (False, transposed), "f32")
        for element in ("bf16", "f16"):
            check_dot(tmp_path, "x86-64-v4", (20, 40, 19), (True, transposed), element)
