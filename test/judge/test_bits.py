"""What has to hold bit by bit, whatever the errors of rounding: ties, order, what is not yet known, what is fused."""

import os

import numpy as np
import pytest
from executors import CPU, SEED, Emulator, arrays, make_rng, nsa, wanted_names

import generate
import generate_nsa
import judge
import nsa_rules

#: Whether there is time for every length.
MANY = int(os.environ.get("NSA_JUDGE_COUNT", 2)) > 1
EXECUTORS = {"cpu": CPU(), "sm_90a": Emulator("sm_90a"), "sm_80": Emulator("sm_80")}
assert generate_nsa


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("place", EXECUTORS)
def test_equal_blocks_tie(place, element):
    """Sums on tensor cores depend on which numbers share an instruction: of equal blocks the first are selected."""
    b = generate.Builder(make_rng("tie", element), element)
    compressed = nsa_rules.visibility("compressed", block=8, stride=4)
    rows = compressed.keys(250)
    query = b.normal(1, 250, 3, 64)
    key = b.argument(np.repeat(b.rng.standard_normal((1, 1, 1, 64)), rows, 1))
    lse = b.normal(1, 3, 250, element="f32")  # any statistics by which probabilities have all kinds of digits
    selected = nsa_rules.visibility("selected", block=16, count=7, initial=1, local=2)
    b.program.results = b.op("nsa.select", query=query, key=key, lse=lse, compressed=compressed, selected=selected)
    np.testing.assert_array_equal(EXECUTORS[place](b.program)[0], b.program.evaluate()[0])


@pytest.mark.parametrize("place", EXECUTORS)
def test_rotation_in_attention_is_that_apart(place):
    """The bits of queries, keys, outputs and statistics, on which selection depends."""
    for number in range(3):
        made = generate.make_one("nsa.rotary_attention", make_rng("turn", number), ("bf16", "f32", "f16")[number], wide=number < 2)
        # Sums are in the order of tiles of keys: those that both kernels are given, or have in their first four schedules.
        sizes = made.options.get("schedules", {}).get("rotary_forward")
        refused = min(made.options.get("refused", 0), 3)
        made.options = {"schedules": {"forward": sizes, "rotary_forward": sizes}} if sizes else {"refused": refused}
        op, found = made.ops[0], EXECUTORS[place](made)
        values = dict(zip(made.results, found))
        turned = []
        for given, result in zip([op.operands["query"], *op.operands["keys"]], op.results[2:]):
            b = generate.Builder(make_rng(), given.element)
            start = op.operands.get("start")
            b.program.arguments = [v for v in (given, op.operands["table"], start) if v is not None]
            b.program.results = b.op("nn.rotary", input=given, table=op.operands["table"], start=start)
            turned.append(EXECUTORS[place](b.program)[0])
            np.testing.assert_array_equal(turned[-1], values[result])
        b = generate.Builder(make_rng(), op.results[0].element)
        query = b.argument(turned[0], op.results[0].element)
        key, value, start = (op.operands.get(name) for name in ("key", "value", "start"))
        b.program.arguments += [v for v in (key, value, start) if v is not None]
        b.program.options = made.options
        b.program.results = b.op("nsa.attention", query=query, key=key, value=value, start=start,
                                 **{key: x for key, x in op.attributes.items() if key in ("visibility", "scale", "softcap")})
        for apart, result in zip(EXECUTORS[place](b.program), op.results):
            np.testing.assert_array_equal(apart, values[result])


def select_whole_and_in_parts(element, group, width):
    """Two programs for the same lists: of two sequences, and of five rows of an odd length inside of these."""
    length, size = 205, 41
    compressed = nsa_rules.visibility("compressed", block=16, stride=8)
    selected = nsa_rules.visibility("selected", block=16, count=4, initial=1, local=2)
    at = np.array([[1, 164], [0, 0], [1, 71], [0, 67], [1, 3]], np.int32)
    programs = []
    for inside in (False, True):
        b = generate.Builder(make_rng("inside", group, width), element)
        b.batch, b.length = 2, length
        query, key = b.normal(2, length, 2 * group, width), b.normal(2, compressed.keys(length), 2, width)
        place = None
        if inside:
            query.array = np.stack([query.array[s, p:p + size] for s, p in at])
            place = b.argument(at)
        given = {"query": query, "key": key, "at": place}
        lse = b.op("nsa.attention", **given, value=key, visibility=compressed)[1]
        b.program.results = [lse, *b.op("nsa.select", **given, lse=lse, compressed=compressed, selected=selected)]
        programs.append(b.program)
    return *programs, at, size


