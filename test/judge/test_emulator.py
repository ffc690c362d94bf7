"""The kernels of GPUs on the emulator against the rules: Hopper's, and those of the GPUs before it."""

import os

import numpy as np
import pytest
from executors import SEED, Emulator, make_rng

import declarations
import generate
import generate_nsa
import judge
import nsa_rules
import program
import rules
from nsa_rules import visibility

NAMES = sorted(rules.RULES)
COUNT = int(os.environ.get("NSA_JUDGE_EMULATED", 1))
#: What may have the operand `at`.
INSIDE = sorted(name for name in NAMES if any(o.name == "at" for o in declarations.read()[name].operands))
#: What has heads, as wide as those of models in 16 bits.
WIDE = ["nsa.attention", "nsa.attention_backward", "nsa.select", "nsa.compress", "nsa.compress_backward",
        "nsa.compress_key_value", "nsa.rotary_attention", "layer"]


def check(maker, element, words):
    rng = make_rng(*words)
    made = maker(rng, element)
    target = ("sm_90a", "sm_80", "sm_90a", "sm_86")[int(rng.integers(4))]
    execute = Emulator(target)
    problem = judge.judge(made, execute, SEED)
    assert problem is None, judge.report(made, execute, problem, f"NSA_TEST_SEED={SEED}, {words} of {element} for {target}")


@pytest.mark.parametrize("name", NAMES)
def test_operation(name):
    for number in range(COUNT):
        element = ("bf16", "f32", "f16")[(number + len(name)) % 3]
        check(lambda rng, element: generate.make_one(name, rng, element), element, (name, number))


@pytest.mark.parametrize("name", INSIDE)
def test_queries_inside_of_sequences(name):
    for number in range((4 if "attention" in name or name == "nsa.select" else 1) * COUNT):
        check(lambda rng, element: generate.make_one(name, rng, element, wide=number % 2 == 1, inside=True),
              ("bf16", "f16", "f32")[number % 3], (name, number, "inside"))


@pytest.mark.parametrize("number", range(4 * COUNT))
def test_layer_inside_of_sequences(number):
    check(lambda rng, element: generate.make_gradient(rng, element, 0, many=number % 2 == 0, inside=True),
          ("bf16", "f16", "f32")[number % 3], ("layer", number, "inside"))


@pytest.mark.parametrize("name", WIDE)
def test_wide_heads(name):
    for number in range(4 * COUNT):
        element = ("bf16", "f16", "bf16", "f32")[number % 4]
        if name == "layer":
            maker = generate.make_graph if number % 2 else generate.make_gradient
            check(lambda rng, element: maker(rng, element, 8, wide=True), element, (name, number))
        else:
            check(lambda rng, element: generate.make_one(name, rng, element, wide=True), element, (name, number, "wide"))


@pytest.mark.parametrize("number", range(3 * COUNT))
def test_many_blocks(number):
    check(lambda rng, element: generate.make_gradient(rng, element, 0, many=True), ("bf16", "f16", "f32")[number % 3],
          ("many", number))


def select(rng, element, number, form):
    """A program that finds keys in this form, which gathered ones do for whole sequences; every second one for one head at a time."""
    while True:
        if number % 4 == 3:
            made = generate.make_gradient(rng, element, 0, many=True)
        else:
            made = generate.make_one(("nsa.attention", "nsa.attention_backward")[number % 2], rng, element)
        if any(op.operands.get("indices") is not None and (form == "unions" or op.operands.get("start") is None) for op in made.ops):
            made.options = program.form(form)
            if form == "gathered" and rng.integers(2):
                for one in made.options["schedules"].values():
                    one["gathered_heads"] = 1
            return made


@pytest.mark.parametrize("form", ["gathered", "unions"])
@pytest.mark.parametrize("number", range(8 * COUNT))
def test_form(number, form):
    check(lambda rng, element: select(rng, element, number, form), ("bf16", "f16", "f32")[number % 3], (form, number))


