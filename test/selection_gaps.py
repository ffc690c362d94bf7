#!/usr/bin/env python3
"""How many lists of blocks differ between programs of a trained model, and by which gaps of scores.

  PYTHONPATH=build/python $(bash test/python-env.sh) test/selection_gaps.py RUN TEXT [--windows 8]

RUN is a run directory of nsa-train, of bytes; TEXT a file, of which windows of the training's length are read. Lists are those of the
entries forward (the kernels of training), prefill and decode, and of the exported model in PyTorch. The gap of a list is by how much the
score of the worst block that is not forced exceeds that of the best one left: without competition there is none.
"""
import argparse
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "python"), str(HERE / "judge")]

import numpy as np  # noqa: E402
import yaml  # noqa: E402

import nsa  # noqa: E402
import nsa_rules  # noqa: E402
from numerics import Exact  # noqa: E402
from selections import expose, load_parameters  # noqa: E402


def blocks_of(results, prefix, layers):
    """[layers, Hkv, tokens, count] of one sequence."""
    return np.stack([results[f"{prefix}{layer}"][0] for layer in range(layers)])


def find_gaps(results, layers, sizes, initial, local):
    compressed = nsa_rules.visibility("compressed", block=sizes["l"], stride=sizes["d"])
    selected = nsa_rules.visibility("selected", block=sizes["l_sel"], count=sizes["n_sel"], initial=initial, local=local)
    gaps = []
    for layer in range(layers):
        query, key, lse, indices = (results[f"{name}.{layer}"] for name in ("query", "key", "lse", "indices"))
        key = key[:, :compressed.keys(query.shape[1])]
        score = nsa_rules.block_scores(Exact(), compressed, selected, nsa_rules.how_of(query, None, None), query, key, lse)[0]
        gaps.append([[nsa_rules.find_gap(score[head, t], indices[0, head, t], selected) for t in range(score.shape[1])]
                     for head in range(score.shape[0])])
    return np.array(gaps)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("text")
    parser.add_argument("--windows", type=int, default=8)
    args = parser.parse_args()
    model = nsa.Model(args.run)
    config, length = yaml.safe_load(model.config), model.seq_len
    sizes, text = config["nsa"], nsa.model_text(model.config)
    one = {"micro_batch": 1, "seq_len": length, "threads": 1}
    trained = load_parameters(nsa.compile(text, selection=True, **one), model)
    cached = load_parameters(nsa.compile(text, selection=True, context=length, **one), model)
    layers = sum(name.startswith("selection.") for name in trained.entries["forward"][1])
    scores = expose(nsa.compile_to("gradient", text, micro_batch=1, seq_len=length), "forward", layers)
    scored = load_parameters(nsa.compile(scores, threads=1), model)
    data = np.frombuffer(pathlib.Path(args.text).read_bytes(), np.uint8).astype(np.int32)
    if len(data) < args.windows * length:
        sys.exit(f"{args.text} has {len(data)} bytes, {args.windows} windows of {length} need {args.windows * length}")
    found = {"prefill": [], "decode": [], "PyTorch": []}
    wanted, gaps = [], []
    with tempfile.TemporaryDirectory() as folder:
        import torch
        import transformers
        from nsa.hf import export
        export(args.run, os.path.join(folder, "hf"))
        hf = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(folder, "hf"), trust_remote_code=True)
        for window in data[:args.windows * length].reshape(args.windows, 1, length):
            wanted.append(blocks_of(trained.run("forward", {"tokens": window}), "selection.", layers))
            gaps.append(find_gaps(scored.run("forward", {"tokens": window}), layers, sizes, sizes.get("n_initial", 1), sizes.get("n_local", 2)))
            last = np.array([length - 1], np.int32)
            found["prefill"].append(blocks_of(cached.run("prefill", {"tokens": window, "positions": last}), "selection.", layers))
            steps = [blocks_of(cached.run("decode", {"token": window[:, t:t + 1], "positions": np.array([t], np.int32)}),
                               "next_selection.", layers) for t in range(length)]
            found["decode"].append(np.concatenate(steps, 2))
            with torch.no_grad():
                own = hf(torch.from_numpy(window).long(), output_selections=True).selections
            found["PyTorch"].append(np.stack([blocks[0].numpy() for blocks in own if blocks is not None]))
    gaps, wanted = np.stack(gaps), np.stack(wanted)
    choices = np.isfinite(gaps)
    print(f"{gaps.size} lists of {layers} layers, {choices.sum()} of them with a choice; smallest gap {gaps[choices].min():.2g}")
    for limit in (1e-7, 1e-6, 1e-5, 1e-4):
        print(f"gaps below {limit:.0e}: {(gaps[choices] < limit).sum()} ({(gaps[choices] < limit).mean():.3%})")
    for name, lists in found.items():
        differ = (np.stack(lists) != wanted).any(-1)
        largest = f", by a gap of {gaps[differ].max():.2g} at most" if differ.any() else ""
        print(f"{name}: {differ.sum()} lists ({differ[choices].mean():.3%} of the choices) differ from training's{largest}")


if __name__ == "__main__":
    main()
