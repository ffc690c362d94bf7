"""Model.generate and nsa-generate."""

import json
import re
import subprocess

import numpy as np
import pytest

import nsa
import nsa.data
from programs import BIN, run_programs, train_on_ids

CHECKPOINT = """model: {dim: 32, n_layers: 1, n_heads: 2, n_kv_groups: 1, d_k: 16, d_v: 16}
nsa: {l: 8, d: 4, l_sel: 16, n_sel: 4, w: 32}
train: {steps: 1, seq_len: 32, batch_size: 2, micro_batch: 2, warmup_steps: 0, final_eval_batches: 1, sample_bytes: 0}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return nsa.Model(train_on_ids(folder, CHECKPOINT))


def test_generate_temperature_0_takes_most_likely_ids(model):
    drawn = model.generate([1, 2, 3], tokens=20, temperature=0, ignore_end=True)
    ids = [1, 2, 3]
    for token in drawn:
        logits = model.logits(ids)[-1]
        assert logits[token] >= logits.max() - 1e-4
        ids.append(token)
    assert model.generate([[1, 2, 3], [5] * 40], tokens=20, temperature=0, ignore_end=True)[0] == drawn


def test_artifact_of_training_has_losses_and_generates(model, monkeypatch):
    own = nsa.Model(model.checkpoint, artifact=nsa.compile(nsa.model_text(CHECKPOINT), sample_context=48))
    assert abs(own.loss([1, 2, 3, 4]) - model.loss([1, 2, 3, 4])) < 1e-5
    wanted = model.generate([1, 2, 3], tokens=45, temperature=0, ignore_end=True)
    monkeypatch.setattr("nsa._checkpoint.compile", None)
    own.parameters["norm.weight"] *= 1.0
    assert own.generate([1, 2, 3], tokens=45, temperature=0, ignore_end=True) == wanted
    with pytest.raises(nsa.InputError, match="has no entry 'forward', by which there are logits"):
        own.logits([1, 2, 3])


@pytest.mark.parametrize("key, found, other", [("nsa.n_sel", "4", "3"), ("model.dim", "32", "64")])
def test_artifact_of_another_model_is_an_error_with_both_values(model, key, found, other):
    name = key.split(".")[1]
    artifact = nsa.compile(nsa.model_text(CHECKPOINT.replace(f"{name}: {found}", f"{name}: {other}")))
    with pytest.raises(nsa.InputError, match=f"does not fit .*: {key} is {found}, the artefact was compiled from a model with {other}"):
        nsa.Model(model.checkpoint, artifact=artifact)


def test_generate_returns_logprobs_and_selection(model):
    prompts = [[1, 2, 3], [5] * 40]
    plain = model.generate(prompts, tokens=60, seed=1, ignore_end=True)
    drawn, logprobs, selection = model.generate(prompts, tokens=60, seed=1, ignore_end=True, return_logprobs=True,
                                                return_selection=True)
    assert drawn == plain and logprobs == model.logprobs(prompts, plain)
    for prompt, own, numbers, blocks in zip(prompts, drawn, logprobs, selection):
        ids = prompt + own
        assert blocks.shape == (1, 1, len(ids) - 1, 4) and blocks.dtype == np.int32
        for t, row in enumerate(blocks[0, 0]):
            last, chosen = t // 16, row[row >= 0]
            assert len(chosen) == min(4, last + 1) and {0, last} <= set(chosen) and list(row) == [*sorted(chosen)] + [-1] * (4 - len(chosen))
        logits = model.logits(ids[:32])[len(prompt) - 1:].astype(np.float64)
        exact = [row[token] - np.log(np.exp(row).sum()) for row, token in zip(logits, own)]
        np.testing.assert_allclose(numbers[:len(exact)], exact, atol=1e-4)
    alone = model.generate([1, 2, 3], tokens=5, return_logprobs=True)
    assert alone[1] == model.logprobs([1, 2, 3], alone[0]) and len(alone[1]) == 5
    with pytest.raises(nsa.InputError, match="there are 1 continuations, expected 2"):
        model.logprobs(prompts, [[1]])


def test_nsa_generate_saves_the_selection_that_generate_returns(model, tmp_path):
    prompts = [[1, 2, 3], [5] * 40]
    words = [word for prompt in prompts for word in ("--prompt", ",".join(map(str, prompt)))]
    subprocess.run([BIN / "nsa-generate", model.checkpoint, "--ids", *words, "--tokens", "30", "--temperature", "0", "--ignore-end",
                    "--save-selection", tmp_path / "blocks.npy"], check=True, capture_output=True)
    saved = np.load(tmp_path / "blocks.npy")
    assert saved.shape == (2, 1, 1, 69, 4)
    for row, own in zip(saved, model.generate(prompts, tokens=30, temperature=0, ignore_end=True, return_selection=True)[1]):
        assert np.array_equal(row[:, :, :own.shape[2]], own) and (row[:, :, own.shape[2]:] == -1).all()


def test_generate_text_is_function_of_seed_and_ends_before_stop(model):
    text = model.generate("ab", tokens=30, seed=1)
    assert isinstance(text, str) and text == model.generate("ab", tokens=30, seed=1)
    assert text != model.generate("ab", tokens=30, seed=2)
    assert model.generate("ab", tokens=30, seed=1, stop=text[3:5]) == text.split(text[3:5])[0]


def test_generate_end_of_documents_ends_each_sequence_alone(model):
    prompts = [[1, 2, 3], [5] * 40, [7]]
    whole = model.generate(prompts, tokens=60, seed=1, temperature=3, ignore_end=True)
    text = model.generate("ab", tokens=60, seed=1, temperature=3, ignore_end=True)
    letter = next(char for char in text[20:] if char.isascii())
    try:
        model._text.end = end = whole[1][30]
        expected = [row[:row.index(end)] if end in row else row for row in whole]
        assert model.generate(prompts, tokens=60, seed=1, temperature=3) == expected
        model._text.end = ord(letter)
        assert model.generate("ab", tokens=60, seed=1, temperature=3) == text.split(letter)[0]
    finally:
        model._text.end = 0


DOCUMENTS = """model: {{dim: 32, n_layers: 1, n_heads: 2, n_kv_groups: 1, d_k: 16, d_v: 16, attention: dense, vocab_size: {vocab}}}
data: {{tokenizer: {tokenizer}}}
train: {{steps: 100, seq_len: 32, batch_size: 4, micro_batch: 4, warmup_steps: 0, lr: 1e-2, final_eval_batches: 1, sample_bytes: 12,
  sample_prompt: "{start}", sample_temperature: 0}}
