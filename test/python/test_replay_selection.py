"""nsa-train --replay-selection: an update sees the blocks that its rollout saw."""

import subprocess

import numpy as np
import pytest

import nsa.data
from programs import BIN, run_programs, train_on_ids

LENGTH = 96
CONFIG = """model: {dim: 32, n_layers: 2, n_heads: 4, n_kv_groups: 2, d_k: 16, d_v: 16}
nsa: {l: 8, d: 4, l_sel: 16, n_sel: 4, n_local: 1, w: 16}
data: {window: document}
train: {steps: %d, seq_len: %d, batch_size: 4, micro_batch: 2, warmup_steps: 0, lr: 1.0e-30, weight_decay: 0, final_eval_batches: 1,
  sample_bytes: 0, eval_every: 0}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run, eight sequences of as many ids as its own and one more, and what its layers selected for them."""
    folder = tmp_path_factory.mktemp("replay")
    run = train_on_ids(folder, CONFIG.replace("lr: 1.0e-30", "lr: 1.0e-2").replace("window: document", "window: stream") % (20, LENGTH))
    run.rename(folder / "policy")
    prompts = [",".join(map(str, row)) for row in np.random.default_rng(3).integers(0, 16, (8, 40))]
    subprocess.run([BIN / "nsa-generate", folder / "policy", "--ids", *[word for prompt in prompts for word in ("--prompt", prompt)],
                    "--tokens", str(LENGTH - 39), "--seed", "5", "--ignore-end", "--save-selection", folder / "blocks.npy"],
                   check=True, capture_output=True)
    ids = np.load(folder / "blocks.ids.npy")
    assert ids.shape == (8, LENGTH + 1) and [",".join(map(str, row[:40])) for row in ids] == prompts
    documents = list(ids[:, :LENGTH])
    nsa.data.write_shards(folder / "rollout", documents, documents, vocabulary=256, end_of_text=255)
    return folder


def train(folder, name, *options):
    (folder / "update.yaml").write_text(CONFIG.replace("{window", "{tokenizer: shards, window") % (3, LENGTH))
    return subprocess.run([BIN / "nsa-train", "update.yaml", "--data", "rollout", "--init-from", "policy", "--run-name", name, *options],
                          cwd=folder, capture_output=True, text=True)


def losses(folder, name, *options):
    done = train(folder, name, *options)
    assert done.returncode == 0, done.stderr
    return [line.split(",")[1] for line in (folder / "runs" / name / "training.csv").read_text().splitlines()[1:]]


def test_replay_of_own_selections_changes_no_bit_of_losses(folder):
    own = losses(folder, "own")
    assert len(own) == 3 and losses(folder, "replayed", "--replay-selection", "blocks.npy") == own
    assert losses(folder, "apart", "--separate-update", "--replay-selection", "blocks.npy") == own
    blocks = np.load(folder / "blocks.npy")
    blocks[..., 1:] = -1
    np.save(folder / "few.npy", blocks)
    np.save(folder / "few.ids.npy", np.load(folder / "blocks.ids.npy"))
    assert losses(folder, "few", "--replay-selection", "few.npy") != own


def test_program_and_option_belong_together(folder):
    (folder / "update.yaml").write_text(CONFIG.replace("{window", "{tokenizer: shards, window") % (3, LENGTH))
    run_programs(folder, ["nsa-model", "update.yaml", "-o", "update.mlir"], ["nsa-compile", "update.mlir", "-o", "selects.nsax"],
                 ["nsa-compile", "update.mlir", "--replay-selection", "-o", "takes.nsax"])
    for program, options, message in (
            ("selects", ["--replay-selection", "blocks.npy"], "the program takes no selections: nsa-compile --replay-selection makes one that does"),
            ("takes", [], "the program takes the selections of a rollout: give --replay-selection")):
        done = subprocess.run([BIN / "nsa-train", f"{program}.nsax", "--config", "update.yaml", "--data", "rollout", "--init-from", "policy",
                               *options], cwd=folder, capture_output=True, text=True)
        assert done.returncode != 0 and message in done.stderr, done.stderr


def change(at, value):
    def changed(blocks, ids):
        blocks[at] = value
        return blocks, ids
    return changed


@pytest.mark.parametrize("changed, message", [
    (lambda blocks, ids: (blocks[:, :1], ids), "wrong.npy has 1 sparse layers, the model has 2"),
    (lambda blocks, ids: (blocks[:, :, :1], ids), "wrong.npy has 1 key heads, the model has 2"),
    (lambda blocks, ids: (blocks[..., :3], ids), "wrong.npy has 3 blocks of a token, the model has 4"),
    (lambda blocks, ids: (blocks[:, :, :, :90], ids), "wrong.npy has 90 tokens of a prompt, fewer than the 96 of a sequence"),
    (lambda blocks, ids: (blocks, ids[:, :-1]), "wrong.npy is beside ids i32 8x96, expected i32 8x97"),
    (lambda blocks, ids: (blocks.astype(np.int64), ids), "wrong.npy is i64 8x2x2x96x4, expected i32 of prompts, layers, heads, tokens and blocks"),
    (change((2, 1, 0, 20), [0, 2, -1, -1]), "wrong.npy: prompt 3, layer 1, head 0, token 20 has block 2 after block 0, expected ascending ones up to 1"),
    (change((0, 0, 1, 95), [0, 3, 3, -1]), "wrong.npy: prompt 1, layer 0, head 1, token 95 has block 3 after block 3, expected ascending ones up to 5"),
    (change((0, 0, 0, 95), [0, -1, 3, -1]), "wrong.npy: prompt 1, layer 0, head 0, token 95 has block 3 after block -1, expected ascending ones up to 5"),
    (lambda blocks, ids: (blocks, np.where(ids < 0, ids, ids ^ 1)), "none of the 8 sequences of wrong.npy begins with the 96 tokens "),
])
def test_selection_of_something_else_is_an_error_with_both_numbers(folder, changed, message):
    blocks, ids = changed(np.load(folder / "blocks.npy"), np.load(folder / "blocks.ids.npy"))
    np.save(folder / "wrong.npy", blocks)
    np.save(folder / "wrong.ids.npy", ids)
    done = train(folder, "wrong", "--replay-selection", "wrong.npy")
    assert done.returncode != 0 and message in done.stderr, done.stderr
