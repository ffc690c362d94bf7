"""nsa-import refuses what it cannot read: one error that names file, key and value, and leaves no file."""

import json
import os

import numpy as np
import pytest

import nsa
from hf_models import LLAMA, write_llama
from nsa import _safetensors
from nsa._runtime import model_config
from nsa.hf import _keys, export, import_model
from nsa.hf._families import read_config
from nsa.hf._parameters import parameter_shapes
from programs import run_programs

WRONG = [None, True, "x", "linear", "10000.0", -1, 0, 1, 1.5, 3, float("inf"), float("nan"), 10**400, [], [1], {}, {"a": 1}]

# What of WRONG is right.
RIGHT = {
    "model_type": [],
    "hidden_size": [1, 3],
    "num_hidden_layers": [1, 3],
    "num_attention_heads": [1, 3],
    "num_key_value_heads": [None, 1],
    "head_dim": [None],
    "intermediate_size": [1, 3],
    "vocab_size": [3],
    "hidden_act": [],
    "hidden_activation": [],
    "max_position_embeddings": [1, 3],
    "initializer_range": [1, 1.5, 3],
    "rms_norm_eps": [1],
    "tie_word_embeddings": [True],
    "attention_bias": [None],
    "mlp_bias": [None],
    "dtype": [None],
    "torch_dtype": [None],
    "rope_theta": [1, 1.5, 3],
    "partial_rotary_factor": [1],
    "rope_scaling": [None, {}, {"a": 1}],
    "rope_parameters": [None, {}, {"a": 1}],
    "rope_scaling.rope_type": ["linear"],
    "rope_scaling.type": ["linear"],
    "rope_scaling.factor": [1, 1.5, 3],
    "rope_scaling.rope_theta": [1, 1.5, 3],
    "rope_scaling.partial_rotary_factor": [1],
}
WINDOW = [None, 1, 3]
USED = {"use_sliding_window": [True], "sliding_window": WINDOW, "max_window_layers": [None, 0, 1, 3], "layer_types": [None]}
# Of other families, what llama has not.
FAMILIES = {
    "llama": {},
    "mistral": {"sliding_window": WINDOW},
    "qwen2": USED,
    "qwen3": USED,
    "smollm3": {"use_sliding_window": [True], "sliding_window": WINDOW, "layer_types": [None], "no_rope_layers": [None],
                "no_rope_layer_interval": [1, 3], "max_window_layers": [None, 0, 1, 3]},
    "olmo2": {},
    "phi3": {"sliding_window": WINDOW, "original_max_position_embeddings": [3]},
    "gemma2": {"sliding_window": WINDOW, "query_pre_attn_scalar": [1, 1.5, 3], "attn_logit_softcapping": [None, 1, 1.5, 3],
               "final_logit_softcapping": [None, 1, 1.5, 3], "use_bidirectional_attention": [None], "layer_types": [None]},
    "gemma3_text": {"sliding_window": WINDOW, "sliding_window_pattern": [1, 3], "query_pre_attn_scalar": [1, 1.5, 3],
                    "attn_logit_softcapping": [None], "final_logit_softcapping": [None, 1, 1.5, 3],
                    "use_bidirectional_attention": [None], "layer_types": [None],
                    "rope_local_base_freq": [1, 1.5, 3], "rope_parameters.full_attention": [None, {}, {"a": 1}],
                    "rope_parameters.sliding_attention": [None, {}, {"a": 1}]},
}


def put(config, key, value):
    """The configuration with this value; keys of the rotary embedding stand in its object."""
    outer, _, inner = key.rpartition(".")
    if inner in ("full_attention", "sliding_attention"):
        return {**config, outer: {inner: value}}
    if outer:
        return {**config, outer: {"rope_type": "linear", "factor": 2.0, inner: value}}
    return {**config, key: value}


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys") / "llama"
    write_llama(folder)
    return folder


def fails(folder, config, message, **options):
    """The import is this error in one line; there is no run directory, nor anything else."""
    before = sorted(os.listdir(folder.parent))
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(nsa.InputError) as error:
        import_model(folder, folder.parent / "run", **options)
    assert message in str(error.value) and "\n" not in str(error.value), error.value
    assert sorted(os.listdir(folder.parent)) == before


def shown(value):
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


@pytest.mark.parametrize("kind,right", [("llama", RIGHT), *FAMILIES.items()])
def test_wrong_values_of_each_key_are_named(llama, kind, right):
    base = {key: value for key, value in LLAMA.items() if key != "rope_theta"} | {"model_type": kind, "head_dim": 8}
    for key, allowed in right.items():
        for value in WRONG:
            if any(type(value) is type(each) and value == each for each in allowed):
                continue
            fails(llama, put(base, key, value), f"{key} in '{llama / 'config.json'}' is {shown(value)}, expected ")


