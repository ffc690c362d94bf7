#!/usr/bin/env python3
"""Draws runs of nsa-train as one page of HTML that needs nothing else.

    tools/nsa-report.py runs/a runs/b -o report.html

Losses against tokens and time, learning rate, gradient norm, throughput, shares of
the gates, what selection chose, the keys in which the runs differ, and their samples.
"""

import argparse
import csv
import html
import json
import math
import pathlib
import sys

COLORS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2"]
WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 40
# A line is drawn through the means of at most as many parts.
MOST_POINTS = 400

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1360px; margin: 2em auto; padding: 0 1em; color: #222; }
figure { display: inline-block; margin: 0 1em 1.5em 0; vertical-align: top; }
figcaption { font-weight: 600; }
table { border-collapse: collapse; margin-bottom: 1.5em; }
td, th { padding: 0.2em 0.8em; border-bottom: 1px solid #ddd; text-align: right; font-variant-numeric: tabular-nums; }
td:first-child, th:first-child { text-align: left; }
pre { background: #f4f4f4; padding: 0.8em; overflow-x: auto; white-space: pre-wrap; }
svg text { font: 12px system-ui, sans-serif; fill: #444; }
"""


class ReportError(Exception):
    pass


def read_table(path):
    """Columns of a CSV file by name; what is no number is NaN."""
    columns = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            for name, text in row.items():
                try:
                    value = float(text)
                except (TypeError, ValueError):
                    value = math.nan
                columns.setdefault(name, []).append(value)
    return columns


def read_json(path, default):
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return default


class Run:
    """What a run directory says."""

    def __init__(self, path):
        self.path = path = pathlib.Path(path)
        self.name = path.resolve().name
        for name in ("config.json", "training.csv"):
            if not (path / name).is_file():
                raise ReportError(f"'{path}' is no run of nsa-train: it has no {name}")
        try:
            self.config = json.loads((path / "config.json").read_text())
            self.metrics = read_json(path / "metrics.json", {})
            self.training = read_table(path / "training.csv")
            self.validation = read_table(path / "val.csv") if (path / "val.csv").is_file() else {}
        except ValueError as error:
            raise ReportError(f"'{path}' cannot be read: {error}") from None
        self.steps = self.training.get("step", [])
        if not self.steps:
            raise ReportError(f"'{path}' has no step in training.csv yet")
        self.heartbeats = list(self.read_heartbeats())
        samples = path / "samples.txt"
        self.samples = samples.read_text(errors="replace") if samples.is_file() else ""

    def read_heartbeats(self):
        """The last record of each step that has the statistics of attention."""
        records = {}
        path = self.path / "heartbeat_rank0.jsonl"
        if not path.is_file():
            return []
        for line in path.read_text(errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if "gate_compressed" in record:
                records[record["step"]] = record
        return [records[step] for step in sorted(records) if step <= self.steps[-1]]

    def tokens_at(self, step):
        """Tokens of all steps up to this one: of stages, if there are some."""
        train = self.config["train"]
        stages = self.config.get("stages") or [train]
        tokens, first = 0, 0
        for number, stage in enumerate(stages):
            last = math.inf if number + 1 == len(stages) else first + stage["steps"]
            tokens += max(min(step, last) - first, 0) * stage["batch_size"] * stage["seq_len"]
            first = last
        return tokens

    def tokens(self):
        return [self.tokens_at(step) for step in self.steps]

    def minutes(self):
        """Time in steps, without evaluations and saves, from tokens and throughput."""
        total, before, times = 0.0, 0, []
        for tokens, speed in zip(self.tokens(), self.training["toks_per_s"]):
            if speed > 0:
                total += (tokens - before) / speed
            before = tokens
            times.append(total / 60)
        return times


def thin(points):
    """Means of parts of equal length, without what is not finite."""
    points = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    size = math.ceil(len(points) / MOST_POINTS) or 1
    parts = (points[i:i + size] for i in range(0, len(points), size))
    return [tuple(sum(values) / len(part) for values in zip(*part)) for part in parts]


def ticks(low, high, most=6):
    """Round numbers between the bounds."""
    if high <= low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / most))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= most)
    return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def short(value):
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{suffix}"
    return f"{value:.4g}"


def chart(title, unit, lines):
    """A figure of `lines`, each (name, colour, points, dashed)."""
    lines = [(name, color, thin(points), dashed) for name, color, points, dashed in lines]
    lines = [line for line in lines if line[2]]
    if not lines:
        return ""
    xs = [x for line in lines for x, _ in line[2]]
    ys = [y for line in lines for _, y in line[2]]
    low, high = min(ys), max(ys)
    margin = (high - low) * 0.04 or abs(high) * 0.04 or 1
    low, high, first, last = low - margin, high + margin, min(xs + [0]), max(xs)

    def place(x, y):
        across, up = (x - first) / (last - first or 1), (y - low) / (high - low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">']
    for y in ticks(low, high):
        _, at = place(first, y)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{short(y)}</text>')
    for x in ticks(first, last):
        at, _ = place(x, low)
        out.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{short(x)}</text>')
    out.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{html.escape(unit)}</text>')
    for _, color, points, dashed in lines:
        path = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6"{dash}/>')
        if len(points) == 1:
            x, y = place(*points[0])
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>')
    for row, (name, color, _, dashed) in enumerate(lines):
        y, dash = TOP + 14 + 16 * row, ' stroke-dasharray="5 4"' if dashed else ""
        out.append(f'<line x1="{WIDTH - 200}" x2="{WIDTH - 176}" y1="{y - 4}" y2="{y - 4}" stroke="{color}"{dash}/>')
        out.append(f'<text x="{WIDTH - 170}" y="{y}">{html.escape(name[:24])}</text>')
    out.append("</svg>")
    return f"<figure><figcaption>{html.escape(title)}</figcaption>{''.join(out)}</figure>"


def training_charts(runs):
    def lines(x, column):
        return [(run.name, color, list(zip(x(run), run.training.get(column, []))), False) for run, color in runs]

    def validation(x):
        return [
            (run.name + ", held out", color, [(x(run, step), loss) for step, loss in
                                             zip(run.validation.get("step", []), run.validation.get("loss", []))], True)
            for run, color in runs
        ]

    def minutes_at(run, step):
        return dict(zip(run.steps, run.minutes())).get(step, math.nan)

    yield chart("Loss", "tokens", lines(Run.tokens, "loss") + validation(Run.tokens_at))
    yield chart("Loss", "minutes in steps", lines(Run.minutes, "loss") + validation(minutes_at))
    yield chart("Learning rate", "tokens", lines(Run.tokens, "lr"))
    yield chart("Norm of the gradients", "tokens", lines(Run.tokens, "grad_norm"))
    yield chart("Throughput, tokens/s", "tokens", lines(Run.tokens, "toks_per_s"))


def attention_charts(runs):
    for run, _ in runs:
        def line(number, name, key):
            points = [(run.tokens_at(record["step"]), record.get(key, math.nan)) for record in run.heartbeats]
            return name, COLORS[number], points, False

        branches = enumerate(("compressed", "selected", "window"))
        yield chart(f"Mean gates of {run.name}", "tokens", [line(i, name, f"gate_{name}") for i, name in branches])
        yield chart(f"Selection of {run.name}, blocks", "tokens",
                    [line(0, "distance", "sel_k_distance"), line(1, "selected", "sel_k_mean"),
                     line(2, "distinct", "sel_k_distinct")])


def table(head, rows):
    def row(cells, tag):
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    return "<table>" + row(head, "th") + "".join(row(cells, "td") for cells in rows) + "</table>"


def summary(runs):
    def number(value, form):
        return form.format(value) if isinstance(value, (int, float)) else ""

    rows = [
        (run.name, number(run.metrics.get("parameters"), "{:,}"), int(run.steps[-1]),
         short(run.tokens_at(run.steps[-1])), run.metrics.get("end", "no end yet"),
         f"{run.training['loss'][-1]:.4f}", number(run.metrics.get("val_loss"), "{:.4f}"),
         number(run.metrics.get("toks_per_s"), "{:,.0f}"))
        for run, _ in runs
    ]
    return table(("run", "parameters", "steps", "tokens", "end", "loss", "held out", "tokens/s"), rows)


def differences(runs):
    """The keys of the configuration that are not the same in all runs."""
    def flat(config):
        return {
            f"{section}.{key}" if isinstance(keys, dict) else section: keys[key] if isinstance(keys, dict) else keys
            for section, keys in config.items() for key in (keys if isinstance(keys, dict) else [""])
        }

    configs = [flat(run.config) for run, _ in runs]
    keys = sorted({key for config in configs for key in config})
    rows = [[key] + [config.get(key, "") for config in configs] for key in keys]
    rows = [row for row in rows if any(cell != row[1] for cell in row[2:])]
    return table(["key"] + [run.name for run, _ in runs], rows) if rows else "<p>The configurations are the same.</p>"


def page(runs):
    runs = [(run, COLORS[i % len(COLORS)]) for i, run in enumerate(runs)]
    parts = ["<h1>Runs</h1>", summary(runs), *training_charts(runs), "<h2>Attention</h2>", *attention_charts(runs)]
    if len(runs) > 1:
        parts += ["<h2>Configurations</h2>", differences(runs)]
    for run, _ in runs:
        if run.samples:
            parts.append(f"<h2>Samples of {html.escape(run.name)}</h2><pre>{html.escape(run.samples)}</pre>")
    return ('<!doctype html><html lang="en"><meta charset="utf-8"><title>Runs</title>'
            f"<style>{STYLE}</style><body>{''.join(parts)}</body></html>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="directory of a run")
    parser.add_argument("-o", "--output", default="report.html", help="the page (report.html)")
    arguments = parser.parse_args()
    try:
        text = page([Run(path) for path in arguments.runs])
        pathlib.Path(arguments.output).write_text(text)
    except (ReportError, OSError) as error:
        sys.exit(f"nsa-report: error: {error}")
    print(f"wrote {arguments.output}: {len(arguments.runs)} {'run' if len(arguments.runs) == 1 else 'runs'}")


if __name__ == "__main__":
    main()
