#!/usr/bin/env python3
"""Draws the pictures of README.md and docs.

    python3 -m pip install matplotlib==3.10.7
    docs/plots/draw.py                  writes docs/plots/*.svg
    docs/plots/draw.py --png FOLDER     PNG files instead, to look at

pipeline.svg shows what nsa-compile prints, shortened by hand; the others are drawn
from docs/measured/NAME.csv. Each SVG names the hash of what it was drawn from, which
tools/docs.py compares: a figure that changes without its picture is an error.
"""

import argparse
import csv
import functools
import hashlib
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent
MEASURED = FOLDER.parent / "measured"

INK, FAINT = "#24292f", "#d0d7de"
COLOURS = {"nsa": "#0969da", "sf": "#bc4c00", "dense": "#6e7781"}
NAMES = {"nsa": "nsa", "sf": "SF, the fastest published NSA", "dense": "dense causal (cuDNN)"}

# Title, what makes it, and five lines of what it looks like.
STAGES = [
    ("model.mlir", "nsa-model, or by hand", [
        "%rotated = nn.rope %query, @rotary : !q",
        "%o, %lse = nsa.attention %rotated, %rotated_0, %compressed_1 visible(#cmp) : ...",
        "%indices = nsa.select %rotated, %rotated_0, %lse by(#cmp, #slc) : !q, !kvc -> !idx",
        "%o_3, %lse_4 = nsa.attention %rotated, ... visible(#slc, %indices : !idx) : ...",
        "%o_9 = nsa.combine %gates, %o, %o_3, %o_6 : (..., !q, !q, !q) -> !q"]),
    ("training step", "precision, gradient, optimizer", [
        "%dq_117, %dk_118, %dv_119 = nsa.attention_backward %dbranch#1, %arg72, ...",
        "    visible(#nsa.selected<block = 16, count = 4>, %arg79 : ...) : ...",
        "%mean_144 = nn.all_reduce %sum : (tensor<f32>) -> tensor<f32>",
        "%norm = nn.gradient_norm %flat_145 : (tensor<141152xf32>) -> tensor<f32>",
        "%weight, %moment1, %moment2 = nn.adamw %flat_146, ..., %norm, %mean_144, ..."]),
    ("kernels", "kernel", [
        "tile.kernel private @gated_attention_sigmoid_...(%arg0: memref<2x256x4x16xbf16>, ...",
        "  %19:3 = scf.for %arg11 = %c0_i32 to %18 step %c1_i32 iter_args(...) -> (...) {",
        "    %48 = tile.load %arg2[%2, %45, %3, %8] : ... -> !tile.tile<16x16xbf16>",
        "    %52 = tile.dot %9, %48, %12 {transpose_b} : ...",
        "    %53 = tile.map (%52, %50, %51 : ...) -> !tile.tile<16x16xf32> {   // mask"]),
    ("host program", "buffer, schedule, collective, plan", [
        "rt.launch @rms_norm_t512x64_bf16 ins(%14, ...) outs(%15, %16 : ...)",
        "rt.gemm %15, %4, %17 workspace <@workspace, offset = 0, ...> {transpose_rhs} : ...",
        "rt.launch @select_b2s256h4x2d16_... ins(%21, %24, %30 : ...) outs(%31 : ...)",
        "rt.launch @gated_attention_backward_dkdv_selected_... ins(...) outs(...)",
        "rt.collective_start all_reduce %146 : memref<141152xf32>"]),
    ("model.nsax", "layout, nvvm, ptx, binary", [
        "mbarrier.try_wait.parity.shared.b64 P1, [%r109], %r110, 10000000;",
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier",
        "    ::complete_tx::bytes.L2::cache_hint [%rd47], [%rd2, {...}], [...], %rd48;",
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%r499, ...}, ...;",
        "// kernels, memory plan, lists of commands: one file"]),
]


