"""One artefact for every batch and length: programs with `?` for both at many shapes, against the rules, and bit by bit
against programs with numbers where the tiles are the same."""

import numpy as np
import pytest
from executors import CPU, SEED, Emulator, make_rng, nsa

import generate
import generate_nsa
import judge
import nsa_rules
import program

WINDOW, CAUSAL = nsa_rules.visibility("window", window=32), nsa_rules.visibility("causal")
COMPRESSED = nsa_rules.visibility("compressed", block=8, stride=4)
SELECTED = nsa_rules.visibility("selected", block=16, count=4, initial=1, local=2)
#: Of long sequences, which tiles are for; lengths are no other size of any tensor.
SAME_TILES = {kernel: {"queries": 32, "keys": 32} for kernel in generate.KERNELS} | {"select": {"queries": 16, "blocks": 2}}
assert generate_nsa


class Builder(generate.Builder):
    def __init__(self, batch, length, element, group=2, width=16):
        super().__init__(make_rng(batch, length, element), element)
        self.batch, self.length = batch, length
        self.query, self.key, self.value = (self.normal(batch, length, heads, width) for heads in (2 * group, 2, 2))

    def attend(self, visible, query=None, key=None, value=None, **more):
        return self.op("nsa.attention", query=query or self.query, key=key or self.key, value=value or self.value,
                       visibility=visible, **more)

    def finish(self, results, differentiate):
        made = self.program
        made.results, made.open = list(results), self.query
        if differentiate:
            made.wanted = made.reaching()
            made.seed = generate.store(self.rng.standard_normal(results[0].array.shape), self.element)
        return made.without_dead()


def rows(b):
    x = b.normal(b.batch, b.length, 20)
    b.query = x
    y, _ = b.op("nn.rms_norm", input=b.op("nn.silu", input=x)[0], weight=b.normal(20, element="f32"), eps=1e-5)
    return b.op("nn.add", lhs=y, rhs=x)


def gates(b):
    return b.op("nn.gate", activation="softmax", logits=b.normal(b.batch, b.length, 12), branches=3) + rows(b)


def window(b):
    return b.attend(WINDOW)


def causal(b):
    return b.attend(CAUSAL)


def compressed_keys(b):
    blocks = COMPRESSED.keys(b.length)
    key, value = (b.normal(b.batch, blocks, 2, 16) for _ in "kv")
    o, lse = b.attend(COMPRESSED, key=key, value=value)
    return o, lse, *b.op("nsa.select", query=b.query, key=key, lse=lse, compressed=COMPRESSED, selected=SELECTED)


def branches(b, turn=lambda x, stride=1: x):
    """The gated sum of three; what of it is fused is the compiler's affair."""
    query, key = turn(b.query), turn(b.key)
    kc, vc = (b.op("nsa.compress", kind="mean", input=x, parameters=[], compressed=COMPRESSED)[0] for x in (b.key, b.value))
    kc = turn(kc, 4)
    o, lse = b.attend(COMPRESSED, query, kc, vc)
    indices, = b.op("nsa.select", query=query, key=kc, lse=lse, compressed=COMPRESSED, selected=SELECTED)
    outputs = [o, b.attend(nsa_rules.visibility("selected", block=16), query, key, indices=indices)[0],
               b.attend(WINDOW, query, key)[0]]
    weights = b.normal(*b.query.array.shape[:3], 3, element="f32")
    return b.op("nn.silu", input=b.op("nsa.combine", gates=weights, branches=outputs)[0])


def rotary_branches(b):
    table = b.table(b.length, b.query.array.shape[3])
    return branches(b, lambda x, stride=1: b.op("nn.rotary", input=x, table=table, stride=stride)[0])


def check_bits(made, execute, found):
    """Against a program with numbers."""
    made.open = None
    for x, y in zip(found, execute(made)):
        np.testing.assert_array_equal(x, y)


def check(make, execute, shapes, element="f32", gradients=False, same_bits=False, options=None, **sizes):
    texts = set()
    for batch, length in shapes:
        b = Builder(batch, length, element, **sizes)
        made = b.finish(make(b), gradients)
        made.options = options or {}
        problem, found = judge.run(made, execute, SEED)
        assert problem is None, f"NSA_TEST_SEED={SEED}, {batch} x {length}: {problem}\n{made.text()}"
        texts.add(made.text())
        if same_bits:
            check_bits(made, execute, found)
    assert len(texts) == 1