@pytest.mark.parametrize("kind", FAMILIES)
def test_each_key_that_is_read_is_in_the_table(monkeypatch, kind):
    asked = set()
    get = _keys.Keys.get

    def record(self, key, *arguments):
        asked.add(self._inside + key)
        return get(self, key, *arguments)

    monkeypatch.setattr(_keys.Keys, "get", record)
    config = {key: value for key, value in LLAMA.items() if key != "hidden_act"}
    read_config({**config, "model_type": kind}, "config.json", "dense", None)
    assert {key for key in asked if not key.startswith("rope_parameters.")} <= {*RIGHT, *FAMILIES[kind]}


@pytest.mark.parametrize("changes,message", [
    ({"model_type": "gpt2"}, 'model_type in \'{path}\' is "gpt2", expected nsa, llama, mistral, qwen2'),
    ({"attention_bias": True}, "attention_bias in '{path}' is true, expected false or null"),
    ({"hidden_act": "gelu"}, 'hidden_act in \'{path}\' is "gelu", expected "silu"'),
    ({"hidden_size": None}, "hidden_size in '{path}' is null, expected a whole number from 1 to 65536"),
    ({"model_type": "mistral", "sliding_window": 0}, "sliding_window in '{path}' is 0, expected "),
    ({"num_key_value_heads": 3}, "num_key_value_heads in '{path}' is 3, expected a divisor of num_attention_heads, 4"),
    ({"head_dim": 7}, "head_dim in '{path}' is 7, expected heads of an even width up to 512, not 7"),
    ({"num_attention_heads": 3, "num_key_value_heads": 3}, "num_attention_heads in '{path}' is 3, expected a divisor of hidden_size, 32"),
    ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, 'rope_scaling.rope_type in \'{path}\' is "dynamic", expected "default" or "linear" or "llama3"'),
    ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor in '{path}' is missing, expected a number from 1"),
    ({"rope_scaling": {"type": "linear", "factor": 2.0, "beta_fast": 32}}, "rope_scaling.beta_fast in '{path}' is 32, expected no such key"),
    ({"rope_scaling": {"rope_type": "linear", "type": "default", "factor": 2.0}}, "rope_scaling.type in '{path}' is \"default\", expected \"linear\""),
    ({"rope_scaling": {}, "rope_parameters": {}}, "rope_scaling in '{path}' is {{}}, expected no such key beside rope_parameters"),
    ({"rope_parameters": {"rope_theta": 1e4}}, "rope_theta in '{path}' is 5000.0, expected no such key beside"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 2}}, "rope_scaling.low_freq_factor in '{path}' is 2, expected 1 or 1.0"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4.0}}, "rope_scaling.original_max_position_embeddings in '{path}' is missing"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor in '{path}' is 0.5, expected 1"),
    ({"model_type": "qwen2", "layer_types": ["full_attention", "sliding"]}, "layer_types in '{path}' is [\"full_attention\", \"sliding\"], expected a list of 2"),
    ({"model_type": "qwen2", "layer_types": ["full_attention", "sliding_attention"]}, "layer_types in '{path}' is [\"full_attention\", \"sliding_attention\"], expected no sliding_attention"),
    ({"model_type": "smollm3", "no_rope_layers": [1, 2]}, "no_rope_layers in '{path}' is [1, 2], expected a list of 2 values, each 0 or 1"),
    ({"quantization_config": {"bits": 4}}, 'quantization_config in \'{path}\' is {{"bits": 4}}, expected no such key'),
    ({"attention_multiplier": 2.0}, "attention_multiplier in '{path}' is 2.0, expected no such key"),
])
def test_configuration_that_is_not_supported_is_named(llama, changes, message):
    fails(llama, {**LLAMA, **changes}, message.format(path=llama / "config.json"))


@pytest.mark.parametrize("options,message", [
    ({"attention": "window"}, "attention is 'window', expected 'dense' or 'nsa'"),
    ({"rotary": "pair"}, "rotary is 'pair', expected 'halves' or 'pairs'"),
    ({"seed": -1}, "seed is -1, expected a whole number"),
    ({"seq_len": 0}, "train.seq_len"),
    ({"seq_len": "9"}, "seq_len is '9', expected a whole number"),
    ({"settings": ["nsa.w"]}, "nsa.w"),
])
def test_options_that_are_wrong_are_named(llama, options, message):
    fails(llama, LLAMA, message, **options)