def inputs_hash(name):
    text = repr(STAGES) if name == "pipeline" else (MEASURED / f"{name}.csv").read_text()
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def rows(name):
    """The rows of a measured file; an empty cell is None."""
    def number(value):
        try:
            return float(value) if value else None
        except ValueError:
            return value
    lines = [line for line in (MEASURED / f"{name}.csv").read_text().splitlines() if not line.startswith("#")]
    return [{key: number(value) for key, value in row.items()} for row in csv.DictReader(lines)]


def soften(axis):
    """A faint grid, and no frame around it."""
    axis.grid(color=FAINT, linewidth=0.6)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def draw_attention(plt):
    shown = [row for row in rows("attention") if row["heads"] == 64]
    figure, axis = plt.subplots(figsize=(7.2, 3.6))
    tokens = [row["tokens"] for row in shown]
    for name in ("dense", "sf", "nsa"):
        times = [row[name + "_total"] for row in shown]
        axis.plot(tokens, times, marker="o", color=COLOURS[name], linewidth=2.4 if name == "nsa" else 1.6)
        axis.annotate(f"{NAMES[name]}, {times[-1]:g} ms", (tokens[-1], times[-1]), xytext=(8, 0),
                      textcoords="offset points", va="center", color=COLOURS[name], fontsize=9)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(tokens, [f"{int(t) // 1024}k" for t in tokens])
    axis.set_yticks([2, 5, 10, 20, 50, 100, 200, 500], ["2", "5", "10", "20", "50", "100", "200", "500"])
    axis.minorticks_off()
    axis.set_xlabel("tokens of a sequence", color=INK)
    axis.set_ylabel("ms", color=INK)
    axis.set_title("Attention of one layer, forward and backward: 64 query and 4 key heads of 128,\n"
                   "bf16, one NVIDIA H200", fontsize=10, color=INK, loc="left")
    soften(axis)
    figure.subplots_adjust(left=0.08, right=0.66, top=0.84, bottom=0.15)
    return figure


def draw_losses(plt, name, curves, title, unit, top):
    """Losses over steps: `curves` has a column, a name, a colour and a style each."""
    figure, axis = plt.subplots(figsize=(7.2, 3.2))
    for column, label, colour, style in curves:
        points = [(row["step"], row[column]) for row in rows(name) if row[column] is not None]
        axis.plot(*zip(*points), style, color=colour, linewidth=1.4, markersize=3, label=label)
    axis.set_ylim(top=top)
    axis.set_xlabel("step", color=INK)
    axis.set_ylabel(unit, color=INK)
    axis.set_title(title, fontsize=10, color=INK, loc="left")
    soften(axis)
    axis.legend(frameon=False, fontsize=9)
    figure.subplots_adjust(left=0.09, right=0.97, top=0.86, bottom=0.16)
    return figure


def draw_production(plt):
    return draw_losses(plt, "production",
                       [("train", "training, mean of 500 steps", COLOURS["nsa"], "-"),
                        ("held_out", "held out", COLOURS["sf"], "o-")],
                       "m7c_125m, bytes, 8,192 tokens a step, one NVIDIA H100", "nats/byte", top=1.6)


def draw_optimizers(plt):
    return draw_losses(plt, "optimizers",
                       [("adamw", "AdamW, mean of 10 steps", COLOURS["dense"], "-"),
                        ("adamw_held_out", "AdamW, held out", COLOURS["dense"], "o"),
                        ("muon", "Muon, mean of 10 steps", COLOURS["nsa"], "-"),
                        ("muon_held_out", "Muon, held out", COLOURS["nsa"], "o")],
                       "gpt2_124m, 65,536 tokens a step, the same tokens, one NVIDIA H100", "nats/token", top=6)


