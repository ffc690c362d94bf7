"""Every operation of nsa and nn by itself against its rule, and the rules against themselves."""

import os

import numpy as np
import pytest
from executors import CPU, SEED, make_rng

import declarations
import generate
import generate_nsa
import judge
import nsa_rules
import program
import rules
from numerics import Exact, to_bf16

NAMES = sorted(rules.RULES)
DIFFERENTIABLE = sorted({*rules.GRADIENTS, *(name.removesuffix("_backward") for name in NAMES if name.endswith("_backward"))}
                        - {"nsa.compress_key_value"})
ELEMENTS = ["f32", "bf16", "f16"]
#: Programs of one operation for each type; three times as many where shapes decide much.
COUNT = int(os.environ.get("NSA_JUDGE_COUNT", 2))
#: What may have the operand `at`, or the pages of a cache.
INSIDE = sorted(name for name in NAMES if any(o.name in ("at", "pages") for o in declarations.read()[name].operands))
MANY_SHAPES = ("nsa.attention", "nsa.attention_backward", "nsa.select", "nsa.compress", "nsa.compress_backward")
#: Memory is poisoned, or fresh: all bits of the poison make indices of -1.
EXECUTORS = [CPU(), CPU(poison=False)]


@pytest.mark.parametrize("name", NAMES)
def test_operation(name):
    for number in range(COUNT * (3 if name in MANY_SHAPES else 1)):
        for element in ELEMENTS:
            made = generate.make_one(name, make_rng(name, number, element), element)
            execute = EXECUTORS[number % 3 == 2]
            problem = judge.judge(made, execute, SEED)
            assert problem is None, judge.report(made, execute, problem,
                                                 f"NSA_TEST_SEED={SEED}, number {number} of {element}")


@pytest.mark.parametrize("name", INSIDE)
def test_queries_inside_of_sequences(name):
    for number in range(3 * COUNT):
        for element in ELEMENTS:
            made = generate.make_one(name, make_rng(name, "inside", number, element), element, inside=True)
            problem = judge.judge(made, EXECUTORS[number % 2], SEED)
            assert problem is None, judge.report(made, EXECUTORS[number % 2], problem,
                                                 f"NSA_TEST_SEED={SEED}, number {number} of {element}")


def test_every_declared_operation_has_a_rule_and_is_tried():
    declared = declarations.read()
    assert set(rules.RULES) | set(rules.WITHOUT) == set(declared)
    assert set(generate.SAMPLES) - {"layer"} == {name for name in rules.RULES if not name.endswith("_backward")}
    assert set(DIFFERENTIABLE) == {name for name in rules.RULES if declared[name].differentiable}


@pytest.mark.parametrize("element", ["bf16", "f16"])
def test_gradient_of_a_wider_product_is_rounded_to_its_factors(element):
    """Of one weight, whose gradient is a sum over so many rows that the errors of all add up."""
    for number in range(12):
        b = generate.Builder(make_rng("wider", number), element)
        x, weight = b.normal(512, 2), b.normal(1, 2)
        b.program.results = b.op("nn.matmul", lhs=x, rhs=weight, transpose_rhs=True, result_type="f32")
        b.program.wanted, b.program.seed = [x, weight], b.rng.standard_normal((512, 1)).astype(np.float32)
        problem = judge.judge(b.program, EXECUTORS[0], SEED)
        assert problem is None, f"NSA_TEST_SEED={SEED}, number {number}: {problem}"


# --- The rules ---------------------------------------------------------------


def check_gradients(made, rng, step=1e-6):
    """Along a random direction, against central differences. A choice is kept."""
    objective = made.results[0]
    made.seed = rng.standard_normal(objective.array.shape)
    choices = {op.results[0]: op.results[0].array for op in made.ops if op.name in judge.CHOICES}
    gradients = made.evaluate(Exact(casts=False), choices=choices)[len(made.results):]
    for value, gradient in zip(made.wanted, gradients):
        direction = rng.standard_normal(value.array.shape)
        sums = []
        for sign in (1, -1):
            moved = [v.array + (sign * step * direction if v is value else 0) for v in made.arguments]
            terms = made.evaluate(Exact(casts=False), moved, choices)[0] * made.seed
            sums.append(terms.sum())
        numeric = (sums[0] - sums[1]) / (2 * step)
        size = np.abs(gradient * direction).sum() + 1e-3
        # What the sums are rounded by, each of their terms in its own way.
        noise = 8 * np.finfo(float).eps * np.linalg.norm(terms) / step
        assert abs((gradient * direction).sum() - numeric) <= 1e-5 * size + noise, f"{made.text()}{value.type}"


