"""nsa-export and nsa-import: bit for bit there and back, weights of Llama; with transformers, the same logits."""

import json
import pathlib
import re

import numpy as np
import pytest

import nsa
from nsa import _safetensors
from nsa.hf import __main__ as tool
from nsa.hf import export, import_model
from hf_models import load, need_transformers, train, train_and_load, write_llama
from programs import run_programs

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run, and hf, what nsa-export makes of it."""
    folder = tmp_path_factory.mktemp("hf")
    train(folder)
    export(folder / "run", folder / "hf")
    return folder


def weights_of(path):
    [file] = pathlib.Path(path).glob("checkpoints/step-*/model.safetensors")
    return file.read_bytes()


def test_export_and_import_are_bit_for_bit(folder, tmp_path):
    checkpoint = import_model(folder / "hf", tmp_path / "again")
    original, again = nsa.Model(folder / "run", artifact=folder / "m.nsax"), nsa.Model(checkpoint,
                                                                                       artifact=folder / "m.nsax")
    assert list(again.parameters) == list(original.parameters)
    for name, value in original.parameters.items():
        assert (again.parameters[name].view(np.uint32) == value.view(np.uint32)).all(), name
    assert (again.step, again.config) == (original.step, original.config) == (2, original.config)
    ids = np.arange(40) % 7
    assert (again.logits(ids) == original.logits(ids)).all()
    assert not pathlib.Path(checkpoint, "tokenizer.json").exists()
    # Another run begins with it.
    run_programs(folder, ["nsa-train", "m.nsax", "--config", "c.yaml", "--data", "data", "--out-dir", tmp_path, "--run-name",
                          "next", "--init-from", tmp_path / "again"])


def test_export_describes_model_and_tokens(folder):
    config = json.loads((folder / "hf/config.json").read_text())
    assert config["model"]["dim"] == 32 and config["nsa"]["w"] == 16 and config["layer_kinds"] == [["nsa", 16, True]]
    assert config["checkpoint"]["step"] == 2 and config["eos_token_id"] == 0 and config["max_position_embeddings"] == 64
    vocabulary = json.loads((folder / "hf/tokenizer.json").read_text())["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(256)) and vocabulary["a"] == 97 and vocabulary["\u0120"] == 32
    table = nsa._runtime.token_bytes((folder / "hf/tokenizer.json").read_bytes(), "tokenizer.json")
    assert table == [b"", *(bytes([byte]) for byte in range(1, 256))]
    assert (folder / "hf/modeling_nsa.py").read_text().startswith('"""A model of nsa-train for transformers')


def test_layer_kinds_of_a_list():
    from nsa.hf._parameters import layer_kinds
    config = {
        "model": {
            "layers": " dense / nope, nsa * 2, window : 7 /nope*1, window",
            "n_layers": 5,
            "attention": "nsa"
        },
        "nsa": {
            "w": 3
        }
    }
    assert layer_kinds(config) == [["dense", 3, False], ["nsa", 3, True], ["nsa", 3, True], ["window", 7, False],
                                   ["window", 3, True]]


def test_llama_is_a_dense_model_of_its_weights(tmp_path):
    arrays = write_llama(tmp_path / "llama")
    model = nsa.Model(import_model(tmp_path / "llama", tmp_path / "run"))
    assert (model.vocab, model.seq_len, model.step) == (64, 64, 0)
    assert "rope_base: 5000" in model.config and 'attention: "dense"' in model.config
    assert (model.parameters["layers.1.mlp.gate.weight"] == arrays["model.layers.1.mlp.gate_proj.weight"]).all()
    ids = np.random.default_rng(0).integers(0, 64, 50)
    # Weights whose pairs are channels 2 i and 2 i + 1 are the same model.
    for layer in range(2):
        for name in "qk":
            weight = arrays[f"model.layers.{layer}.self_attn.{name}_proj.weight"]
            paired = weight.reshape(-1, 2, 4, 32).swapaxes(1, 2).reshape(weight.shape)
            assert not (paired == weight).all()
            arrays[f"model.layers.{layer}.self_attn.{name}_proj.weight"] = np.ascontiguousarray(paired)
    shapes = {name: array.shape for name, array in arrays.items()}
    _safetensors.write(tmp_path / "llama/model.safetensors", shapes, arrays.__getitem__)
    again = nsa.Model(import_model(tmp_path / "llama", tmp_path / "pairs", rotary="pairs"))
    assert (again.logits(ids) == model.logits(ids)).all()


