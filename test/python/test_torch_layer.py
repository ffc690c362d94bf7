"""The layer of nsa.torch, checkpoints, and the page that says how to use it."""

import copy
import math
import re
import subprocess

import pytest

torch = pytest.importorskip("torch", minversion="2.9")

import nsa  # noqa: E402
import nsa.torch as nt  # noqa: E402
from nsa import InputError  # noqa: E402
from programs import BIN, train_on_ids  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch_support import DEVICE, ROOT, seed, small_layer  # noqa: E402, F401


@pytest.mark.parametrize("options", [{}, {"phi": "linear", "positions": True, "value_dim": 32},
                                     {"phi": "mlp", "gate": "softmax", "shared_kv": True},
                                     {"qk_norm": True, "qkv_bias": True}])
def test_layer_names_are_those_of_checkpoints(options):
    layer = small_layer(**options)
    branches = [""] if options.get("shared_kv") else ["compressed.", "selected.", "window."]
    projections = ["query", *[branch + kind for branch in branches for kind in ("key", "value")]]
    names = {"gate.weight", "gate.bias", "output.weight", *[f"{name}.weight" for name in projections]}
    if options.get("qk_norm"):
        names |= {f"{name}_norm.weight" for name in projections if not name.endswith("value")}
    if options.get("qkv_bias"):
        names |= {f"{name}.bias" for name in projections}
    phi = {"linear": ["weight", "positions"], "mlp": ["weight", "output_weight"]}.get(options.get("phi"), [])
    names |= {f"compressed.{kind}_compression.{name}" for kind in ("key", "value") for name in phi}
    assert set(layer.state_dict()) == names
    x = torch.randn(2, 37, 32, device=DEVICE)
    y = layer(x)
    y.square().sum().backward()
    assert y.shape == x.shape and all(parameter.grad.isfinite().all() for parameter in layer.parameters())


def test_layer_future_tokens_change_nothing_before():
    layer = small_layer()
    x = torch.randn(1, 50, 32, device=DEVICE)
    other = torch.cat([x[:, :30], torch.randn(1, 20, 32, device=DEVICE)], 1)
    assert torch.equal(layer(x)[:, :30], layer(other)[:, :30])


def test_layer_bfloat16_copies_and_inference_work():
    layer = small_layer().bfloat16()
    x = torch.randn(1, 40, 32, device=DEVICE).bfloat16()
    with torch.inference_mode():
        want = layer(x)
    y = copy.deepcopy(layer)(x)
    assert torch.equal(y, want)
    y.sum().backward()
    assert layer(torch.cat([x, x], 1)).shape == (1, 80, 32)


def test_layer_compile_of_any_lengths_is_the_same_and_compiles_twice():
    layer = small_layer(rope_scaling="yarn", rope_factor=2.0, rope_length=32, rope_dim=8)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    for length in (40, 33, 57, 64, 9, 130):
        x = torch.randn(1, length, 32, device=DEVICE)
        torch.testing.assert_close(compiled(x), layer(x))
    assert counter.frame_count == 2


def test_layer_defaults_are_a_key_head_for_each_head():
    layer = nt.NativeSparseAttention(48, 3)
    assert (layer.kv_heads, layer.head_dim, layer.value_dim) == (3, 16, 16)
    with pytest.raises(InputError, match="dim is 50, expected a multiple of heads, 3, where head_dim is not given"):
        nt.NativeSparseAttention(50, 3)