@pytest.mark.parametrize("place", EXECUTORS)
@pytest.mark.parametrize("group, width", [(1, 96), (3, 64), (4, 16), (16, 128)])
def test_lists_inside_of_a_sequence_are_those_of_the_whole(place, group, width):
    whole, parts, at, size = select_whole_and_in_parts("f32" if group == 1 else "bf16", group, width)
    for x, y in zip(EXECUTORS[place](whole), EXECUTORS[place](parts)):
        np.testing.assert_array_equal(y, np.stack([x[s, :, p:p + size] for s, p in at]))


def residual_stream(b, rows, width):
    """Sums, norms, activations and casts with their gradients, which fusion makes a few kernels of."""
    x, r, dy, w = b.normal(rows, width), b.normal(rows, width), b.normal(rows, width), b.normal(width, element="f32")
    first, = b.op("nn.add", lhs=x, rhs=r)
    norm, rstd = b.op("nn.rms_norm", input=first, weight=w, eps=1e-5)
    then, = b.op("nn.add", lhs=b.op("nn.swiglu", gate=norm, up=r)[0], rhs=first)
    wide, = b.op("nn.cast", input=then, element_type="f32")
    grad, = b.op("nn.add", lhs=b.op("nn.silu_backward", output_grad=dy, input=norm)[0], rhs=dy)
    dx, dw = b.op("nn.rms_norm_backward", output_grad=grad, input=first, weight=w, rstd=rstd)
    last, = b.op("nn.add", lhs=b.op("nn.add", lhs=dx, rhs=dy)[0], rhs=r)
    return norm, first, last, dw, wide


def rotations(b, rows, width):
    q, d, k = b.normal(2, rows, 6, width), b.normal(2, rows, 6, width), b.normal(2, rows, 2, width)
    table = b.table(rows, width)
    turned = [b.op("nn.rotary", input=x, table=table, inverse=True)[0]
              for x in (b.op("nn.add", lhs=b.op("nn.add", lhs=q, rhs=d)[0], rhs=q)[0], k)]
    return b.op("nn.add", lhs=turned[0], rhs=d)[0], turned[1]


@pytest.mark.parametrize("make, sizes", [(residual_stream, [(3, 7), (64, 36), (130, 64), (200, 300)]), (rotations, [(9, 16)])])
@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_fused_operations_give_the_bits_of_single_ones(make, sizes, element):
    for rows, width in sizes:
        b = generate.Builder(make_rng("fuse", rows), element)
        b.program.results = list(make(b, rows, width))
        for x, y in zip(CPU()(b.program), CPU(fuse=False)(b.program)):
            assert np.abs(x).max() > 0
            np.testing.assert_array_equal(x, y)


def make_layer(rng, element, length=None):
    b = generate.Builder(rng, element)
    b.length = length or b.pick([47, 63, 70])  # no width of heads
    generate.SAMPLES["layer"](b)
    made = b.finish()
    made.results = [v for v in made.results if v.array.shape[:2] == (b.batch, b.length)]
    return made, b.length


@pytest.mark.parametrize("place", EXECUTORS)
def test_later_tokens_change_no_bit(place):
    for number in range(3):
        rng = make_rng("later", number)
        made, length = make_layer(rng, ("bf16", "f32", "f16")[number])
        before = EXECUTORS[place](made)
        cut = int(rng.integers(1, length))
        for v in made.arguments:
            if v.element != "i32" and v.array.ndim > 2 and v.array.shape[:2] == made.results[0].array.shape[:2]:
                v.array = v.array.copy()
                v.array[:, cut:] = generate.store(3 * rng.standard_normal(v.array[:, cut:].shape), v.element)
        for x, y in zip(before, EXECUTORS[place](made)):
            assert not np.array_equal(x, y)
            np.testing.assert_array_equal(x[:, :cut], y[:, :cut])


def test_every_length():
    """No row is without a key or out of bounds, from a single token on."""
    for length in range(1, 36, 1 if MANY else 3):
        made, _ = make_layer(make_rng("length", length), ("f32", "bf16")[length % 2], length)
        problem = judge.judge(made, EXECUTORS["cpu"], SEED)
        assert problem is None, f"{length} tokens: {problem}\n{made.text()}"


@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_any_number_of_threads(element):
    """Nothing unwritten is read, in memory of zeros and of NaNs, and no sum has the order of threads."""
    rng = make_rng("threads", element)
    for _ in range(2):
        made = generate.make_gradient(rng, element, 4)
        judge.show_choices(made)
        found = []
        for threads, poison in ((2, False), (1, True), (5, True)):
            module = nsa.compile(made.text(), poison=poison, threads=threads, allow_slow_path=["all"], gradients=wanted_names(made))
            found.append(module.run("main", arrays(made)))
        for other in found[1:]:
            for name, x in found[0].items():
                np.testing.assert_array_equal(x, other[name])
