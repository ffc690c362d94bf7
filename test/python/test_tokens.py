"""Training on tokens of a tokenizer, which travels with shards, runs and checkpoints."""

import json
import math
import os
import subprocess

import numpy as np
import pytest

import nsa.data
import nsa.evaluate
from nsa.evaluate import _report
from programs import BIN

VOCABULARY = 66000
CONFIG = f"""model: {{dim: 16, n_layers: 1, n_heads: 1, n_kv_groups: 1, d_k: 16, d_v: 16, vocab_size: {VOCABULARY}, attention: dense}}
data: {{tokenizer: shards}}
train: {{steps: 2, seq_len: 32, batch_size: 2, micro_batch: 2, warmup_steps: 1, eval_every: 1, eval_batches: 1,
  final_eval_batches: 0, sample_bytes: 20, sample_prompt: "ab", keep_checkpoints: 0}}
"""


def byte_level(words, **parts):
    """A tokenizer.json of all bytes, of words that begin with a space, and an end of text."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    names = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    vocabulary = {names[byte]: byte for byte in range(256)} | {chr(0x120) + word: 256 + i for i, word in enumerate(words)}
    end = len(vocabulary)
    return json.dumps({"model": {"type": "BPE", "vocab": vocabulary | {"<|endoftext|>": end}, "merges": []},
                       "added_tokens": [dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) |
                                        {"id": end, "content": "<|endoftext|>", "special": True}],
                       "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}, **parts})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A configuration, and data of a vocabulary that needs 32 bits: " red", " green" and bytes."""
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "tokenizer.json").write_text(byte_level(["red", "green"]))
    (folder / "other.json").write_text(byte_level(["green", "red"]))
    (folder / "wide.yaml").write_text(CONFIG)
    documents = [[256, 257, 97, 98, 258]] * 200
    nsa.data.write_shards(folder / "data", documents, documents[:40], vocabulary=VOCABULARY, end_of_text=258,
                          tokenizer=folder / "tokenizer.json", shard_tokens=600)
    return folder


def train(folder, *arguments, data="data", **variables):
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "NSA_CACHE": "1", **variables}
    return subprocess.run([BIN / "nsa-train", "wide.yaml", "--data", data, *arguments], cwd=folder, env=environment,
                          text=True, capture_output=True)


def test_run_on_wide_tokens_samples_text_and_counts_bytes(folder):
    done = train(folder, "--run-name", "first")
    assert done.returncode == 0, done.stderr
    run = folder / "runs/first"
    metrics = json.loads((run / "metrics.json").read_text())
    # 31 windows of 32 targets begin after the first token of documents of " red", " green", "a", "b" and nothing.
    sizes = [4, 6, 1, 1, 0]
    windows = (5 * 40 - 1) // 32
    counted = sum(sizes[(at + 1) % 5] for at in range(32 * windows))
    expected = metrics["val_loss"] * 32 * windows / math.log(2) / counted
    assert metrics["loss_unit"] == "nats/token" and abs(metrics["val_bits_per_byte"] - expected) < 1e-9
    assert f"validation loss {metrics['val_loss']:.4f} nats/token | {expected:.4f} bits/byte" in done.stdout
    samples = (run / "samples.txt").read_bytes()
    assert samples.count(b"\nab") == 2 and len(samples) > 40
    for path in (run, run / "checkpoints/step-00000002"):
        assert (path / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    # A damaged one is noticed, as any file of a checkpoint.
    (run / "checkpoints/step-00000002/tokenizer.json").write_text("{}")
    resumed = train(folder, "--resume", "runs/first/checkpoints/step-00000002", "--set", "train.steps=3")
    assert resumed.returncode == 1 and "tokenizer.json' is damaged: its hash is" in resumed.stderr
    (run / "checkpoints/step-00000002/tokenizer.json").write_text((folder / "tokenizer.json").read_text())


def test_prompt_without_the_library_is_said_and_training_goes_on(folder):
    done = train(folder, "--run-name", "mute", "--set", "train.steps=1", PATH="/nowhere")
    assert done.returncode == 0, done.stderr
    assert "no samples: cannot make tokens of" in done.stdout + done.stderr
    assert not (folder / "runs/mute/samples.txt").exists()


def test_bits_per_byte_count_no_space_of_the_tokenizer_and_say_of_which_text(tmp_path):
    tokenizer = byte_level(["red", "green"], pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True},
                           normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]})
    (tmp_path / "tokenizer.json").write_text(tokenizer)
    (tmp_path / "wide.yaml").write_text(CONFIG.replace(str(VOCABULARY), "320"))
    documents = [[256, 257, 97, 98, 258]] * 200
    nsa.data.write_shards(tmp_path / "data", documents, documents[:40], vocabulary=259, end_of_text=258,
                          tokenizer=tmp_path / "tokenizer.json")
    done = train(tmp_path, "--run-name", "run")
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "runs/run/metrics.json").read_text())
    # "red", " green", "a", "b": the first space is the tokenizer's.
    sizes = [3, 6, 1, 1, 0]
    windows = (5 * 40 - 1) // 32
    counted = sum(sizes[(at + 1) % 5] for at in range(32 * windows))
    expected = metrics["val_loss"] * 32 * windows / math.log(2) / counted
    assert abs(metrics["val_bits_per_byte"] - expected) < 1e-9 and metrics["val_text_after"] == "NFC, Lowercase"
    assert f" | {expected:.4f} bits/byte of text after NFC, Lowercase" in done.stdout
    result = nsa.evaluate.loss(nsa.evaluate.Scorer(tmp_path / "runs/run"), shards=tmp_path / "data")
    assert abs(result["bits_per_byte"] - expected) < 1e-4 and result["bytes"] == counted
    assert f"{result['bits_per_byte']:.4f} bits/byte of text after NFC, Lowercase" in next(_report._loss(result))