def change_weights(folder, edit):
    """Writes the weights of a folder again, after `edit` of {name: array}."""
    file = _safetensors.File(folder / "model.safetensors")
    arrays = {name: file.read(name) for name in file.shapes}
    edit(arrays)
    _safetensors.write(folder / "model.safetensors", {name: array.shape for name, array in arrays.items()},
                       arrays.__getitem__)


def drop_layer(arrays, layer):
    for name in [name for name in arrays if f".{layer}." in name]:
        arrays.pop(name)


@pytest.mark.parametrize("edit,changes,message", [
    (lambda a: a.pop("lm_head.weight"), {}, "lacks the parameter 'lm_head.weight', of shape (64, 32), which config.json asks for"),
    (lambda a: None, {"vocab_size": 65}, "'model.embed_tokens.weight' of shape (64, 32), but config.json asks for (65, 32)"),
    (lambda a: None, {"num_hidden_layers": 3}, "lacks the parameter 'model.layers.2."),
    (lambda a: None, {"num_hidden_layers": 1}, "has the parameter 'model.layers.1."),
    (lambda a: drop_layer(a, 1), {}, "lacks the parameter 'model.layers.1."),
    (lambda a: a.update(extra=np.zeros(2, np.float32)), {}, "has the parameter 'extra', which the model of config.json has not"),
    (lambda a: a.update({"model.norm.weight": np.full(32, np.nan, np.float32)}), {}, "norm.weight"),
    (lambda a: None, {"tie_word_embeddings": True}, "has another lm_head.weight than model.embed_tokens.weight"),
])
def test_weights_that_are_not_those_of_the_configuration_are_errors(tmp_path, edit, changes, message):
    write_llama(tmp_path / "llama")
    change_weights(tmp_path / "llama", edit)
    fails(tmp_path / "llama", {**LLAMA, **changes}, message)


def test_tied_head_that_is_the_table_is_imported(tmp_path):
    write_llama(tmp_path / "llama", tie_word_embeddings=True)
    change_weights(tmp_path / "llama", lambda a: a.update({"lm_head.weight": a["model.embed_tokens.weight"]}))
    assert "head.weight" not in nsa.Model(import_model(tmp_path / "llama", tmp_path / "run")).parameters


@pytest.mark.parametrize("text,message", [
    ("[" * 100000, "cannot read '{path}'"),
    ("{\"model_type\": ", "cannot read '{path}'"),
    ("\"llama\"", "'{path}' is a str, expected an object"),
    ("{\"model_type\": \"nsa\"}", "'{path}' has no checkpoint with config and step"),
    ("{\"model_type\": \"nsa\", \"checkpoint\": {\"config\": 3, \"step\": 1}}", "checkpoint.config in '{path}' is 3, expected a string"),
    ("{\"model_type\": \"nsa\", \"checkpoint\": {\"config\": \"\", \"step\": true}}", "checkpoint.step in '{path}' is true"),
    ("{\"model_type\": \"nsa\", \"checkpoint\": {\"config\": \"model: {dims: 3}\", \"step\": 1}}", "dims"),
])
def test_files_that_are_no_configuration_are_errors(tmp_path, text, message):
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama/config.json").write_text(text)
    with pytest.raises(nsa.InputError) as error:
        import_model(tmp_path / "llama", tmp_path / "run")
    assert message.format(path=tmp_path / "llama/config.json") in str(error.value)
    assert sorted(os.listdir(tmp_path)) == ["llama"]


def test_tokenizer_that_is_none_is_an_error(llama):
    for text in ("", "[]", "{}", "{\"model\": 3}", "[" * 100000):
        (llama / "tokenizer.json").write_text(text)
        fails(llama, LLAMA, "tokenizer.json")
    (llama / "tokenizer.json").unlink()
    (llama / "tokenizer.json").symlink_to("nowhere")
    fails(llama, LLAMA, "cannot read")
    (llama / "tokenizer.json").unlink()


# Folders that nsa-export wrote


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    write_llama(folder / "llama")
    import_model(folder / "llama", folder / "run", attention="nsa", settings=["nsa.w=32"])
    export(folder / "run", folder / "hf")
    return folder


@pytest.mark.parametrize("edit,message", [
    (lambda c: c["model"].update(dim=64), "model.dim in '{path}' is 64, but 32 in checkpoint.config"),
    (lambda c: c["nsa"].update(w=33), "nsa.w in '{path}' is 33, but 32 in checkpoint.config"),
    (lambda c: c["model"].update(dims=1), "model.dims in '{path}' is 1, but null in checkpoint.config"),
])
def test_exported_configuration_that_contradicts_is_an_error(exported, tmp_path, edit, message):
    config = json.loads((exported / "hf/config.json").read_text())
    edit(config)
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/model.safetensors").write_bytes((exported / "hf/model.safetensors").read_bytes())
    fails(tmp_path / "hf", config, message.format(path=tmp_path / "hf/config.json"))