@pytest.mark.parametrize("group, width, length, schedule, packed", [
    (16, 128, 150, {"gathered_queries": 3}, 0), (6, 64, 200, {}, 0), (8, 64, 130, {"producer": 3, "gathered_queries": 4}, 0),
    (4, 64, 1100, {}, 0), (2, 128, 130, {}, 0), (16, 64, 170, {"selected_keys": 64}, 1)])
def test_producer_gathers_rows(group, width, length, schedule, packed):
    """Gradients of keys and values from lists are those of kernels whose threads copy, in whole blocks and, last, in parts."""
    b = generate.Builder(make_rng("gather", group), "bf16")
    b.batch, b.length = 1, length
    compressed = visibility("compressed", block=32, stride=16)
    g = generate_nsa.Geometry(1, group, width, width, compressed, visibility("selected", block=64, count=4, initial=1, local=1), 5, 1.0)
    b.program.results = b.op("nsa.attention", **generate_nsa.attention_operands(b, "selected", g, packed=packed)[1])[:1]
    made, execute = b.program, Emulator("sm_90a")
    made.wanted, made.seed = made.reaching(), generate.store(b.rng.standard_normal((1, length, group, width)), "bf16")
    found = []
    for blocks in (0, schedule.get("producer", 2)):
        made.options = {"schedules": {"selected_key_value_grad": {"form": "lists"} | schedule | {"producer": blocks}}}
        found.append(execute(made))
    problem = judge.judge(made, execute, SEED)
    assert problem is None, judge.report(made, execute, problem, f"NSA_TEST_SEED={SEED}")
    for x, y in zip(*found):
        assert np.array_equal(x, y)


def select_many(rng, element, count):
    """Lists of `count` blocks, longer than a warp has lanes, of twice as many."""
    b = generate.Builder(rng, element)
    b.batch, b.length = 1, 8 * count + b.between(0, 7)
    g = generate_nsa.geometry(b)
    g.compressed = visibility("compressed", block=4 * b.between(1, 2), stride=4)
    g.selected = visibility("selected", block=g.compressed.block, count=count, initial=b.between(0, 1), local=b.between(1, 2))
    g.logits = b.pick([1.0, 9.0, 0.0])
    g, given = generate_nsa.attention_operands(b, "compressed", g)
    lse = b.op("nsa.attention", **given)[1]
    b.program.results = [generate_nsa.select(b, g, given["query"], given["key"], lse, given["start"], **generate_nsa.scoring(given))]
    return generate.choose_options(b, b.finish())


@pytest.mark.parametrize("count", [33, 48, 64, 130][:2 + 2 * COUNT])
def test_long_lists(count):
    check(lambda rng, element: select_many(rng, element, count), ("bf16", "f32", "f16")[count % 3], ("long", count))


@pytest.mark.parametrize("number", range(8 * COUNT))
def test_program(number):
    maker = generate.make_gradient if number % 2 else generate.make_graph
    check(lambda rng, element: maker(rng, element, int(rng.integers(1, 10))), ("bf16", "f16", "f32")[number % 3], (number,))


@pytest.mark.parametrize("refused", [0, 3, 5, 6])
def test_odd_selected_blocks_of_packed_sequences(refused):
    """Blocks that tensor cores do not add up to, where they lie anywhere, with each kind of schedule."""
    b = generate.Builder(make_rng("odd", refused), "bf16")
    b.batch, b.length = 1, 140
    compressed = nsa_rules.visibility("compressed", block=20, stride=20)
    g = generate_nsa.Geometry(2, 3, 32, 32, compressed, nsa_rules.visibility("selected", block=20, count=3, initial=1, local=2), 5, 1.0)
    b.program.results = b.op("nsa.attention", **generate_nsa.attention_operands(b, "selected", g, packed=1)[1])[:1]
    made = b.program
    made.wanted, made.seed = made.reaching(), generate.store(b.rng.standard_normal((1, 140, 6, 32)), "bf16")
    made.options["refused"] = refused
    problem = judge.judge(made, Emulator("sm_80" if refused % 2 else "sm_90a"), SEED)
    assert problem is None, f"NSA_TEST_SEED={SEED}: {problem}"