def draw_decode(plt):
    figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.0), sharey=False)
    for axis, batch in zip(axes, (1, 64)):
        shown = [row for row in rows("decode") if row["batch"] == batch]
        contexts = [row["context"] for row in shown]
        for name, label in (("dense", "dense, PyTorch"), ("nsa", "nsa")):
            axis.plot(contexts, [row[name] for row in shown], marker="o", color=COLOURS[name], label=label,
                      linewidth=2.4 if name == "nsa" else 1.6)
        axis.set_xscale("log", base=2)
        axis.set_xticks(contexts, [f"{int(c) // 1024}k" for c in contexts])
        axis.minorticks_off()
        axis.set_ylim(bottom=0)
        axis.set_xlabel("tokens of context", color=INK)
        axis.set_title(f"batch {batch}", fontsize=9, color=INK)
        soften(axis)
    axes[0].set_ylabel("ms a token", color=INK)
    axes[0].legend(frameon=False, fontsize=9, loc="lower right")
    figure.suptitle("Decoding with llama_1b's shape, bf16, one NVIDIA H100", fontsize=10, color=INK, x=0.09, ha="left")
    figure.subplots_adjust(left=0.09, right=0.98, top=0.82, bottom=0.17, wspace=0.18)
    return figure


# Arms of docs/quality.md with 150 million tokens, and those of recall.csv.
ARMS = {"dense": ("dense", COLOURS["dense"]), "quarter": ("a quarter selected", COLOURS["nsa"]),
        "nsa": ("NSA as published", COLOURS["sf"]), "window": ("windows of 512", "#8250df")}
# A quarter of the sequence is selected, of 2,048 tokens half.
QUARTERS = {2048: "windows-64-nsa-4th-shared-b32-n32", 8192: "windows-64-nsa-4th-shared-b32-n64",
            32768: "windows-64-nsa-4th-shared-n128"}


def of_arm(name, length, arm, seeds, at):
    """Points (at, mean loss of the seeds) of an arm's rows of 150 million tokens."""
    full = QUARTERS[length] if arm == "quarter" else arm + "-rope-500k-staged"
    losses = {}
    for row in rows(name):
        if (row["length"], row["arm"], row["tokens"]) == (length, full, 150077440) and row["seed"] in seeds:
            losses.setdefault(row[at], []).append(row["loss"])
    return [(key, sum(values) / len(values)) for key, values in sorted(losses.items())]


def panels(plt, titles, label, unit):
    """Axes side by side with titles and a legend's place."""
    figure, axes = plt.subplots(1, len(titles), figsize=(8.4, 3.1))
    for axis, title in zip(axes, titles):
        axis.set_title(title, fontsize=9, color=INK)
        axis.set_xlabel(label, color=INK)
        soften(axis)
    axes[0].set_ylabel(unit, color=INK)
    figure.subplots_adjust(left=0.09, right=0.98, top=0.82, bottom=0.17, wspace=0.22)
    return figure, axes


def draw_curves(plt):
    figure, axes = panels(plt, [f"{length:,} tokens" + " (half selected)" * (length == 2048) for length in QUARTERS], "million tokens", "nats/byte")
    for axis, length in zip(axes, QUARTERS):
        for arm, (label, colour) in ARMS.items():
            points = of_arm("quality-curves", length, arm, (1, 2), "at")
            axis.plot([at / 1e6 for at, _ in points], [loss for _, loss in points], color=colour, linewidth=1.4, label=label)
        axis.set_ylim(0.4, 1.6)
    axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle("Training loss, means of 1/40 of a run, two seeds", fontsize=10, color=INK, x=0.08, ha="left")
    return figure


def draw_positions(plt):
    shown = {8192: (1, 2), 32768: (1,)}
    figure, axes = panels(plt, [f"{length:,} tokens, seeds {', '.join(map(str, seeds))}" for length, seeds in shown.items()],
                          "position in the sequence, up to", "nats/byte above dense")
    for axis, (length, seeds) in zip(axes, shown.items()):
        dense = dict(of_arm("quality-positions", length, "dense", seeds, "last"))
        for arm in ("quarter", "nsa", "window"):
            points = of_arm("quality-positions", length, arm, seeds, "last")
            axis.plot([last for last, _ in points], [loss - dense[last] for last, loss in points], marker="o", markersize=3,
                      color=ARMS[arm][1], label=ARMS[arm][0])
        axis.axhline(0, color=ARMS["dense"][1], linewidth=1)
        axis.set_xscale("log", base=2)
        axis.set_xticks(list(dense)[::2], [f"{last:,.0f}" for last in list(dense)[::2]])
        axis.minorticks_off()
    axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle("Held-out loss by position, less dense's", fontsize=10, color=INK, x=0.08, ha="left")
    return figure


