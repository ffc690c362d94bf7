"""Training steps of models that are made up: loss, gradients that add up over micro-batches, and the update."""

import os

import numpy as np
import pytest
from executors import CPU, SEED, Emulator, arrays, make_rng, nsa

import generate
import generate_nsa
import judge
import rules
from numerics import Errors, Exact, distance

assert generate_nsa
COUNT = int(os.environ.get("NSA_JUDGE_TRAINING", 10))
HYPER = np.array([1e-2, 0.9, 0.95, 1e-3, 0.1, 1.0, 0.5, 1.0])


@pytest.mark.parametrize("execute, number", [*((CPU(), number) for number in range(COUNT)), (Emulator("sm_90a"), 0),
                                             (Emulator("sm_80"), 4), (Emulator("sm_90a"), 5)])
def test_step(execute, number):
    rng = np.random.default_rng([SEED, number])
    model = generate.make_model(rng, int(rng.integers(1, 6)))
    precision, narrow = [("fp32", None), ("fp32", None), ("bf16", "bf16")][number % 3]
    text, origin = generate.training_text(model), f"NSA_TEST_SEED={SEED}, number {number}"
    module = execute.compile(text, precision=precision, recompute=("none", "cheap", "block")[number // 3 % 3])
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
               lambda: [x for i, x in enumerate(model.evaluate(Errors(rng, execute.place, narrow))) if i != 1], f"{origin}\n{text}")

    module.run("accumulate", inputs)
    for name, g in zip(names, gradients):
        # A matmul that is added to what there is rounds its sums otherwise.
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


@pytest.mark.parametrize("optimizer", ["adamw", "lion"])
def test_fused_update_gives_the_bits_of_single_ones(optimizer):
    """All tensors of a kind in one kernel; they start from the same values, too. Nothing is clipped: sums of the norm have
    another order."""
    rng = np.random.default_rng(SEED)
    text = nsa.model_text("{model: {dim: 32, n_layers: 1, n_heads: 2, n_kv_groups: 1, d_k: 16, d_v: 16}, train: {seq_len: 32, "
                          "batch_size: 2, micro_batch: 2}}")
    modules = [CPU().compile(text, fuse=fuse, optimizer=optimizer) for fuse in (True, False)]
    kept = [name for name, (_, _, role) in modules[0].tensors.items() if role in ("parameter", "state")]

    def compare():
        for name in kept:
            np.testing.assert_array_equal(*(module.read(name) for module in modules), err_msg=name)

    for module in modules:
        module.run("init", {})
    compare()
    for step in (1, 2):
        gradients = {name: rng.standard_normal(shape).astype(np.float32)
                     for name, (_, shape, role) in modules[0].tensors.items() if role == "gradient"}
        assert len(gradients) > 10
        for module in modules:
            module.run("accumulate", {name: np.ones((2, 32), np.int32) for name in ("tokens", "targets")})
            for name, gradient in gradients.items():
                module.write(name, gradient)
            module.run("update", {"hyper": np.array([*HYPER[:5], 1e6, 0.5, step], np.float32)})
        compare()


@pytest.mark.parametrize("recompute", ["none", "cheap"])
def test_loss_in_chunks(recompute):
    """Of tokens, the last of them shorter, some targets ignored."""
    rng = make_rng("chunks")
    b = generate.Builder(rng)
    ids = b.argument(rng.integers(0, 1000, (2, 350)))
    table, weight = b.normal(1000, 48), b.normal(48, 1000)
    x, = b.op("nn.silu", input=b.op("nn.embedding", table=table, ids=ids)[0])
    logits, = b.op("nn.matmul", lhs=x, rhs=weight)
    targets = b.argument(np.where(rng.random((2, 350)) < 0.2, -1, rng.integers(0, 1000, (2, 350))))
    loss = b.op("nn.cross_entropy", logits=logits, targets=targets)[0]
    model = b.program
    model.results, model.wanted = [loss, logits], [table, weight]
    text = generate.training_text(model)
    options = {"logits_mib": 1, "recompute": recompute}
    module, whole = CPU().compile(text, **options), CPU().compile(text, **options, fuse=False)
    assert module.estimate().arena_bytes < whole.estimate().arena_bytes / 2
    inputs = arrays(model)
    module.run("init", {})
    names = [f"a{model.arguments.index(v)}" for v in model.wanted]
    for name in names:
        module.write(name, inputs.pop(name))
    mean = model.evaluate()[0]
    model.ops[-1].attributes["over_all"] = True
    exact = model.evaluate()
    # Twice, so that gradients are added to what is there.
    losses = [module.run(entry, inputs)["loss"] for entry in ("eval", "accumulate", "accumulate")]
    assert abs(losses[0] - mean) < 1e-5 * mean and all(abs(x - exact[0]) < 1e-5 * exact[0] for x in losses[1:])
    found = [module.read(f"grad.{name}") / 2 for name in names]
    judge.expect(found, exact[2:], lambda: model.evaluate(Errors(rng))[2:], f"NSA_TEST_SEED={SEED}")
    # The entry with the logits has all of them.
    logits = module.run("forward", {"a0": ids.array})["logits"]
    judge.expect([logits], [exact[1]], lambda: [model.evaluate(Errors(rng))[1]], "logits")