@pytest.mark.parametrize("name", [name for name in DIFFERENTIABLE if name != "nsa.select"])
def test_gradient_rule_agrees_with_differences(name):
    for number in range(6):
        rng = make_rng(name, number)
        made = generate.make_one(name, rng, "f32")
        made.results = made.results[:1]
        made = made.without_dead()
        made.wanted = made.reaching()
        for value in made.arguments:
            if name == "nsa.attention" and value in made.wanted:
                value.array /= max(np.abs(value.array).max(initial=0) / 3, 1)  # no score beyond what differences resolve
        check_gradients(made, rng)


def test_gradients_of_a_layer_agree_with_differences():
    for number in range(4):
        rng = make_rng("layer", number)
        b = generate.Builder(rng, "f32", reuse=0.8)
        generate.SAMPLES["layer"](b)
        made = b.finish()
        made.results = [made.ops[-1].results[0]]
        made.wanted = made.reaching()
        check_gradients(made, rng)


# --- The judge itself --------------------------------------------------------


def make_window(element):
    b = generate.Builder(make_rng(element), element)
    b.batch, b.length = 1, 200
    query, key, value = (b.normal(1, 200, 2, 16) for _ in range(3))
    b.op("nsa.attention", query=query, key=key, value=value, visibility=nsa_rules.visibility("window", window=64))
    b.program.results = b.program.ops[0].results[:1]
    return b.program


@pytest.mark.parametrize("element", ["f32", "bf16"])
def test_wrong_results_are_rejected(element):
    made = make_window(element)
    exact = made.evaluate()[0]
    kept = to_bf16(exact) if element == "bf16" else exact.astype(np.float32)
    assert judge.compare(made, [kept]) is None
    one_off = kept.copy()
    one_off.flat[one_off.size // 2] += (2e-2 if element == "bf16" else 2.5e-5) * np.abs(exact).max()
    assert "is off by" in judge.compare(made, [one_off])
    one_off.flat[0] = np.nan
    assert "is off by inf" in judge.compare(made, [one_off])
    made.ops[0].attributes["visibility"] = nsa_rules.visibility("window", window=65)
    assert "is off by" in judge.compare(made, [kept])


@pytest.mark.parametrize("indices, problem", [
    ([0, 3, 4], None), ([0, 2, 4], "not the best"), ([0, 3, 3], "no list"), ([1, 3, 4], "without one of"),
    ([0, 4, -1], "no list"), ([0, 4, 5], "no list"), ([4, 3, 0], "no list")])
def test_wrong_choices_are_rejected(indices, problem):
    score = np.array([0.1, 0.2, 0.3, 0.9, 0.0, -np.inf])[None, None, None]
    selected = nsa_rules.visibility("selected", block=16, count=3, initial=1, local=1)
    found = nsa_rules.bad_choice(np.array(indices)[None, None, None], score, selected, 1e-3)
    assert found is None if problem is None else problem in found


def test_failing_program_shrinks_to_what_fails():
    """Where silu is wrong, what is left of many operations is silu."""
    class Wrong(CPU):
        def __call__(self, made):
            right = program.rules.RULES["nn.silu"]
            program.rules.RULES["nn.silu"] = lambda c, input: input
            try:
                return made.evaluate()
            finally:
                program.rules.RULES["nn.silu"] = right

    b = generate.Builder(make_rng("shrink"), "f32")
    x = b.normal(4, 16)
    for name in ("nn.gelu", "nn.silu", "nn.squared_relu"):
        x, = b.op(name, input=b.op("nn.scale", input=x, factor=1.5)[0])
    b.program.results = [x]
    assert judge.judge(b.program, Wrong())
    small = judge.shrink(b.program, Wrong())
    assert [op.name for op in small.ops][0] == "nn.silu" and len(small.ops) <= 3