def test_exported_weights_without_one_are_an_error(exported, tmp_path):
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/model.safetensors").write_bytes((exported / "hf/model.safetensors").read_bytes())
    change_weights(tmp_path / "hf", lambda arrays: arrays.pop("layers.1.attention.gate.bias"))
    fails(tmp_path / "hf", json.loads((exported / "hf/config.json").read_text()),
          "lacks the parameter 'layers.1.attention.gate.bias', of shape (12,)")


def test_overwrite_replaces_links_and_follows_none(exported, tmp_path):
    hub, folder = tmp_path / "hub", tmp_path / "hf"
    hub.mkdir()
    folder.mkdir()
    names = ["config.json", "model.safetensors", "modeling_nsa.py", "tokenizer.json", "generation_config.json",
             "model-00001-of-00002.safetensors"]
    for name in names:
        (hub / name).write_text("kept")
        (folder / name).symlink_to(hub / name)
    (folder / "notes.txt").write_text("mine")
    export(exported / "run", folder, overwrite=True)
    assert sorted(os.listdir(folder)) == ["README.md", "config.json", "model.safetensors", "modeling_nsa.py",
                                          "notes.txt"]
    assert not any((folder / name).is_symlink() for name in os.listdir(folder))
    assert all((hub / name).read_text() == "kept" for name in names)


def test_folders_that_export_does_not_write_to(exported, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/config.yaml").write_text("mine")
    (tmp_path / "odd/model.safetensors").mkdir(parents=True)
    (tmp_path / "odd/config.json").write_text("mine")
    for name, message in (("link", "is a symbolic link"), ("link/", "is a symbolic link"), ("other", "has no config.json"),
                          ("odd", "is a folder, expected a file of a model")):
        with pytest.raises(nsa.InputError, match=message):
            export(exported / "run", f"{tmp_path}/{name}", overwrite=True)
    assert not os.listdir(target) and os.listdir(tmp_path / "other") == ["config.yaml"]
    assert (tmp_path / "odd/config.json").read_text() == "mine"


def test_export_that_fails_leaves_what_was_there(exported, tmp_path, monkeypatch):
    folder = tmp_path / "hf"
    export(exported / "run", folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def fail(path, *_):
        path.write_text("half") if hasattr(path, "write_text") else open(path, "w").close()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_safetensors, "write", fail)
    for place in (folder, tmp_path / "new"):
        with pytest.raises(nsa.InputError, match="No space left on device"):
            export(exported / "run", place, overwrite=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert os.listdir(tmp_path) == ["hf"]


@pytest.mark.parametrize("settings", [
    [], ["nsa.shared_kv=true", "nsa.phi=linear", "model.mlp=swiglu"], ["nsa.phi=mlp", "nsa.phi_pos=true", "model.qk_norm=true"],
    ["model.n_layers=3", "model.layers=dense, window:9, nsa", "model.tied_embeddings=true", "model.mlp_dim=24"],
    ["model.n_layers=2", "model.layers=nsa, window/nope", "model.qkv_bias=true", "model.norms=both", "model.mlp=geglu",
     "model.qk_norm=true", "model.qk_norm_joint=true"], ["model.norms=after", "nsa.shared_kv=true", "model.qkv_bias=true"],
])
def test_parameter_shapes_are_those_of_the_compiled_model(tmp_path, settings):
    text = json.dumps({"model": {"dim": 32, "n_layers": 1, "n_heads": 2, "n_kv_groups": 1, "d_k": 16, "d_v": 8},
                       "nsa": {"l": 4, "d": 4, "l_sel": 8}, "train": {"seq_len": 16, "batch_size": 1, "micro_batch": 1}})
    (tmp_path / "c.yaml").write_text(text)
    changes = [word for setting in settings for word in ("--set", setting)]
    run_programs(tmp_path, ["nsa-model", "c.yaml", *changes, "-o", "m.mlir"], ["nsa-compile", "m.mlir", "-o", "m.nsax"])
    tensors = nsa.load(tmp_path / "m.nsax").tensors
    found = {name: tuple(shape) for name, (_, shape, role) in tensors.items() if role == "parameter"}
    assert parameter_shapes(json.loads(model_config(text, "c.yaml", settings))) == found