def draw_recall(plt):
    figure, axes = panels(plt, ["copying drawn letters, not trained for it", "a number told in text, not trained for it",
                                "recall of 32 pairs, trained for it"], "distance in tokens, from", "accuracy")
    for axis, task in zip(axes, ("copying", "needle", "recall")):
        for arm in ("dense", "quarter"):
            for length, style in ((2048, ":"), (8192, "--"), (32768, "-")):
                points = [(row["from"], row["accuracy"]) for row in rows("recall")
                          if (row["task"], row["layers"], row["length"]) == (task, arm, length)]
                axis.plot(*zip(*points), style, color=ARMS[arm][1], linewidth=1.4, label=f"{ARMS[arm][0]}, {length:,}")
        axis.set_xscale("log", base=2)
        axis.set_xticks([8, 128, 2048, 16384], ["8", "128", "2,048", "16,384"])
        axis.minorticks_off()
        axis.set_ylim(-0.03, 1.03)
    axes[0].legend(frameon=False, fontsize=7, loc="lower left")
    return figure


def draw_pipeline(plt):
    height = 1.42
    figure, axis = plt.subplots(figsize=(8.6, height * len(STAGES) * 0.74))
    axis.set_xlim(0, 10)
    axis.set_ylim(-height * len(STAGES) + 0.25, 0.3)
    axis.axis("off")
    for number, (title, maker, lines) in enumerate(STAGES):
        top = -number * height
        axis.add_patch(plt.Rectangle((0.05, top - 0.98), 2.5, 0.98, facecolor="#ddf4ff", edgecolor=COLOURS["nsa"]))
        axis.text(1.3, top - 0.34, title, ha="center", va="center", fontsize=11, weight="bold", color=INK)
        axis.text(1.3, top - 0.70, maker, ha="center", va="center", fontsize=7.6, color=INK)
        axis.add_patch(plt.Rectangle((2.85, top - 0.98), 7.1, 0.98, facecolor="#f6f8fa", edgecolor=FAINT))
        for row, line in enumerate(lines):
            axis.text(2.98, top - 0.13 - 0.182 * row, line, family="monospace", fontsize=8, va="center", color=INK)
        if number + 1 < len(STAGES):
            axis.annotate("", (1.3, top - height + 0.02), (1.3, top - 0.98),
                          arrowprops={"arrowstyle": "-|>", "color": COLOURS["nsa"], "linewidth": 1.6})
    figure.subplots_adjust(left=0.01, right=0.99, top=0.99, bottom=0.01)
    return figure


#: What is drawn, by the name of its file.
PICTURES = {"attention": draw_attention, "pipeline": draw_pipeline, "production": draw_production,
            "optimizers": draw_optimizers, "decode": draw_decode, "quality-curves": draw_curves,
            "quality-positions": draw_positions, "recall": draw_recall}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--png", metavar="FOLDER", help="write PNG files there instead")
    arguments = parser.parse_args()
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "nsa", "svg.fonttype": "none", "font.family": "DejaVu Sans"})
    from matplotlib import pyplot as plt
    for name, draw in PICTURES.items():
        figure = draw(plt)
        if arguments.png:
            pathlib.Path(arguments.png).mkdir(parents=True, exist_ok=True)
            figure.savefig(pathlib.Path(arguments.png) / f"{name}.png", dpi=110)
        else:
            figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None, "Description": "drawn from " + inputs_hash(name)})


if __name__ == "__main__":
    main()
