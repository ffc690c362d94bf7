"""Sequences that share a row, and tokens of the future: what a result may not depend on, not in a bit."""

import numpy as np
import pytest
from executors import SEED, arrays, nsa

import generate
import generate_nsa
import nsa_rules

LAYOUT = [[64, 1, 7, 8, 13, 37, 62], [128, 5, 3, 56]]
COMPRESSED = nsa_rules.visibility("compressed", block=8, stride=4)
SELECTED = nsa_rules.visibility("selected", block=16, count=3, initial=1, local=2)
VISIBLE = [nsa_rules.visibility("window", window=5), nsa_rules.visibility("window", window=150), COMPRESSED,
           nsa_rules.visibility("causal"), nsa_rules.visibility("selected", block=16),
           nsa_rules.visibility("strided", block=8, stride=3)]
ROWS = {"query": "tokens", "value": "keys", "key": "keys", "output_grad": "tokens", "output": "tokens", "lse": "heads",
        "indices": "heads", "query_grad": "tokens", "key_grad": "keys", "value_grad": "keys", "input": "tokens",
        "input_grad": "tokens"}


class Packed:
    """An operation on sequences that share rows, compiled once."""

    def __init__(self, build):
        b = self.builder = generate.Builder(np.random.default_rng(SEED))
        b.batch, b.length, self.keys = 2, 192, "tokens"
        self.start = b.argument(np.array([np.repeat(np.cumsum([0] + row[:-1]), row) for row in LAYOUT], np.int32))
        build(self)
        self.op = b.program.ops[-1]
        b.program.results = self.op.results
        self.program = b.program.without_dead()
        self.module = nsa.compile(self.program.text(), poison=True, allow_slow_path=["all"])
        self.inputs = arrays(self.program)

    def run(self, inputs):
        """What has rows of sequences, by the names of the results."""
        out = self.module.run("main", inputs)
        return {r.name: out[f"r{i}"] for i, r in enumerate(self.op.declaration.results) if not r.variadic}

    def place(self, name, b, begin, length):
        """Where the rows of a sequence are in an operand or a result."""
        rows = self.keys if ROWS[name] == "keys" else ROWS[name]
        if self.op.name.startswith("nsa.compress") and name.startswith("output"):
            rows = "blocks"
        if rows == "blocks":
            begin, length = begin // 4, nsa_rules.blocks_of(length, 8, 4)
        return (b, slice(None), slice(begin, begin + length)) if rows == "heads" else (b, slice(begin, begin + length))

    def operands(self):
        """Name in the text and of the operand, of those that have rows of sequences."""
        return [(f"a{self.program.arguments.index(value)}", name) for name, value in self.op.operands.items() if name in ROWS]


def attention(visible, backward):
    def build(p):
        b = p.builder
        p.keys = "blocks" if visible == COMPRESSED else "tokens"
        rows = 48 if visible == COMPRESSED else 192
        given = {"query": b.normal(2, 192, 4, 16), "key": b.normal(2, rows, 2, 16), "value": b.normal(2, rows, 2, 24),
                 "start": p.start, "visibility": visible}
        if visible.kind == "selected":
            g = generate_nsa.Geometry(2, 2, 16, 24, COMPRESSED, SELECTED, 5, 1.0)
            given["indices"] = generate_nsa.random_indices(b, g, p.start)
        if backward:
            o, lse = b.given("nsa.attention", **given)
            given |= {"output_grad": b.like(o), "output": o, "lse": lse}
        b.op("nsa.attention_backward" if backward else "nsa.attention", **given)
    return build


def select(p):
    b = p.builder
    p.keys = "blocks"
    given = {"query": b.normal(2, 192, 4, 16), "key": b.normal(2, 48, 2, 16), "start": p.start}
    lse = b.given("nsa.attention", **given, value=given["key"], visibility=COMPRESSED)[1]
    b.op("nsa.select", **given, lse=lse, compressed=COMPRESSED, selected=SELECTED)