def test_llama_as_a_sparse_model_begins_as_the_dense_one(tmp_path):
    write_llama(tmp_path / "llama")
    dense = nsa.Model(import_model(tmp_path / "llama", tmp_path / "dense"))
    settings = ["nsa.w=64", "nsa.l=8", "nsa.d=4", "nsa.l_sel=16", "nsa.n_sel=4"]
    sparse = nsa.Model(import_model(tmp_path / "llama", tmp_path / "sparse", attention="nsa", settings=settings))
    ids = np.random.default_rng(0).integers(0, 64, 64)
    expected = dense.logits(ids)
    assert np.abs(sparse.logits(ids) - expected).max() < 0.5 * np.abs(expected).max()
    # Without the compressed branch, a window and blocks of all tokens are dense attention.
    for layer in range(2):
        name = f"layers.{layer}.attention.gate."
        sparse.parameters[name + "weight"] = 0 * sparse.parameters[name + "weight"]
        sparse.parameters[name + "bias"] = np.tile(np.array([-100, 0, 0], np.float32), 4)
    np.testing.assert_allclose(sparse.logits(ids), expected, atol=1e-4)


def test_reader_takes_halves_and_shards(tmp_path):
    values = np.array([1.5, -2.0, 0.0078125], np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    header = json.dumps({"a": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]},
                         "b": {"dtype": "F16", "shape": [3, 1], "data_offsets": [6, 12]}}).encode()
    (tmp_path / "model-1.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bits.tobytes() +
                                                   values.astype(np.float16).tobytes())
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model-1.safetensors",
                                                                                      "b": "model-1.safetensors"}}))
    files = _safetensors.find_files(tmp_path)
    assert (files["a"].read("a") == values).all() and (files["b"].read("b") == values[:, None]).all()


def test_wrong_files_are_errors(folder, tmp_path, capsys):
    def fails(action, message):
        assert action() == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1

    fails(lambda: tool.main_export(["nowhere", "--hf", str(tmp_path / "x")]), "nsa-export: error: ")
    fails(lambda: tool.main_export([str(folder / "run"), "--hf", str(folder / "hf")]), "is not empty (--overwrite")
    assert tool.main_export([str(folder / "run"), "--hf", str(folder / "hf"), "--overwrite"]) == 0
    assert re.match(r"wrote .*: [\d,]+ parameters\n", capsys.readouterr().out)
    fails(lambda: tool.main_import(["nowhere", "-o", str(tmp_path / "x")]),
          "cannot read 'nowhere/config.json': No such file")
    fails(lambda: tool.main_import([str(folder / "hf"), "-o", str(folder / "run")]),
          "exists already: a new folder is needed")
    write_llama(tmp_path / "llama")
    fails(lambda: tool.main_import([str(tmp_path / "llama"), "-o", str(tmp_path / "x"), "--set", "nsa.ww=3"]), "nsa.ww")
    fails(lambda: tool.main_import([str(tmp_path / "llama"), "-o", str(tmp_path / "x"), "--set", "nsa.phi=mlp"]),
          "nsa.phi follows from the weights and cannot be set")
    (tmp_path / "llama/model.safetensors").write_bytes(b"\xff" * 30)
    fails(lambda: tool.main_import([str(tmp_path / "llama"), "-o", str(tmp_path / "x")]), "is no safetensors file")


# With transformers


@pytest.mark.parametrize("settings", [
    [],
    ["nsa.shared_kv=true", "model.qk_norm=true", "model.mlp=swiglu", "nsa.gate=softmax", "model.tied_embeddings=true"],
    ["model.n_layers=3", "model.layers=dense, window:9, nsa", "nsa.phi=mlp", "nsa.phi_pos=true", "model.mlp=gelu",
     "model.rope_dim=8", "model.logit_softcap=20"],
    ["nsa.shared_kv=true", "nsa.phi=linear", "model.mlp=relu2", "model.rope_scaling=yarn", "model.rope_factor=4",
     "model.rope_length=32"],
])
def test_exported_model_has_the_logits_of_the_checkpoint(tmp_path, settings):
    torch, transformers = need_transformers()
    run = train(tmp_path, settings)
    export(run, tmp_path / "hf")
    model = load(tmp_path / "hf")
    original = nsa.Model(run, artifact=tmp_path / "m.nsax")
    ids = np.random.default_rng(0).integers(1, 256, (2, 60))
    with torch.no_grad():
        found = model(torch.from_numpy(ids), labels=torch.from_numpy(ids))
    np.testing.assert_allclose(found.logits.numpy(), original.logits(ids), atol=1e-4)
    assert abs(float(found.loss) - original.loss(ids)) < 1e-3
    model.save_pretrained(tmp_path / "saved")
    again = nsa.Model(import_model(tmp_path / "saved", tmp_path / "again"), artifact=tmp_path / "m.nsax")
    for name, value in original.parameters.items():
        assert (again.parameters[name] == value).all(), name


