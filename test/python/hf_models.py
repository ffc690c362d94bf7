"""Small models for the tests of nsa-export and nsa-import."""

import json

import numpy as np
import pytest

from nsa import _safetensors
from nsa.hf import export
from programs import run_programs

pytest.importorskip("safetensors")

CONFIG = """model: {dim: 32, n_layers: 1, n_heads: 2, n_kv_groups: 1, d_k: 16, d_v: 16}
nsa: {l: 4, d: 4, l_sel: 8, n_sel: 2, n_local: 1, w: 16}
train: {steps: 2, seq_len: 64, batch_size: 2, micro_batch: 2, warmup_steps: 1, final_eval_batches: 1, sample_bytes: 0}
"""


def train(folder, settings=()):
    """Two steps of a small model; the run directory."""
    (folder / "c.yaml").write_text(CONFIG)
    (folder / "text").mkdir()
    for number in range(20):
        (folder / "text" / f"{number}.txt").write_text(f"{number} and again {number}. " * 40)
    changes = [word for setting in settings for word in ("--set", setting)]
    run_programs(folder, ["nsa-data", "pack", "text", "-o", "data", "--val-fraction", "0.4"],
                 ["nsa-model", "c.yaml", *changes, "-o", "m.mlir"], ["nsa-compile", "m.mlir", "-o", "m.nsax"],
                 ["nsa-train", "m.nsax", "--config", "c.yaml", *changes, "--data", "data", "--out-dir", ".",
                  "--run-name", "run"])
    return folder / "run"


def need_transformers():
    torch = pytest.importorskip("torch")
    return torch, pytest.importorskip("transformers")


def load(folder):
    _, transformers = need_transformers()
    return transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)


def train_and_load(folder, settings=()):
    """A trained model in transformers, with weights that are large enough for selection to matter."""
    torch, _ = need_transformers()
    export(train(folder, settings), folder / "hf")
    model = load(folder / "hf")
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.add_(0.15 * torch.randn_like(parameter))
    return model


LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 64,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64,
    "rope_theta": 5000.0
}


def write_llama(folder, **changes):
    """A random model as transformers would save it."""
    config = {**LLAMA, **changes}
    folder.mkdir()
    dim, heads, groups, hidden = (config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads",
                                                          "intermediate_size"))
    width = config.get("head_dim", dim // heads)
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], dim), "model.norm.weight": (dim,),
              "lm_head.weight": (config["vocab_size"], dim)}
    for layer in range(config["num_hidden_layers"]):
        for name, shape in (("input_layernorm", (dim, )), ("self_attn.q_proj", (heads * width, dim)),
                            ("self_attn.k_proj", (groups * width, dim)), ("self_attn.v_proj", (groups * width, dim)),
                            ("self_attn.o_proj", (dim, heads * width)), ("post_attention_layernorm", (dim, )),
                            ("mlp.gate_proj", (hidden, dim)), ("mlp.up_proj", (hidden, dim)),
                            ("mlp.down_proj", (dim, hidden))):
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    random = np.random.default_rng(3)
    arrays = {name: random.standard_normal(shape, np.float32) * np.float32(0.2) for name, shape in shapes.items()}
    (folder / "config.json").write_text(json.dumps(config))
    _safetensors.write(folder / "model.safetensors", shapes, arrays.__getitem__)
    return arrays