"""
BYTE_LEVEL = {"model": {"type": "BPE", "vocab": {"b": 0, "c": 1, "</s>": 2, "a": 3, "x": 4}, "merges": []},
              "padding": {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
                          "pad_token": "b"},
              "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
              "added_tokens": [dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) |
                               {"id": 2, "content": "</s>", "special": True}]}


def pack_bytes(folder):
    (folder / "text").mkdir()
    for number in range(300):
        (folder / "text" / f"{number}.txt").write_text(f"{number}:abcabc")
    run_programs(folder, ["nsa-data", "pack", "text", "-o", "data", "--val-fraction", "0.1"])


def pack_tokens(folder):
    (folder / "tokenizer.json").write_text(json.dumps(BYTE_LEVEL))
    documents = [[4, 3, 0, 1, 3, 0, 1, 2]] * 300
    nsa.data.write_shards(folder / "data", documents, documents[:20], vocabulary=5, end_of_text=2, tokenizer=folder / "tokenizer.json")


@pytest.mark.parametrize("pack,config,prompt,expected", [
    (pack_bytes, {"vocab": 256, "tokenizer": "byte", "start": "7:"}, [*b"7:ab"], [*b"cabc", 0]),
    (pack_tokens, {"vocab": 5, "tokenizer": "shards", "start": "x"}, [4, 3, 0], [1, 3, 0, 1, 2])], ids=["bytes", "tokens"])
def test_generate_documents_end_in_all_ways_alike(tmp_path, pack, config, prompt, expected):
    pack(tmp_path)
    start = config["start"]
    (tmp_path / "small.yaml").write_text(DOCUMENTS.format(**{**config, "start": start + "a"}))
    run_programs(tmp_path, ["nsa-train", "small.yaml", "--data", "data", "--out-dir", "runs", "--run-name", "small"])
    assert (tmp_path / "runs/small/samples.txt").read_text(errors="replace").endswith(f"(step 100):\n{start}abcabc\n")

    def generate(*arguments):
        command = [BIN / "nsa-generate", "runs/small", "--tokens", "8", "--temperature", "0", *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    ids = ",".join(map(str, prompt))
    assert generate("--prompt", start + "ab") == "cabc\n"
    assert generate("--prompt", start + "ab", "--prompt", start + "abcab") == "=== 1\ncabc\n=== 2\nc\n"
    assert generate("--prompt", ids, "--ids") == ",".join(map(str, expected[:-1])) + "\n"
    model = nsa.Model(tmp_path / "runs/small")
    assert model.generate([prompt, [*prompt, *expected[:3]]], tokens=8, temperature=0) == [expected[:-1], [expected[3]]]
    on = model.generate(prompt, tokens=8, temperature=0, ignore_end=True)
    assert len(on) == 8 and on[:5] == expected
    assert generate("--prompt", ids, "--ids", "--ignore-end") == ",".join(map(str, on)) + "\n"
    text = bytes(on).decode() if pack is pack_bytes else "".join("bc ax"[token] for token in on if token != 2)
    assert generate("--prompt", start + "ab", "--ignore-end") == text + "\n"


def test_generate_changed_parameters_are_used(model):
    saved = model.parameters["head.weight"]
    model.parameters["head.weight"] = 0 * saved
    try:
        assert model.generate([1, 2, 3], tokens=3, temperature=0, ignore_end=True) == [0, 0, 0]
    finally:
        model.parameters["head.weight"] = saved


@pytest.mark.parametrize("prompts,options,message", [
    ("", {}, "prompt 1 is empty: it needs at least one token"),
    ([[1], []], {"tokens": 5}, "prompt 2 is empty: it needs at least one token"),
    ([1, 256], {}, "ids have the value 256, expected 0 to 255"),
    ([1] * 100, {"tokens": 29}, "prompt 1 has 100 tokens and 29 are to follow, more than the context of 128; context=129"),
    ([1], {"top_p": 0}, "top_p is 0, expected more than 0 and at most 1"),
    ([1], {"stop": "x"}, "stop is for texts, and a prompt is ids"),
])
def test_generate_wrong_arguments_are_errors(model, prompts, options, message):
    with pytest.raises(nsa.InputError, match=re.escape(message)):
        model.generate(prompts, **options)
