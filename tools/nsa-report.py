#!/usr/bin/env python3
"""Draws runs of nsa-train as one page of HTML that needs nothing else.

    tools/nsa-report.py runs/a runs/b -o report.html

Losses against tokens, time and the position in the window, learning rate, gradient
norm, throughput, gates and selection over time and by layer, the keys in which the
runs differ, and their samples.
"""

import argparse
import csv
import html
import json
import math
import pathlib
import re
import sys

COLORS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2"]
WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 80, 12, 12, 40
# A line is drawn through the means of at most as many parts, and a map has at most
# as many columns.
MOST_POINTS = 400
MOST_COLUMNS = 80
BRANCHES = ("compressed", "selected", "window")

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 1em; color: #222;
  display: grid; grid-template-columns: repeat(auto-fill, minmax(min(500px, 100%), 1fr)); gap: 0 1.5em; justify-items: start; }
body > :not(figure) { grid-column: 1 / -1; max-width: 100%; }
figure { margin: 0 0 1.5em 0; width: 100%; }
figure > svg { width: 100%; height: auto; }
figcaption { font-weight: 600; }
table { border-collapse: collapse; margin-bottom: 1.5em; }
td, th { padding: 0.2em 0.8em; border-bottom: 1px solid #ddd; text-align: right; font-variant-numeric: tabular-nums; }
td:first-child, th:first-child { text-align: left; }
pre { background: #f4f4f4; padding: 0.8em; overflow-x: auto; white-space: pre-wrap; }
figure span { margin-right: 1.2em; font-size: 13px; }
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
    return json.loads(path.read_text()) if path.is_file() else default


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
        self.heartbeats = list(self.read_records("heartbeat_rank0.jsonl", "gate_compressed"))
        self.evaluations = list(self.read_records("eval.jsonl", "loss"))
        self.switches = list(self.read_records("eval.jsonl", "earlier_length"))
        samples = path / "samples.txt"
        self.samples = split_samples(samples.read_text(errors="replace")) if samples.is_file() else []

    def read_records(self, name, key):
        """The last record of each step and message that has this key."""
        records = {}
        path = self.path / name
        if not path.is_file():
            return []
        for line in path.read_text(errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and record.get(key) is not None:
                records[record["step"], record.get("msg", "")] = record
        return [records[place] for place in sorted(records) if place[0] <= self.steps[-1]]

    def held_out(self, key):
        """The evaluations of all windows that have this key."""
        return [record for record in self.evaluations if record.get(key) and record.get("msg") != "stage_end"]

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


def split_samples(text):
    """The headings and texts of samples.txt."""
    parts = re.split(r"^== (sample .*\(step \d+.*\):)$", text, flags=re.M)
    return list(zip(parts[1::2], (part.strip("\n") for part in parts[2::2]))) or [("samples", text)]


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


def axes(across, up):
    """What the numbers below and beside a picture count."""
    middle = (HEIGHT - BOTTOM + TOP) / 2
    return (f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{html.escape(across)}</text>'
            f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">{html.escape(up)}</text>')


def figure(title, svg):
    return f"<figure><figcaption>{html.escape(title)}</figcaption>{''.join(svg)}</figure>"


def chart(title, across, up, lines, doubling=False):
    """A figure of `lines`, each (name, colour, points, dashed), over units of both axes. With `doubling`, steps across are factors."""
    lines = [(name, color, thin(points), dashed) for name, color, points, dashed in lines]
    lines = [line for line in lines if line[2]]
    if not lines:
        return ""
    xs = [x for line in lines for x, _ in line[2]]
    ys = [y for line in lines for _, y in line[2]]
    low, high = min(ys), max(ys)
    margin = (high - low) * 0.04 or abs(high) * 0.04 or 1
    low, high, first, last = low - margin, high + margin, min(xs), max(xs)
    # Lines that begin late would be short ones.
    if not doubling and 0 < first < last / 2:
        first = 0

    def place(x, y):
        if doubling:
            part = math.log(x / first) / (math.log(last / first) or 1)
        else:
            part = (x - first) / (last - first or 1)
        return LEFT + part * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">']
    for y in ticks(low, high):
        _, at = place(first, y)
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{short(y)}</text>')
    for x in sorted(set(xs)) if doubling else ticks(first, last):
        at, _ = place(x, low)
        out.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{short(x)}</text>')
    out.append(axes(across, up))
    for _, color, points, dashed in lines:
        path = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6"{dash}/>')
        if len(points) == 1:
            x, y = place(*points[0])
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>')
    out.append("</svg>")
    return figure(title, [legend(lines), *out])


def legend(lines):
    """Names of lines beside pieces of them; a name that is drawn twice, once."""
    named = {}
    for name, color, _, dashed in lines:
        named.setdefault((name, color), dashed)
    return "<div>" + "".join(
        f'<span><svg width="24" height="8"><line x1="0" x2="24" y1="4" y2="4" stroke="{color}" stroke-width="2"'
        + (' stroke-dasharray="5 4"' if dashed else "") + f"/></svg> {html.escape(name)}</span>"
        for (name, color), dashed in named.items()) + "</div>"


def heat_map(title, columns, rows, layers):
    """A figure of numbers: `rows` of them, each of a layer and as long as `columns`, which are tokens; the first one below."""
    stride = math.ceil(len(columns) / MOST_COLUMNS) or 1
    columns, rows = columns[::stride], [row[::stride] for row in rows]
    cells = [value for row in rows for value in row]
    low, high = min(cells), max(cells)
    width, height = (WIDTH - LEFT - RIGHT - 60) / len(columns), (HEIGHT - TOP - BOTTOM) / len(rows)

    def shade(value):
        part = (value - low) / (high - low or 1)
        return "#%02x%02x%02x" % tuple(round(a + (b - a) * part) for a, b in ((247, 8), (251, 48), (255, 107)))

    def rectangle(x, y, wide, high, value):
        return (f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" '
                f'fill="{shade(value)}"><title>{value:.4g}</title></rect>')

    out = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">']
    for i, row in enumerate(rows):
        y = HEIGHT - BOTTOM - (i + 1) * height
        out += [rectangle(LEFT + j * width, y, width + 0.2, height + 0.2, value) for j, value in enumerate(row)]
        if len(rows) <= 16 or i % 4 == 0:
            out.append(f'<text x="{LEFT - 6}" y="{y + height / 2 + 4:.1f}" text-anchor="end">{layers[i]}</text>')
    for j in range(0, len(columns), math.ceil(len(columns) / 5)):
        out.append(f'<text x="{LEFT + (j + 0.5) * width:.1f}" y="{HEIGHT - BOTTOM + 16}" '
                   f'text-anchor="middle">{short(columns[j])}</text>')
    for i in range(20):
        y = HEIGHT - BOTTOM - (i + 1) * (HEIGHT - TOP - BOTTOM) / 20
        out.append(rectangle(WIDTH - 62, y, 14, (HEIGHT - TOP - BOTTOM) / 20 + 0.2, low + (high - low) * (i + 0.5) / 20))
    for value, y in ((low, HEIGHT - BOTTOM), (high, TOP + 10)):
        out.append(f'<text x="{WIDTH - 44}" y="{y}">{value:.3g}</text>')
    return figure(title, [*out, axes("tokens", "layer"), "</svg>"])


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

    yield chart("Loss", "tokens", "nats per token", lines(Run.tokens, "loss") + validation(Run.tokens_at))
    yield chart("Loss", "minutes in steps", "nats per token", lines(Run.minutes, "loss") + validation(minutes_at))
    yield chart("Learning rate", "tokens", "learning rate", lines(Run.tokens, "lr"))
    yield chart("Norm of the gradients", "tokens", "norm", lines(Run.tokens, "grad_norm"))
    yield chart("Throughput", "tokens", "tokens/s", lines(Run.tokens, "toks_per_s"))
    yield chart("Loss by position in the window", "position in tokens, up to", "nats per token",
                [line for run, color in runs for line in position_lines(run, color)], doubling=True)
    yield chart("Held-out loss at the length of the stage before", "tokens", "nats per token",
                [line for run, color in runs for line in switch_lines(run, color)])


def position_lines(run, color):
    """Of the last evaluation, and dashed of one before half of it."""
    records = run.held_out("positions")
    for record in records[-1:] + records[:-1][len(records) // 4:][:1]:
        points = [(part["last"], part["loss"]) for part in record["positions"] if part["tokens"]]
        yield (f"{run.name}, {short(run.tokens_at(record['step']))}", color, points, record is not records[-1])


def switch_lines(run, color):
    """For each switch, the loss of the stage before at its end and that of the same tokens from then on."""
    for stage in sorted({record["stage"] for record in run.switches}):
        before = [(run.tokens_at(record["step"]), record["loss"]) for record in run.evaluations
                  if record.get("msg") == "stage_end" and record["stage"] == stage - 1]
        after = [record for record in run.switches if record["stage"] == stage]
        points = [(run.tokens_at(record["step"]), record["earlier_length"]["loss"]) for record in after]
        name = f"{run.name}, first {short(after[0]['earlier_length']['last'])}"
        yield name, color, before + points, False


def attention_charts(runs):
    for run, _ in runs:
        def line(number, name, key):
            points = [(run.tokens_at(record["step"]), record.get(key, math.nan)) for record in run.heartbeats]
            return name, COLORS[number], points, False

        yield chart(f"Mean gates of {run.name}", "tokens", "gate, 0 to 1",
                    [line(i, name, f"gate_{name}") for i, name in enumerate(BRANCHES)])
        yield chart(f"Selection of {run.name}", "tokens", "blocks",
                    [line(0, "distance", "sel_k_distance"), line(1, "selected", "sel_k_mean"),
                     line(2, "distinct", "sel_k_distinct")])
        yield from layer_charts(run)


def layer_charts(run):
    """Gates and selection by layer, as evaluations found them."""
    gates, selections = run.held_out("gates"), run.held_out("selections")

    def layers_of(record, key):
        """Numbers of layers in the model; earlier versions counted those of a kind."""
        return record.get("layers", range(len(record[key])))

    def by_layer(records, key, value):
        """A line of the last evaluation, and dashed of the first."""
        lines = []
        for record, dashed in ((records[-1], False), (records[0], True)):
            lines.append((list(zip(layers_of(record, key), map(value, record[key]))), dashed))
        return lines

    def tokens(records):
        return [run.tokens_at(record["step"]) for record in records]

    if gates:
        yield chart(f"Gates of {run.name} by layer (dashed: the first evaluation)", "layer", "gate, 0 to 1",
                    [(name, COLORS[i], points, dashed) for i, name in enumerate(BRANCHES)
                     for points, dashed in by_layer(gates, "gates", lambda layer: layer[i])])
        for i, name in enumerate(BRANCHES):
            rows = [[record["gates"][layer][i] for record in gates] for layer in range(len(gates[-1]["gates"]))]
            yield heat_map(f"Gate of the {name} branch of {run.name}", tokens(gates), rows, layers_of(gates[-1], "gates"))
    if selections:
        yield chart(f"Selection of {run.name} by layer: distance (dashed: the first evaluation)", "layer", "blocks",
                    [("distance", COLORS[0], *line) for line in by_layer(selections, "selections", lambda s: s[1])])
        # One query's blocks of those that the queries of its block select together: 1 if all select the same.
        yield chart(f"Selection of {run.name} by layer: overlap of the queries of a block (dashed: the first evaluation)", "layer", "part",
                    [("overlap", COLORS[1], *line)
                     for line in by_layer(selections, "selections", lambda s: s[0] / s[2] if s[2] else math.nan)])


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
         number(run.metrics.get("toks_per_s"), "{:,.0f}"), number(run.metrics.get("mfu"), "{:.1%}"))
        for run, _ in runs
    ]
    return table(("run", "parameters", "steps", "tokens", "end", "loss", "held out", "tokens/s", "MFU"), rows)


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
            parts.append(f"<h2>Samples of {html.escape(run.name)}</h2>")
        parts += [f"<h3>{html.escape(heading)}</h3><pre>{html.escape(text)}</pre>" for heading, text in run.samples]
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
