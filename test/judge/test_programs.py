"""Programs of many operations, made up from a seed: against the rules, and against themselves compiled otherwise."""

import os

import numpy as np
import pytest
from executors import CPU, SEED, make_rng, nsa

import generate
import generate_nsa
import judge
import nsa_rules

COUNT = int(os.environ.get("NSA_JUDGE_PROGRAMS", 40))
ELEMENTS = ["f32", "f32", "bf16", "f16"]
MAKERS = {"forward": generate.make_graph, "gradients": generate.make_gradient}


def same(x, y):
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(x, y))


def check_again(number, made, first):
    """One of the ways in which the same bits must come, in turn, or without fusion what the rules say."""
    turn = number % 4
    if turn == 0:
        assert same(first, CPU(threads=3)(made)), "other bits with another number of threads"
    elif turn == 1 and made.wanted:
        assert same(first, CPU(recompute="block")(made)), "other bits with recomputation"
    elif turn == 2:
        assert nsa.compile(made.text()).artifact == nsa.compile(made.text()).artifact, "compiled twice, other bytes"
    else:
        assert judge.judge(made, CPU(fuse=False), SEED) is None, "wrong without fusion"


def test_the_same_operations_of_other_operands_are_another_kernel():
    b = generate.Builder(make_rng("operands"), "f32")
    x, y, z, w = (b.normal(3, 8) for _ in range(4))
    b.op("nn.swiglu", gate=b.op("nn.scale", input=x, factor=0.5)[0], up=y)
    b.op("nn.swiglu", gate=z, up=b.op("nn.scale", input=w, factor=0.5)[0])
    assert judge.judge(b.finish(), CPU(), SEED) is None


def test_gradient_of_gates_of_two_heads():
    """One number for each row: indices of two that are stored as one vector and loaded one by one."""
    b = generate.Builder(make_rng("two heads"), "f32")
    b.batch, b.length = 2, 15
    selected = nsa_rules.visibility("selected", block=6, count=5, initial=1, local=2)
    g = generate_nsa.Geometry(2, 2, 16, 16, nsa_rules.visibility("compressed", block=6, stride=6), selected, 5, 1.0)
    query, key, value = (b.normal(2, 15, heads, 16) for heads in (4, 2, 2))
    logits, bias = b.normal(2, 15, 4), b.normal(4)
    output, _ = b.op("nsa.attention", query=query, key=key, value=value, indices=generate_nsa.random_indices(b, g, None),
                     visibility=nsa_rules.visibility("selected", block=6))
    gates, = b.op("nn.gate", logits=logits, bias=bias, activation="sigmoid", branches=1)
    made = b.program
    made.results = b.op("nsa.combine", gates=gates, branches=[output])
    made.wanted, made.seed = [query, logits, bias], b.rng.standard_normal((2, 15, 4, 16)).astype(np.float32)
    assert judge.judge(made, CPU(), SEED) is None


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("number", range(COUNT))
def test_program(kind, number):
    rng = np.random.default_rng([SEED, number, len(kind)])
    made = MAKERS[kind](rng, ELEMENTS[number % 4], int(rng.integers(1, 14)))
    execute = CPU()
    problem, found = judge.run(made, execute, SEED)
    origin = f"NSA_TEST_SEED={SEED}, number {number} of {kind}"
    assert problem is None, judge.report(made, execute, problem, origin)
    check_again(number, made, found)


@pytest.mark.parametrize("number", range(COUNT // 5))
def test_layer_inside_of_sequences(number):
    """Queries of other rows than keys have, in fused kernels."""
    made = generate.make_gradient(make_rng("inside", number), ELEMENTS[number % 4], 0, many=number % 2 == 1, inside=True)
    execute = CPU()
    problem = judge.judge(made, execute, SEED)
    assert problem is None, judge.report(made, execute, problem, f"NSA_TEST_SEED={SEED}, number {number}")