@pytest.mark.device("cuda")
def test_layer_compile_by_inductor_is_the_same():
    layer = small_layer()
    x = torch.randn(1, 57, 32, device=DEVICE, requires_grad=True)
    want, got = layer(x), torch.compile(layer, fullgraph=True)(x)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    grads = [torch.autograd.grad(y.square().sum(), [x, *layer.parameters()]) for y in (want, got)]
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("options,message", [
    ({"heads": 3}, "heads is 3, expected a multiple of kv_heads, 2"),
    ({"gate": "tanh"}, "gate is 'tanh', expected one of sigmoid, softmax"),
    ({"phi": "max"}, "phi is 'max', expected one of mean, linear, mlp"),
    ({"positions": True}, "positions are given, which phi 'mean' does not take"),
    ({"value_dim": 0}, "value_dim is 0, expected at least 1"),
    ({"window": 0}, "window is 0, expected at least 1"),
    ({"rope_scaling": "dynamic"}, "rope_scaling is 'dynamic', expected one of none, linear, ntk, yarn, llama3, longrope"),
    ({"rope_scaling": "yarn"}, "rope_length is 0, expected the tokens of a sequence of training, for yarn"),
    ({"rope_factor": 0.5}, "rope_factor is 0.5, expected a number of at least 1"),
    ({"head_dim": 15}, "head_dim is 15, expected a multiple of 2 for rotary embedding"),
])
def test_layer_misuse_is_named(options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        nt.NativeSparseAttention(**{"dim": 32, "heads": 4, "kv_heads": 2, "head_dim": 16, **options})


CONFIG = """model: {dim: 32, n_layers: 2, n_heads: 4, n_kv_groups: 2, d_k: 16, d_v: 16, init_std: 0.3}
nsa: {l: 8, d: 4, l_sel: 16, n_sel: 3, w: 12, phi: linear, phi_pos: true}
train: {steps: 1, lr: 0.0, seq_len: 48, batch_size: 1, micro_batch: 1, warmup_steps: 0, final_eval_batches: 1,
        sample_bytes: 0}
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return train_on_ids(folder, CONFIG)


class Decoder(torch.nn.Module):
    """nsa-train's model around the layer, from a checkpoint."""

    def __init__(self, model, **options):
        super().__init__()
        self.weights = {name: torch.from_numpy(value.copy()).requires_grad_()
                        for name, value in model.parameters.items()}
        self.layers = torch.nn.ModuleList(small_layer(**(options or {"phi": "linear", "positions": True})) for _ in range(2))

    def named(self):
        """Its parameters, by their names in nsa-train."""
        named = dict(self.weights)
        for i, layer in enumerate(self.layers):
            named.update({f"layers.{i}.attention.{name}": value for name, value in layer.named_parameters()})
        return named

    def forward(self, ids):
        def norm(x, name):
            return torch.nn.functional.rms_norm(x, x.shape[-1:], self.weights[name + ".weight"], 1e-5)

        x = self.weights["embedding.weight"][ids]
        for i, layer in enumerate(self.layers):
            x = x + layer(norm(x, f"layers.{i}.attention.norm"))
            hidden = norm(x, f"layers.{i}.mlp.norm") @ self.weights[f"layers.{i}.mlp.up.weight"].T
            hidden = torch.nn.functional.silu(hidden)
            x = x + hidden @ self.weights[f"layers.{i}.mlp.down.weight"].T
        return norm(x, "norm") @ self.weights["head.weight"].T


@pytest.mark.device("cpu")
@pytest.mark.parametrize("options", [{}, {"shared_kv": True, "qk_norm": True, "qkv_bias": True, "rope_dim": 8, "rope_scaling": "linear",
                                          "rope_factor": 4.0}])
def test_checkpoint_gives_the_logits_of_nsa_train(checkpoint, tmp_path, options):
    if options:
        config = CONFIG.replace(", phi: linear, phi_pos: true", ", shared_kv: true").replace(
            "init_std: 0.3", "init_std: 0.3, qk_norm: true, qkv_bias: true, rope_dim: 8, rope_scaling: linear, rope_factor: 4")
        checkpoint = train_on_ids(tmp_path, config)
    model = nsa.Model(checkpoint)
    decoder = Decoder(model, **options)
    for i, layer in enumerate(decoder.layers):
        nt.load_checkpoint(layer, checkpoint, layer=i)
    ids = torch.randint(0, 16, (2, 48))
    with torch.no_grad():
        logits = decoder(ids)
    torch.testing.assert_close(logits, torch.from_numpy(model.logits(ids.numpy())), rtol=0, atol=2e-4)


@pytest.mark.device("cpu")
def test_saved_parameters_give_the_same_loss_in_nsa_train(checkpoint, tmp_path):
    decoder = Decoder(nsa.Model(checkpoint))
    ids = torch.randint(0, 16, (2, 49))

    def loss():
        return torch.nn.functional.cross_entropy(decoder(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    before = loss()
    named = decoder.named()
    gradients = torch.autograd.grad(before, named.values(), allow_unused=True)
    with torch.no_grad():
        for value, gradient in zip(named.values(), gradients):
            if gradient is not None:
                value -= 0.5 * gradient
    nt.save_parameters(named, tmp_path / "weights.safetensors")
    subprocess.run([BIN / "nsa-train", checkpoint.parent.parent / "small.yaml", "--data",
                    checkpoint.parent.parent / "data", "--out-dir", tmp_path, "--run-name", "next", "--init-from",
                    tmp_path / "weights.safetensors"], check=True, capture_output=True)
    with torch.no_grad():
        after = loss()
    assert after < before - 0.01
    assert abs(nsa.Model(tmp_path / "next").loss(ids) - after.item()) < 1e-5


def test_save_parameters_of_no_use_is_an_error(tmp_path):
    path = tmp_path / "weights.safetensors"
    for value, message in ((torch.tensor([1, 2]), "'a' is torch.int64"), (torch.tensor([math.nan]), "not finite")):
        with pytest.raises(InputError, match=message):
            nt.save_parameters({"a": value}, path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.device("cpu")
@pytest.mark.parametrize("options,layer,message", [
    ({"phi": "linear", "positions": True}, 2, "has no parameters layers.2.attention.*"),
    ({}, 0, "the module has no parameter for layers.0.attention.{compressed.key_compression.positions"),
    ({"phi": "mlp", "positions": True}, 0, "has no layers.0.attention.{compressed.key_compression.output_weight"),
    ({"phi": "linear", "positions": True, "value_dim": 8}, 0, "has shape (32, 32), expected (16, 32)"),
    ({"phi": "linear", "positions": True, "rope_base": 500}, 0, "is 10000.0, the module has 500.0"),
    ({"phi": "linear", "positions": True, "gate": "softmax"}, 0, "is sigmoid, the module has softmax"),
])
def test_checkpoint_of_another_layer_is_an_error(checkpoint, options, layer, message):
    with pytest.raises(InputError, match=re.escape(message)):
        nt.load_checkpoint(small_layer(**options), checkpoint, layer=layer)


# Documentation


def test_page_examples_run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "torch.md").read_text(), re.M | re.S)
    assert blocks
    scope = {"math": math}
    for block in blocks:
        exec(compile(block, "docs/torch.md", "exec"), scope)
