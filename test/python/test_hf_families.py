"""Dense models of transformers: random ones as transformers saves them, imported, exported, and as they were."""

import json

import numpy as np
import pytest

import nsa
from hf_models import load, need_transformers, train, write_llama
from nsa import _safetensors
from nsa.hf import export, import_model
from programs import run_programs

SHAPE = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
         "vocab_size": 64, "max_position_embeddings": 128, "initializer_range": 0.2, "pad_token_id": 0, "bos_token_id": 1,
         "eos_token_id": 2}


def rope(kind, **settings):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **settings}}


LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
LONG = rope("longrope", short_factor=[1.0, 1.5, 1.5, 2.0], long_factor=[2.0, 4.0, 5.0, 6.0])
GEMMA = {"full_attention": rope("linear", factor=8.0)["rope_parameters"], "sliding_attention": rope("default")["rope_parameters"]}
FAMILIES = [
    ("Llama", {}),
    ("Llama", {"tie_word_embeddings": True, "head_dim": 16, **LLAMA3}),
    ("Llama", rope("linear", factor=2.0)),
    ("Mistral", {"sliding_window": None}),
    ("Mistral", {"sliding_window": 9}),
    ("Qwen2", {"tie_word_embeddings": True}),
    ("Qwen2", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 2}),
    ("Qwen3", {"head_dim": 16}),
    ("SmolLM3", {}),
    ("SmolLM3", {"use_sliding_window": True, "sliding_window": 9, "no_rope_layers": [0, 1, 1, 0]}),
    ("Olmo2", {}),
    ("Phi3", {}),
    ("Phi3", {"sliding_window": 9, **rope("default", partial_rotary_factor=0.5)}),
    ("Phi3", {"original_max_position_embeddings": 64, **LONG}),
    ("Phi3", {"original_max_position_embeddings": 64, "tie_word_embeddings": True,
              **rope("longrope", short_factor=[1.0, 1.5], long_factor=[2.0, 4.0], partial_rotary_factor=0.5)}),
    ("Gemma2", {"head_dim": 16, "sliding_window": 9, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 1.0,
                "attn_implementation": "eager"}),
    ("Gemma3Text", {"head_dim": 16, "sliding_window": 9, "query_pre_attn_scalar": 20, "final_logit_softcapping": 5.0,
                    "rope_parameters": GEMMA}),
]


def make(folder, kind, options):
    """A random model of transformers in a folder."""
    torch, transformers = need_transformers()
    torch.manual_seed(0)
    config = getattr(transformers, kind + "Config")(**{**SHAPE, **options})
    model = getattr(transformers, kind.removesuffix("Text") + "ForCausalLM")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("kind,options", FAMILIES)
def test_imported_family_has_the_logits_of_transformers_and_goes_back(tmp_path, kind, options):
    torch, transformers = need_transformers()
    other = make(tmp_path / "other", kind, options)
    model = nsa.Model(import_model(tmp_path / "other", tmp_path / "run"))
    ids = np.random.default_rng(0).integers(3, 64, (2, 100))
    with torch.no_grad():
        expected = other(torch.from_numpy(ids)).logits.numpy()
    np.testing.assert_allclose(model.logits(ids), expected, atol=1e-4)
    # In the file of Python, too.
    if kind == "Gemma2":
        with pytest.raises(nsa.InputError, match="attention_softcap of .* is 1, but the exported model has none"):
            export(tmp_path / "run", tmp_path / "hf")
    else:
        export(tmp_path / "run", tmp_path / "hf")
        with torch.no_grad():
            np.testing.assert_allclose(load(tmp_path / "hf")(torch.from_numpy(ids)).logits.numpy(), expected, atol=1e-4)
    # And as the model that it was, bit for bit.
    export(tmp_path / "run", tmp_path / "back", original=True)
    before, after = (_safetensors.find_files(tmp_path / name) for name in ("other", "back"))
    assert set(before) == set(after)
    for name in before:
        assert (before[name].read(name).view(np.uint32) == after[name].read(name).view(np.uint32)).all(), name
    with torch.no_grad():
        again = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / "back", attn_implementation=options.get("attn_implementation"))(torch.from_numpy(ids))
    assert (again.logits.numpy() == expected).all()


@pytest.mark.parametrize("kind,options,message", [
    ("Gemma", {}, 'model_type in \'{path}\' is "gemma", expected nsa, llama'),
    ("Gemma3Text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping in '{path}' is 50.0, expected null"),
    ("Llama", {"attention_bias": True}, "attention_bias in '{path}' is true, expected false or null"),
    ("Llama", rope("yarn", factor=2.0, original_max_position_embeddings=64), 'rope_parameters.rope_type in \'{path}\' is "yarn"'),
])
def test_what_is_not_supported_is_named(tmp_path, kind, options, message):
    make(tmp_path / "other", kind, options)
    with pytest.raises(nsa.InputError) as error:
        import_model(tmp_path / "other", tmp_path / "run")
    assert message.format(path=tmp_path / "other/config.json") in str(error.value)


