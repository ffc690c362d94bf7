"""Training steps of models that are made up: loss, gradients that add up over micro-batches, and the update."""

import os

import numpy as np
import pytest
from executors import SEED, arrays, nsa

import generate
import generate_nsa
import judge
import rules
from numerics import Errors, Exact, distance

assert generate_nsa
COUNT = int(os.environ.get("NSA_JUDGE_TRAINING", 10))
HYPER = np.array([1e-2, 0.9, 0.95, 1e-3, 0.1, 1.0, 0.5, 1.0])


@pytest.mark.parametrize("number", range(COUNT))
def test_step(number):
    rng = np.random.default_rng([SEED, number])
    model = generate.make_model(rng, int(rng.integers(1, 6)))
    precision, narrow = [("fp32", None), ("fp32", None), ("bf16", "bf16")][number % 3]
    text, origin = generate.training_text(model), f"NSA_TEST_SEED={SEED}, number {number}"
    module = nsa.compile(text, poison=True, threads=2, allow_slow_path=["all"], precision=precision,
                         recompute=("none", "cheap", "block")[number // 3 % 3])
    names = [f"a{model.arguments.index(v)}" for v in model.wanted]
    inputs = arrays(model)
    module.run("init", {})
    weights = [inputs.pop(name) for name in names]
    for name, w in zip(names, weights):
        module.write(name, w)
    loss = module.run("accumulate", inputs)["loss"]
    gradients = [module.read(f"grad.{name}") for name in names]

    # Losses of micro-batches are divided by the number of all targets.
    model.ops[-1].attributes["over_all"] = True
    choices = {op.results[0]: op.results[0].array for op in model.ops if op.name == "nsa.select"}
    exact = model.evaluate(choices=choices)
    if not choices:
        judge.expect([loss, *gradients], [exact[0], *exact[2:]],
               lambda: [x for i, x in enumerate(model.evaluate(Errors(rng, narrow=narrow))) if i != 1], f"{origin}\n{text}")

    module.run("accumulate", inputs)
    for name, g in zip(names, gradients):
        # A product that is added to what there is rounds its sums otherwise.
        np.testing.assert_allclose(module.read(f"grad.{name}"), 2 * g, rtol=1e-6, atol=1e-6 * abs(g).max())
    module.run("update", {"hyper": HYPER.astype(np.float32)})
    count, total = 2 * (inputs[f"a{model.arguments.index(model.ops[-1].operands['targets'])}"] >= 0).mean(), 2 * float(loss)
    doubled = [2.0 * g.astype(np.float64) for g in gradients]
    norm, = rules.call(Exact(), "nn.gradient_norm", gradients=doubled)
    hyper, mean = rules.call(Exact(), "nn.average_step", hyper=HYPER, loss=total, count=count)
    for i, (name, w, g) in enumerate(zip(names, weights, doubled)):
        zeros, decay = np.zeros(w.shape), bool(model.arguments.index(model.wanted[i]) % 2)
        want = rules.call(Exact(), "nn.adamw", weight=w.astype(np.float64), moment1=zeros, moment2=zeros, gradient=g, norm=norm,
                          loss=mean, hyper=hyper, decay=decay)
        for tensor, expected in zip((name, f"m.{name}", f"v.{name}"), want):
            assert distance(module.read(tensor), expected) <= 1e-5 * max(np.abs(expected).max(initial=0), 1e-30), tensor
