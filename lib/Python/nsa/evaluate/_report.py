"""Results as tables and as a picture."""

import importlib.util
import os

from nsa._runtime import InputError

_PICTURES = (".svg", ".png", ".pdf")


def _table(heads, rows):
    cells = [heads, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in cells]


def _range(row):
    return f"{row['from']}" if row["from"] == row["to"] else f"{row['from']}-{row['to']}"


def _loss(result):
    unit = "" if result["bits_per_byte"] is None else f" | {result['bits_per_byte']:.4f} bits/byte"
    if result["text_after"]:
        unit += f" of text after {result['text_after']}"
    yield (f"loss {result['loss']:.4f} nats/token{unit} | perplexity {result['perplexity']:.3f} | {result['data']}: "
           f"{result['tokens']:,} tokens in {result['windows']:,} windows of {result['seq_len']:,}")
    for title, key in (("position", "by_position"), ("document length", "by_document_length")):
        if result[key]:
            yield from _table([title, "tokens", "loss"],
                              [[_range(row), row["tokens"], f"{row['loss']:.4f}"] for row in result[key]])


def _probe(name, result):
    chance = f" (chance {result['chance']:.3f})" if "chance" in result else ""
    yield (f"{name}: accuracy {result['accuracy']:.3f}{chance} | loss {result['loss']:.4f} | "
           f"{result['answers']:,} answers")
    yield from _table(["distance", "answers", "accuracy", "loss"],
                      [[_range(row), row["answers"], f"{row['accuracy']:.3f}", f"{row['loss']:.4f}"]
                       for row in result["by_distance"]])


def _choices(result):
    yield (f"{result['file']}: accuracy {result['accuracy']:.4f}, per character "
           f"{result['accuracy_per_character']:.4f}, per token {result['accuracy_per_token']:.4f} "
           f"(chance {result['chance']:.4f}) | {result['items']:,} items")
    if result["truncated"]:
        yield f"  {result['truncated']} contexts are longer than the model takes and lost their beginning"


def lines(results):
    """The lines that nsa-eval prints."""
    yield f"{results['checkpoint']} | step {results['step']} | {results['target']} | {results['precision']}"
    for key, result in results.items():
        if key == "loss":
            for part in result:
                yield from _loss(part)
        elif key == "choices":
            for part in result:
                yield from _choices(part)
        elif key == "probes":
            for name, part in result.items():
                yield from _probe(name, part)


def check_plot(path):
    """Refuses a picture that cannot be drawn, before anything is evaluated."""
    if os.path.splitext(path)[1] not in _PICTURES:
        raise InputError(f"--plot is '{path}', expected a name that ends with {', '.join(_PICTURES)}")
    if not importlib.util.find_spec("matplotlib"):
        raise InputError("--plot is drawn with the package 'matplotlib' of PyPI, which is not installed")


def plot(results, names, path):
    """Accuracy by distance: a panel for each probe, a line for each of the results."""
    from matplotlib.figure import Figure
    probes = list(results[0]["probes"])
    figure = Figure(figsize=(3.6 * len(probes) + 0.6, 3.2), layout="constrained")
    for axis, probe in zip(figure.subplots(1, len(probes), squeeze=False)[0], probes):
        for name, result in zip(names, results):
            rows = result["probes"][probe]["by_distance"]
            axis.plot([row["from"] for row in rows], [row["accuracy"] for row in rows], marker="o", markersize=3, label=name)
        axis.set_xscale("log", base=2)
        axis.set_ylim(-0.03, 1.03)
        axis.set(title=probe, xlabel="distance in tokens, from", ylabel="accuracy")
        axis.grid(alpha=0.4)
    figure.axes[0].legend(fontsize=8)
    try:
        figure.savefig(path)
    except OSError as error:
        raise InputError(f"cannot write '{path}': {error.strerror}") from error