def test_mixed_layers_as_sparse_model_keep_their_windows(tmp_path):
    need_transformers()
    make(tmp_path / "other", "Qwen2", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 2})
    run = import_model(tmp_path / "other", tmp_path / "run", attention="nsa", settings=["nsa.w=64"])
    model = nsa.Model(run)
    assert 'layers: "nsa*2, window:9*2"' in model.config
    assert {name.split(".")[1] for name in model.parameters if "gate.bias" in name} == {"0", "1"}
    make(tmp_path / "windows", "Mistral", {"sliding_window": 9})
    with pytest.raises(nsa.InputError, match="sliding_window in .* is 9, expected null for --attention=nsa"):
        import_model(tmp_path / "windows", tmp_path / "again", attention="nsa")


def test_model_that_ends_dense_is_a_plain_llama(tmp_path):
    torch, transformers = need_transformers()
    sparse = train(tmp_path, ["model.mlp=swiglu", "nsa.shared_kv=true"])
    with pytest.raises(nsa.InputError, match='model.attention of .* is "nsa", but "dense" in a Llama'):
        export(sparse, tmp_path / "hf", original=True)
    dense = ["--set", "model.mlp=swiglu", "--set", "model.attention=dense"]
    run_programs(tmp_path, ["nsa-model", "c.yaml", *dense, "-o", "d.mlir"], ["nsa-compile", "d.mlir", "-o", "d.nsax"],
                 ["nsa-train", "d.nsax", "--config", "c.yaml", *dense, "--data", "data", "--init-from", "run", "--init-partial",
                  "--out-dir", ".", "--run-name", "dense"])
    export(tmp_path / "dense", tmp_path / "hf", original=True)
    ids = np.random.default_rng(0).integers(3, 64, (2, 60))
    with torch.no_grad():
        found = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf")(torch.from_numpy(ids)).logits.numpy()
    np.testing.assert_allclose(found, nsa.Model(tmp_path / "dense", artifact=tmp_path / "d.nsax").logits(ids), atol=1e-4)


# What stands beside the weights


def write_extras(folder, tokenizer):
    (folder / "LICENSE").write_text("Yours.")
    (folder / "generation_config.json").write_text('{"temperature": 0.7, "eos_token_id": [2, 3]}')
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "special_tokens_map.json").write_text('{"eos_token": "<|endoftext|>"}')
    (folder / "tokenizer.json").write_bytes(tokenizer)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 99}')


def test_files_of_the_origin_travel_to_exports(tmp_path):
    from nsa.hf._export import _byte_tokenizer
    write_llama(tmp_path / "llama", vocab_size=256)
    write_extras(tmp_path / "llama", _byte_tokenizer())
    import_model(tmp_path / "llama", tmp_path / "run")
    extras = [path.name for path in (tmp_path / "llama").iterdir() if path.name not in ("config.json", "model.safetensors")]
    for original in (False, True):
        export(tmp_path / "run", tmp_path / f"hf{original}", original=original)
        for name in extras:
            assert (tmp_path / f"hf{original}" / name).read_bytes() == (tmp_path / "llama" / name).read_bytes(), name
    card = (tmp_path / "hfFalse/README.md").read_text()
    assert "license_link: LICENSE" in card and "trust_remote_code=True" in card and "data_digest" in card
    assert "\n  rope_base: 5000" in card
    assert "trust_remote_code" not in (tmp_path / "hfTrue/README.md").read_text()
    # A card that somebody wrote stays, one of another export does not.
    (tmp_path / "hfTrue/README.md").write_text("mine")
    for original in (False, True):
        export(tmp_path / "run", tmp_path / f"hf{original}", original=not original, overwrite=True)
    assert (tmp_path / "hfTrue/README.md").read_text() == "mine"
    assert "trust_remote_code" not in (tmp_path / "hfFalse/README.md").read_text()
    # What nsa-export wrote keeps them as well.
    import_model(tmp_path / "hfTrue", tmp_path / "again")
    export(tmp_path / "again", tmp_path / "last")
    assert (tmp_path / "last/chat_template.jinja").read_text() == "{{ messages }}"


def test_files_of_the_origin_travel_through_training(tmp_path):
    write_llama(tmp_path / "llama", vocab_size=256)
    (tmp_path / "llama/LICENSE").write_text("Yours.")
    (tmp_path / "llama/generation_config.json").write_text("{}")
    settings = ["train.steps=1", "train.warmup_steps=0", "train.sample_bytes=0", "train.final_eval_batches=1"]
    import_model(tmp_path / "llama", tmp_path / "run", seq_len=32, settings=settings)
    [config] = (tmp_path / "run").glob("checkpoints/*/config.yaml")
    run_programs(tmp_path, ["nsa-data", "synth", "--vocab", "256", "--tokens", "20k", "-o", "data"],
                 ["nsa-model", config, "-o", "m.mlir"], ["nsa-compile", "m.mlir", "-o", "m.nsax"],
                 ["nsa-train", "m.nsax", "--config", config, "--data", "data", "--init-from", "run", "--out-dir", ".",
                  "--run-name", "next"])
    export(tmp_path / "next", tmp_path / "hf", original=True)
    # Its tokens are others: what says how they are generated is not exported.
    assert {path.name for path in (tmp_path / "hf").iterdir()} == {"LICENSE", "README.md", "config.json", "model.safetensors"}
    assert json.loads((tmp_path / "hf/config.json").read_text())["model_type"] == "llama"
    # A sparse model is no Llama any more.
    import_model(tmp_path / "llama", tmp_path / "sparse", attention="nsa")
    with pytest.raises(nsa.InputError, match='model.attention of .* is "nsa", but "dense" in the model of'):
        export(tmp_path / "sparse", tmp_path / "never", original=True)
