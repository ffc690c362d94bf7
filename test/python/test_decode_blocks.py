"""Decoding selects the blocks that whole sequences select, on trained weights."""

import pathlib

import numpy as np
import pytest

import nsa
import nsa_rules
from numerics import Exact
from programs import run_programs
from selections import expose, load_parameters

DOCS = pathlib.Path(__file__).parents[2] / "docs"
BLOCK, STRIDE, SELECT_BLOCK, COUNT, LENGTH = 8, 4, 16, 4, 256
COMPRESSED = nsa_rules.visibility("compressed", block=BLOCK, stride=STRIDE)
SELECTED = nsa_rules.visibility("selected", block=SELECT_BLOCK, count=COUNT, initial=1, local=2)
CONFIG = f"""
model: {{dim: 64, n_layers: 2, n_heads: 4, n_kv_groups: 2, d_k: 16, d_v: 16, mlp: silu}}
nsa: {{l: {BLOCK}, d: {STRIDE}, l_sel: {SELECT_BLOCK}, n_sel: {COUNT}, w: 32}}
train: {{steps: 200, seq_len: {LENGTH}, batch_size: 2, micro_batch: 2, lr: 3.0e-3, warmup_steps: 20, eval_every: 0,
         final_eval_batches: 8, sample_bytes: 0}}
"""
# Scores are sums of two probabilities. Measured: those of decoding are 1.1e-6 at most from those of whole sequences.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of text."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "small.yaml").write_text(CONFIG)
    run_programs(folder, ["nsa-data", "pack", DOCS, "--max-document-bytes", "2000", "-o", "data"],
                 ["nsa-model", "small.yaml", "-o", "small.mlir"], ["nsa-compile", "small.mlir", "-o", "small.nsax"],
                 ["nsa-train", "small.nsax", "--config", "small.yaml", "--data", "data", "--out-dir", "runs",
                  "--run-name", "small"])
    losses = np.loadtxt(folder / "runs" / "small" / "training.csv", delimiter=",", skiprows=1, usecols=1)
    assert losses[-20:].mean() < losses[0] - 2
    return nsa.Model(folder / "runs" / "small", artifact=str(folder / "small.nsax"))


def load(model, isolated, entry, **options):
    text = nsa.model_text(CONFIG + f"data: {{isolate_documents: {isolated}}}")
    return load_parameters(nsa.compile(expose(nsa.compile_to("gradient", text, **options), entry, layers=2), threads=1), model)


def scores(query, key, lse):
    key = key[:, :COMPRESSED.keys(query.shape[1])]
    return nsa_rules.block_scores(Exact(), COMPRESSED, SELECTED, nsa_rules.how_of(query, None, None), query, key, lse)


def choose(score):
    """The indices, and of each list the gap between the worst block taken and the best one left."""
    indices = nsa_rules.choose(score, SELECTED)
    gap = np.empty(indices.shape[:3])
    for place in np.ndindex(gap.shape):
        gap[place] = nsa_rules.find_gap(score[place], indices[place], SELECTED)
    return indices, gap


def compare(whole, cached, row, start, end):
    """Holds decoding a document against its rows: how many lists there are, how many of them ties could not change, how many
    of these differ; and the largest difference of scores."""
    counts, error = np.zeros(3, int), 0.0
    for layer in range(2):
        got, query, key, lse = (whole[f"{name}.{layer}"][row:row + 1] for name in ("indices", "query", "key", "lse"))
        score = scores(query[:, start:end], key[:, start // STRIDE:], lse[:, :, start:end])
        expected, gap = choose(score)
        got = got[:, :, start:end]
        clear = np.isfinite(gap) & (gap > TOLERANCE)
        assert np.array_equal(got[clear], expected[clear])
        decoded, query, lse = (np.concatenate([step[f"{name}.{layer}"] for step in cached], axis=axis)
                               for name, axis in (("indices", 2), ("query", 1), ("lse", 2)))
        same = (decoded == got).all(-1)
        assert same[np.isinf(gap)].all()
        counts += clear.size, clear.sum(), (clear & ~same).sum()
        seen = np.isfinite(score)
        error = max(error, abs(scores(query, cached[-1][f"key.{layer}"], lse)[seen] - score[seen]).max())
    return counts, error


def decode(module, ids):
    """What decoding returns at each position of a document."""
    return [module.run("decode", {"token": np.array([[token]], np.int32), "positions": np.array([at], np.int32)})
            for at, token in enumerate(ids)]


# Documents of a row begin at rows of compressed blocks, between them, and soon after another.
@pytest.mark.parametrize("isolated,begins", [("false", [[0], [0]]), ("true", [[0, 101, 104], [0, 51, 200]])],
                         ids=["whole", "packed"])
def test_decode_trained_weights_selects_blocks_of_whole_sequence(model, isolated, begins):
    whole = load(model, isolated, "forward", seq_len=LENGTH, micro_batch=2)
    cached = load(model, isolated, "decode", context=LENGTH, micro_batch=1)
    ids = np.frombuffer((DOCS / "numerics.md").read_bytes(), np.uint8)[:2 * LENGTH].astype(np.int32).reshape(2, LENGTH)
    inputs = {"tokens": ids}
    if isolated == "true":
        inputs["start"] = np.array([[max(b for b in own if b <= t) for t in range(LENGTH)] for own in begins], np.int32)
    results = whole.run("forward", inputs)
    total, error = np.zeros(3, int), 0.0
    for row, own in enumerate(begins):
        for start, end in zip(own, own[1:] + [LENGTH]):
            counts, largest = compare(results, decode(cached, ids[row, start:end]), row, start, end)
            total, error = total + counts, max(error, largest)
    lists, clear, differ = total
    assert error <= TOLERANCE / 2
    assert differ == 0 and lists == 2 * 2 * 2 * LENGTH and clear > lists / 3