def compress(kind, backward):
    def build(p):
        b = p.builder
        shapes = {"mean": [], "linear": [(128, 16), (8, 16)], "mlp": [(128, 16), (16, 16), (8, 16)]}[kind]
        given = {"kind": kind, "input": b.normal(2, 192, 2, 16), "start": p.start, "compressed": COMPRESSED,
                 "parameters": [b.normal(2, *shape, scale=0.1) for shape in shapes]}
        if backward:
            given["output_grad"] = b.normal(2, 48, 2, 16)
        b.op("nsa.compress_backward" if backward else "nsa.compress", **given)
    return build


CASES = [*(attention(v, back) for v in VISIBLE for back in (False, True)), select,
         *(compress(kind, back) for kind in ("mean", "linear", "mlp") for back in (False, True))]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_sequence_depends_on_no_other(case):
    p = Packed(CASES[case])
    first, rng = p.run(p.inputs), np.random.default_rng(SEED + 1)
    for where in [(0, 80, 13), (0, 93, 37), (1, 0, 128), (1, 136, 56)]:
        others = dict(p.inputs)
        for key, name in p.operands():
            if p.inputs[key].dtype == np.float32:
                others[key] = rng.standard_normal(p.inputs[key].shape).astype(np.float32)
                others[key][p.place(name, *where)] = p.inputs[key][p.place(name, *where)]
        for name, found in p.run(others).items():
            np.testing.assert_array_equal(found[p.place(name, *where)], first[name][p.place(name, *where)],
                                          err_msg=f"{p.op.name}: {name} at {where}")


@pytest.mark.parametrize("case", range(len(CASES)))
def test_sequence_at_a_multiple_of_64_is_that_at_the_beginning(case):
    p = Packed(CASES[case])
    start, there, here = f"a{p.program.arguments.index(p.start)}", (0, 64, 56), (1, 0, 56)
    whole = dict(p.inputs, **{start: p.inputs[start].copy()})
    whole[start][0] = np.repeat([0, 64, 120], [64, 56, 72])
    moved = {key: x.copy() for key, x in whole.items()}
    moved[start][1] = np.repeat([0, 56], [56, 136])
    for key, name in p.operands():
        moved[key][p.place(name, *here)] = p.inputs[key][p.place(name, *there)]
    first, then = p.run(whole), p.run(moved)
    for name in first:
        np.testing.assert_array_equal(then[name][p.place(name, *here)], first[name][p.place(name, *there)],
                                      err_msg=f"{p.op.name}: {name}")


@pytest.mark.parametrize("length", [33, 129, 512])
def test_future_token_changes_no_earlier_output(length):
    rng = np.random.default_rng([SEED, length])
    b = generate.Builder(rng)
    b.batch, b.length = 1, length
    rows = lambda heads, width: b.normal(1, length, heads, width)  # noqa: E731
    query = rows(4, 16)
    kc, vc = (b.op("nsa.compress", kind="mean", input=rows(2, 16), parameters=[], compressed=COMPRESSED)[0] for _ in "kv")
    o, lse = b.op("nsa.attention", query=query, key=kc, value=vc, visibility=COMPRESSED)
    chosen, = b.op("nsa.select", query=query, key=kc, lse=lse, compressed=COMPRESSED, selected=SELECTED)
    outputs = [o, *(b.op("nsa.attention", query=query, key=rows(2, 16), value=rows(2, 16), visibility=visible, indices=i)[0]
                    for visible, i in ((VISIBLE[4], chosen), (VISIBLE[0], None)))]
    gates = b.normal(1, length, 4, 3)
    b.program.results = b.op("nsa.combine", gates=gates, branches=outputs)
    module, inputs = nsa.compile(b.program.text(), poison=True), arrays(b.program)
    before = module.run("main", inputs)["r0"]
    for t in rng.integers(1, length, 4):
        for x in inputs.values():
            x[:, t:] = 3 * rng.standard_normal(x[:, t:].shape)
        after = module.run("main", inputs)["r0"]
        assert np.isfinite(after).all() and not np.array_equal(after, before)
        np.testing.assert_array_equal(after[:, :t], before[:, :t])
        before = after