@pytest.mark.parametrize("parts,adds_blank,changes", [
    ({}, False, ""),
    ({"normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}, False, ""),
    ({"pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"}}, True, ""),
    ({"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "never", "add_prefix_space": True}}, False, ""),
    ({"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}}, True, ""),
    ({"normalizer": {"type": "Replace", "pattern": {"Regex": " +"}, "content": "\u2581"}}, False, "Replace"),
    ({"normalizer": {"type": "NFKC"}}, False, "NFKC"),
    ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "WhitespaceSplit"}, {"type": "Metaspace", "prepend_scheme": "always"}]}}, True, "WhitespaceSplit"),
    ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "behavior": "Removed"}, {"type": "ByteLevel", "add_prefix_space": True}]}}, True, "Split, ByteLevel"),
])
def test_traits_of_a_tokenizer_say_what_its_tokens_stand_for(parts, adds_blank, changes):
    assert nsa._runtime.tokenizer_traits(byte_level([], **parts).encode(), "t.json") == (adds_blank, changes)


@pytest.mark.parametrize("setting,message", [
    ("byte", "data.tokenizer is byte, the tokens in 'data' were made by its tokenizer.json: set data.tokenizer to shards"),
    ("other.json", "'other.json' has hash "),
    ("wide.yaml", "'wide.yaml' is no tokenizer to train with: "),
])
def test_another_tokenizer_is_an_error(folder, setting, message):
    wrong = train(folder, "--run-name", "wrong", "--set", f"data.tokenizer={setting}")
    assert wrong.returncode == 1 and message in wrong.stderr, wrong.stderr
    assert not (folder / "runs/wrong").exists()


def test_several_sources_are_mixed_by_weight(folder):
    more = [[97, 98, 98, 258]] * 100
    nsa.data.write_shards(folder / "more", more, more, vocabulary=VOCABULARY, end_of_text=258, tokenizer=folder / "tokenizer.json",
                          overwrite=True)
    done = train(folder, "--data", "more", "--data-weights", "3,1", "--run-name", "mixed")
    assert done.returncode == 0, done.stderr
    assert "source data: 75 % of the samples, 1,000 training tokens" in done.stdout
    assert "source more: 25 % of the samples, 400 training tokens" in done.stdout
    metrics = json.loads((folder / "runs/mixed/metrics.json").read_text())
    assert 0 < metrics["data_seconds"] < metrics["step_seconds"] and metrics["val_bits_per_byte"] > 0
    wrong = train(folder, "--data", "more", "--data-weights", "3,-1", "--run-name", "wrong")
    assert wrong.returncode == 1 and "the weight of 'more' is -1, not a positive number" in wrong.stderr


def write_llmc(path, tokens):
    """As llm.c writes the tokens of Llama 3."""
    header = np.zeros(256, np.int32)
    header[:3] = 20240801, 7, len(tokens)
    path.write_bytes(header.tobytes() + np.array(tokens, np.uint32).tobytes())


def test_files_of_llmc_train_as_they_are(folder):
    write_llmc(folder / "corpus_train_0.bin", [256, 257, 97, 98, 258] * 100)
    wrong = train(folder, "--run-name", "wrong", "--set", "data.tokenizer=byte", data="corpus_train_0.bin")
    assert wrong.returncode == 1 and "a tokenizer that it does not name" in wrong.stderr, wrong.stderr
    done = train(folder, "--run-name", "llmc", "--set", "data.tokenizer=tokenizer.json", data="corpus_train_0.bin")
    assert done.returncode == 0, done.stderr
    assert "450 training and 50 validation tokens" in done.stdout and "bits/byte" in done.stdout
    done = train(folder, "--run-name", "unknown", data="corpus_train_0.bin")
    assert done.returncode == 0 and "stand for is not known" in done.stdout and "bits/byte" not in done.stdout
    info = subprocess.run([BIN / "nsa-data", "info", folder / "corpus_train_0.bin"], text=True, capture_output=True, check=True)
    assert "kind   llm.c, vocabulary 1048576" in info.stdout and info.stdout.endswith("tokens read\n")
    write_llmc(folder / "corpus_train_0.bin", [256, VOCABULARY] * 300)
    wrong = train(folder, "--run-name", "wrong", data="corpus_train_0.bin")
    assert wrong.returncode == 1 and f"token {VOCABULARY} at position 1 is not below the vocabulary size" in wrong.stderr


def test_resume_with_another_tokenizer_is_an_error(folder):
    assert train(folder, "--run-name", "second", "--stop-after", "1").returncode == 0
    nsa.data.write_shards(folder / "data", [[256, 257]] * 100, [[256] * 40], vocabulary=VOCABULARY, overwrite=True,
                          tokenizer=folder / "other.json")
    wrong = train(folder, "--resume", "runs/second", "--allow-changed-data")
    assert wrong.returncode == 1 and "its tokens were made by the tokenizer" in wrong.stderr, wrong.stderr
    wrong = train(folder, "--init-from", "runs/second", "--run-name", "third")
    assert wrong.returncode == 1 and "their tokens were made by the tokenizer" in wrong.stderr, wrong.stderr