@pytest.mark.parametrize("make, shapes", [(rows, [(1, 1), (3, 70), (2, 1000)]), (gates, [(1, 1), (3, 70)])])
def test_rows(make, shapes):
    check(make, CPU(), shapes, same_bits=True)


@pytest.mark.parametrize("make, shapes", [
    (window, [(1, 63), (3, 65), (2, 127), (1, 200)]), (causal, [(1, 63), (3, 65), (1, 200)]),
    (compressed_keys, [(1, 7), (2, 33), (1, 200)]), (branches, [(1, 1), (2, 75)]), (rotary_branches, [(3, 65)])])
def test_attention_of_the_same_tiles(make, shapes):
    check(make, CPU(), shapes, same_bits=True, options={"schedules": SAME_TILES})


@pytest.mark.parametrize("make", [rows, branches, rotary_branches])
def test_gradients_of_short_sequences(make):
    """Of a weight there are fewer parts of sums."""
    check(make, CPU(), [(1, 1), (3, 9), (2, 33)], gradients=True)


def test_gradients_of_long_sequences_have_bits_of_one_shape():
    """Made up at a short length: the rules, which nothing is held against here, take long at this one."""
    b, execute = Builder(1, 201, "f32"), CPU()
    made = b.finish(branches(b), True)
    longer = {201: 4201, COMPRESSED.keys(201): COMPRESSED.keys(4201)}

    def lengthen(array):
        return generate.store(b.rng.standard_normal([longer.get(n, n) for n in array.shape]), "f32")

    for v in [*made.arguments, *(v for op in made.ops for v in op.results)]:
        v.array = lengthen(v.array)
    made.seed = lengthen(made.seed)
    check_bits(made, execute, execute(made))


MASKS = program.form("masks")


@pytest.mark.parametrize("make, target, shapes, given", [
    (window, "sm_90a", [(1, 129), (2, 150)], {"width": 64}), (window, "sm_80", [(1, 129), (2, 140)], {"width": 64}),
    (causal, "sm_90a", [(1, 129), (2, 150)], {"group": 1, "width": 64}), (causal, "sm_86", [(2, 130)], {"group": 1, "element": "f32"}),
    (branches, "sm_90a", [(1, 200)], {"group": 4, "width": 32}), (branches, "sm_80", [(2, 150)], {"group": 4, "width": 32}),
    (branches, "sm_90a", [(1, 1), (3, 7), (1, 200)], {"element": "f32", "gradients": True}),
    (branches, "sm_90a", [(2, 150)], {"group": 4, "width": 32, "gradients": True}),
    # A program's 5 queries have 20 blocks, as many as 10,007 tokens have programs that list them.
    (branches, "sm_90a", [(1, 45), (2, 130)], {"group": 3, "gradients": True}),
    (branches, "sm_90a", [(1, 77)], {"group": 4, "width": 32, "options": MASKS}),
    (branches, "sm_90a", [(1, 77)], {"group": 4, "width": 32, "gradients": True, "options": MASKS}),
    (rotary_branches, "sm_90a", [(2, 70)], {"group": 4, "width": 32, "gradients": True})])
def test_kernels_of_gpus(make, target, shapes, given):
    check(make, Emulator(target), shapes, **{"element": "bf16", "same_bits": "gradients" not in given} | given)


@pytest.mark.parametrize("execute", [CPU(), Emulator("sm_90a")], ids=["cpu", "sm_90a"])
@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_empty_tensors(execute, shape):
    b = Builder(*shape, "bf16", group=4, width=32)
    made = b.finish(branches(b), True)
    for value, x in zip([*made.results, *made.wanted], execute(made)):
        assert x.shape == value.array.shape


def test_shapes_that_do_not_fit_are_errors():
    b = Builder(2, 9, "f32")
    module = nsa.compile(b.finish(causal(b), False).text())
    assert module.extents == ["batch", "seq"]
    with pytest.raises(nsa.Error, match="'batch', 'seq' are not given"):
        module.run("main", {})
    with pytest.raises(nsa.Error, match="batch 1048576, seq 1048576"):
        module.with_extents(batch=1 << 20, seq=1 << 20)
