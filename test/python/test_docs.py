"""The examples of README and docs/python.md run, and the stubs are what the package has."""

import ast
import inspect
import math
import pathlib
import re
import subprocess

import pytest

import nsa
from programs import BIN, train_on_ids

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "python.md"

SMALL = """model: {dim: 32, n_layers: 1, n_heads: 2, n_kv_groups: 1, d_k: 16, d_v: 16}
nsa: {l: 8, d: 4, l_sel: 16, n_sel: 4, w: 32}
train: {steps: 2, seq_len: 64, batch_size: 2, micro_batch: 2, warmup_steps: 1, final_eval_batches: 1, sample_bytes: 0}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with runs/small, a run of a few steps."""
    folder = tmp_path_factory.mktemp("run")
    train_on_ids(folder, SMALL)
    return folder


def test_readme_example_runs():
    [example] = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert len(example.splitlines()) <= 10
    scope = {}
    exec(compile(example, "README.md", "exec"), scope)
    assert scope["dq"].shape == (1, 256, 4, 64) and abs(scope["dq"]).max() > 0


def test_page_examples_run(run, monkeypatch, capsys):
    monkeypatch.chdir(run)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert len(blocks) >= 5
    scope = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), scope)
    printed = capsys.readouterr().out
    for expected in ("(1, 256, 4, 64) (1, 256, 4, 64)", "<nsa.Module 'window.nsax' for sm_90a: window(q: f32",
                     "argument 'q' has shape (1, 100, 4, 64), expected (1, 256, 4, 64)", "(2, 3, 256)"):
        assert expected in printed


def parameters(function):
    """(name, whether it has a default) of a signature, in order, stars included."""
    return [(str(parameter).split("=")[0].split(":")[0], parameter.default is not parameter.empty)
            for parameter in inspect.signature(function).parameters.values()]


def stub_parameters(function):
    """The same of a stub."""
    scope = {}
    function.returns = None
    for argument in ast.walk(function):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    function.decorator_list = []
    exec(compile(ast.unparse(function), "stub", "exec"), scope)
    return parameters(scope[function.name])


def test_stubs_are_what_the_package_has():
    stub = ast.parse((pathlib.Path(nsa.__file__).parent / "__init__.pyi").read_text())
    named = {node.name for node in stub.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert {name for name in nsa.__all__ if name.isidentifier() and not name.isupper()} <= named
    for node in stub.body:
        if isinstance(node, ast.FunctionDef):
            assert stub_parameters(node) == parameters(getattr(nsa, node.name)), node.name
        if not isinstance(node, ast.ClassDef) or node.name == "Command":
            continue
        kind = getattr(nsa, node.name)
        members = {member.name: member for member in node.body if isinstance(member, ast.FunctionDef)}
        assert {name for name in vars(kind) if not name.startswith("_")} <= {
            *members, *(member.target.id for member in node.body if isinstance(member, ast.AnnAssign))}, node.name
        for name, member in members.items():
            if member.decorator_list:
                assert isinstance(vars(kind)[name], property), name
            else:
                assert stub_parameters(member) == parameters(vars(kind)[name]), f"{node.name}.{name}"
    assert (pathlib.Path(nsa.__file__).parent / "py.typed").exists()


# Models


def test_model_losses_and_logits_agree(run):
    import numpy as np
    model = nsa.Model(run / "runs" / "small")
    assert (model.step, model.vocab, model.seq_len) == (2, 256, 64)
    ids = np.random.default_rng(0).integers(0, 16, (3, 12))
    logits = model.logits(ids).astype(np.float64)
    assert logits.shape == (3, 12, 256)
    np.testing.assert_array_equal(model.logits(ids[1]), logits[1].astype(np.float32))
    # What comes later does not change what was before.
    np.testing.assert_allclose(model.logits(ids[:, :7]), logits[:, :7], atol=1e-5)
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    want = -np.take_along_axis(logs[:, :-1], ids[:, 1:, None], -1).mean()
    assert abs(model.loss(ids) - want) < 1e-4


def test_model_of_a_later_stage_is_that_of_the_stage(run, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(run / "cache"))
    stages = "stages: [{steps: 1}, {steps: 1, seq_len: 128, rope_base: 50000}]\n"
    (run / "stages.yaml").write_text(SMALL.replace("steps: 2, ", "") + stages)
    subprocess.run([BIN / "nsa-train", "stages.yaml", "--data", "data", "--out-dir", "runs", "--run-name", "stages"],
                   cwd=run, check=True, capture_output=True)
    model = nsa.Model(run / "runs" / "stages")
    assert (model.step, model.seq_len) == (2, 128)
    assert "rope_base: 50000" in model.config and "stages" not in model.config


def test_model_of_an_artifact_is_the_same(run):
    compiled, given = nsa.Model(run / "runs/small"), nsa.Model(run / "runs/small", artifact=run / "small.nsax")
    ids = list(range(16))
    assert abs(compiled.loss(ids) - given.loss(ids)) < 1e-5
    for name in compiled.parameters:
        assert (compiled.parameters[name] == given.parameters[name]).all()
    given.parameters["head.weight"] = 0 * given.parameters["head.weight"]
    assert abs(given.loss(ids) - math.log(256)) < 1e-5


@pytest.mark.parametrize("options,named", [
    ({"precision": "bf16"}, "precision"), ({"target": "cpu", "micro_batch": 1}, "target, micro_batch"), ({"seq_len": 32}, "seq_len"),
])
def test_model_artifact_with_options_of_compiler_is_error(run, options, named):
    with pytest.raises(nsa.InputError, match=f"artifact is compiled, and {named} cannot be chosen for it"):
        nsa.Model(run / "runs/small", artifact=run / "small.nsax", **options)


@pytest.mark.parametrize("ids,message", [
    ([0.5, 1.0], "ids are float64, expected integers"),
    ([[[1]]], "ids have shape (1, 1, 1), expected [tokens] or [sequences, tokens]"),
    ([1] * 66, "ids have shape (1, 66), expected 1 or more sequences of 2 to 65 tokens"),
    ([1, 256], "ids have the value 256, expected 0 to 255"),
    ([-1, 2], "ids have the value -1, expected 0 to 255"),
])
def test_model_wrong_ids_are_errors(run, ids, message):
    model = nsa.Model(run / "runs/small", artifact=run / "small.nsax")
    with pytest.raises(nsa.InputError, match=re.escape(message)):
        model.loss(ids)


def test_model_wrong_files_are_errors(run, tmp_path):
    with pytest.raises(nsa.InputError, match="nowhere"):
        nsa.Model(tmp_path / "nowhere")
    other = nsa.compile("func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {\n return %x : tensor<2xf32>\n}\n")
    with pytest.raises(nsa.InputError, match="has no entry 'init'; it is no model of nsa-model"):
        nsa.Model(run / "runs/small", artifact=other)
