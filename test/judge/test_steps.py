"""What steps of a small model keep, what they skip, and that no gradient is of the future."""

import functools

import numpy as np
import pytest
from executors import CPU, make_rng
from test_models import LINEAR, MODELS, write_model

LENGTH = 70
HYPER = {"hyper": np.array([1e-2, 0.9, 0.95, 1e-8, 0.1, 1, 1, 1], np.float32)}


class Model:
    """Initialised, with tokens and targets."""

    def __init__(self, folder, changes=None, precision="fp32"):
        text = compile_text(folder, tuple(sorted((changes or {}).items())))
        self.module = CPU().compile(text, precision=precision)
        self.module.run("init", {})
        rng = make_rng("steps")
        self.inputs = {name: rng.integers(0, 256, (2, LENGTH)).astype(np.int32) for name in ("tokens", "targets")}
        self.roles = {name: role for name, (_, _, role) in self.module.tensors.items()}

    def run(self, entry, **inputs):
        given = {} if entry == "update" else self.inputs
        return self.module.run(entry, given | (HYPER if entry in ("update", "step") else {}) | inputs)

    def read(self, role):
        """Copies of all tensors of a role."""
        return {name: self.module.read(name).copy() for name, own in self.roles.items() if own == role}

    def read_updated(self):
        """What an update changes: parameters and their moments."""
        moments = {name: x for name, x in self.read("state").items() if name[:2] in ("m.", "v.")}
        assert len(moments) == 2 * len(self.read("parameter"))
        return self.read("parameter") | moments


@functools.lru_cache
def compile_text(folder, changes):
    return write_model(dict(changes), folder)[0]


@pytest.fixture
def make(tmp_path):
    return functools.partial(Model, tmp_path)


def same(one, other):
    return all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)


def test_zero_init_output_starts_at_zero_and_learns(make):
    """The first gradients are those of the projections that start at 0, and of what follows them."""
    model = make({"model.zero_init_output": True})
    model.run("accumulate")
    for name in ("layers.0.attention.output.weight", "layers.1.mlp.down.weight"):
        assert not model.module.read(name).any() and abs(model.module.read(f"grad.{name}")).max() > 1e-8


def test_gates_have_gradients_at_the_first_step(make):
    """Once gates never learned, because their projection started at zero."""
    model = make()
    model.run("accumulate")
    gates = [gradient for name, gradient in model.read("gradient").items() if "gate" in name]
    assert len(gates) == 4 and all(abs(gradient).max() > 1e-8 for gradient in gates)


def test_non_finite_gradient_updates_nothing(make):
    model = make()
    model.run("accumulate")
    name = next(name for name, role in model.roles.items() if role == "gradient")
    gradient = model.module.read(name).copy()
    gradient.flat[0] = np.nan
    model.module.write(name, gradient)
    before = model.read_updated()
    model.run("update")
    assert same(before, model.read_updated())
    # The gradients were cleared: the next step is sound again.
    model.run("accumulate")
    model.run("update")
    assert not same(before, model.read_updated())


def test_gradients_beyond_fp16_update_nothing_and_halve_the_scale(make):
    """Of weights so large that gradients of the scaled loss overflow, until they fit."""
    model = make({"model.init_std": 10}, "fp16")
    for skipped in range(40):
        before, scale = model.read_updated(), float(model.module.read("loss_scale"))
        model.run("step", hyper=np.array([*HYPER["hyper"][:7], skipped + 1], np.float32))
        if not same(before, model.read_updated()):
            break
        assert model.module.read("loss_scale") == scale / 2 and model.module.read("skipped_updates") == skipped + 1
    assert 0 < skipped < 16 and model.module.read("loss_scale") == scale == 65536 / 2**skipped
    assert all(np.isfinite(x).all() for x in model.read_updated().values())


def test_uneven_micro_batches_add_up_to_the_mean_over_targets(make):
    """The mean of the means of two micro-batches, one of which has a single target, is not that of all."""
    parts, whole = make(), make()
    targets, count = parts.inputs["targets"], 2 * LENGTH
    total = 0.0
    for first, last in ((0, count - 1), (count - 1, count), (count, count)):
        place = np.arange(count).reshape(2, LENGTH)
        parts.inputs["targets"] = np.where((place >= first) & (place < last), targets, -1).astype(np.int32)
        loss = parts.run("eval")["loss"]
        total += loss * (last - first) if last > first else 0
        parts.run("accumulate")
    assert abs(parts.module.read("target_fraction_sum") - 1) < 1e-6
    assert abs(parts.module.read("loss_sum") - total / count) < 1e-5
    whole.run("accumulate")
    found, wanted = parts.read("gradient"), whole.read("gradient")
    most = max(abs(gradient).max() for gradient in wanted.values())
    for name, gradient in wanted.items():
        np.testing.assert_allclose(found[name], gradient, rtol=0, atol=1e-5 * most, err_msg=name)
    norms = [model.run("update")["grad_norm"] for model in (parts, whole)]
    np.testing.assert_allclose(*norms, rtol=1e-5)


def test_step_without_targets_updates_nothing(make):
    model = make()
    before = model.read_updated()
    out = model.run("step", targets=np.full((2, LENGTH), -1, np.int32))
    assert same(before, model.read_updated())
    assert out["target_fraction_sum_out"] == 0 and out["grad_norm"] == 0


def test_step_is_accumulate_then_update_bit_by_bit(make):
    one, two = make(), make()
    one.run("step")
    two.run("accumulate")
    two.run("update")
    assert same(one.read("parameter"), two.read("parameter"))


# --- The future ----------------------------------------------------------------


def run_with_loss_at(model, *positions):
    """Every token has an id of its own, and one of each sequence a target."""
    model.module.run("init", {})
    model.inputs = {"tokens": np.arange(2 * LENGTH, dtype=np.int32).reshape(2, LENGTH),
                    "targets": np.full((2, LENGTH), -1, np.int32)}
    model.inputs["targets"][[0, 1], positions] = 17, 230
    model.run("accumulate")
    return model.read("gradient")


@pytest.mark.parametrize("changes, precision", [(MODELS["sparse"], "fp32"), (MODELS["sparse"], "bf16"), (LINEAR, "fp32")])
def test_later_tokens_get_no_gradient(make, changes, precision):
    """Which earlier ones are reached depends on the selection."""
    model = make(changes, precision)
    for positions in ((0, 69), (6, 7), (15, 16), (33, 40), (68, 1)):
        rows = run_with_loss_at(model, *positions)["grad.embedding.weight"][:2 * LENGTH].reshape(2, LENGTH, -1)
        for row, at in zip(rows, positions):
            assert row[at].any() and not row[at + 1:].any(), positions


def test_earlier_tokens_get_a_gradient(make):
    """The window is 12 tokens: sparse branches reach most of the others."""
    gradient = run_with_loss_at(make(), 60, 60)["grad.embedding.weight"]
    assert (gradient[:61, 0] != 0).sum() > 50


def test_later_tokens_change_no_bit_of_any_gradient(make):
    model = make()
    for at in (5, 16, 31, 50):
        before = run_with_loss_at(model, at, at)
        model.module.run("init", {})
        model.inputs["tokens"][:, at + 1:] = make_rng("future", at).integers(140, 240, (2, LENGTH - at - 1))
        model.run("accumulate")
        assert len(before) > 10 and same(before, model.read("gradient"))