def test_exported_model_generates_and_leaves_padding_out(folder):
    torch, transformers = need_transformers()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "hf")
    model = load(folder / "hf")
    text = "3 and again \u00e9"
    assert tokenizer(text)["input_ids"] == list(text.encode()) and tokenizer.decode(list(text.encode())) == text
    for side in ("left", "right"):
        tokenizer.padding_side = side
        batch = tokenizer([text, text[:5]], return_tensors="pt", padding=True)
        with torch.no_grad():
            together = model(**batch).logits
            alone = [model(**tokenizer(each, return_tensors="pt")).logits[0] for each in (text, text[:5])]
        for row, mask, expected in zip(together, batch["attention_mask"], alone):
            torch.testing.assert_close(row[mask.bool()], expected, atol=1e-5, rtol=0)
    tokens = model.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=3, do_sample=False)[0]
    with torch.no_grad():
        assert tokens[-1] == model(tokens[None, :-1]).logits[0, -1].argmax() and len(tokens) == len(text.encode()) + 3


@pytest.mark.parametrize("settings", [
    ["nsa.shared_kv=true", "nsa.phi=linear", "model.rope_scaling=yarn", "model.rope_factor=4", "model.rope_length=32",
     "nsa.l=8", "nsa.n_sel=5", "nsa.n_local=2"],
    ["model.n_layers=3", "model.layers=dense, window:9, nsa", "nsa.phi=mlp", "nsa.phi_pos=true", "model.qk_norm=true",
     "nsa.gate=softmax"],
])
def test_cache_every_position_is_row_of_whole_sequence(tmp_path, settings):
    torch, _ = need_transformers()
    model = train_and_load(tmp_path, settings)
    ids = torch.randint(1, 256, (2, 100))
    options = {"max_new_tokens": 30, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    with torch.no_grad():
        whole = model(ids).logits
        for first in (1, 3, 37):
            step = model(ids[:, :first], use_cache=True)
            for t in range(first, 100):
                step = model(ids[:, t:t + 1], past_key_values=step.past_key_values)
                torch.testing.assert_close(step.logits[:, 0], whole[:, t], atol=1e-4, rtol=0, msg=str((first, t)))
        # Several tokens at once, after some were taken back.
        cache = step.past_key_values
        cache.crop(60)
        torch.testing.assert_close(model(ids[:, 60:70], past_key_values=cache).logits, whole[:, 60:70], atol=1e-4, rtol=0)
        expected = model.generate(ids[:, :30], use_cache=False, **options)
        assert (model.generate(ids[:, :30], **options) == expected).all()
        expected = model.generate(ids[:, :30], use_cache=False, num_beams=3, **options)
        assert (model.generate(ids[:, :30], num_beams=3, **options) == expected).all()
        # Padding to the left: sequences of two lengths.
        mask = torch.ones(2, 30, dtype=torch.long)
        mask[1, :11] = 0
        together = model.generate(ids[:, :30], attention_mask=mask, **options)
        assert (together[1, 30:] == model.generate(ids[1:, 11:30], **options)[0, 19:]).all()


def test_cache_that_does_not_fit_is_an_error(folder):
    torch, transformers = need_transformers()
    model = load(folder / "hf")
    ids = torch.ones(2, 5, dtype=torch.long)
    cache = model(ids, use_cache=True).past_key_values
    with pytest.raises(ValueError, match="past_key_values is a DynamicCache, expected an NSACache"):
        model(ids, past_key_values=transformers.DynamicCache())
    with pytest.raises(ValueError, match="1 sequences, but the cache has 2"):
        model(ids[:1], past_key_values=cache)
    with pytest.raises(ValueError, match="leaves out a token after those of the cache"):
        model(ids, attention_mask=torch.tensor([[1] * 10, [1] * 9 + [0]]), past_key_values=cache)
    with pytest.raises(ValueError, match="cannot remove 6 tokens of a sequence of 5"):
        cache.crop(-6)
    with pytest.raises(ValueError, match=r"attention_mask has shape \(2, 3\), expected one number for each of 5 tokens in 2 rows"):
        model(ids, attention_mask=torch.ones(2, 3, dtype=torch.long))
