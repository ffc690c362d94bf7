"""Shows that the harness fails: tools that lie are counted, in the right column."""

import os
import pathlib
import shutil

from main import Counts, run_case

# Cases of each row; a few, since a lie is one in all of them.
CASES = 4
# What the tools do, the columns in which that must be counted.
LIES = {"silently": ("silent",), "signal": ("crashed",), "mute": ("wrong",)}
# Rows whose cases meet liars under all three names.
REFUSALS = ("checkpoints", "shards", "manifests", "changes")


def liars(lab):
    """A folder with a liar for every tool."""
    folder = lab.scratch / "liars"
    folder.mkdir()
    source = pathlib.Path(__file__).with_name("liar.py")
    for tool in lab.tools.iterdir():
        if tool.name.startswith("nsa-") and os.access(tool, os.X_OK):
            shutil.copy(source, folder / tool.name)
            (folder / tool.name).chmod(0o755)
    return folder


def prepare(lab, row):
    """What cases share is made by the real tools."""
    lab.reference()
    lab.stopped_run()


def run(lab, rows, seed):
    """Exit code 0 if every lie is found."""
    os.environ["NSA_LIE_TOOLS"] = str(lab.tools)
    words = lab.command(lab.scratch, "--no-progress")
    at = words.index("--out-dir")
    os.environ["NSA_LIE_COMMAND"] = "\n".join(map(str, words[:at] + words[at + 2:]))
    os.environ["NSA_LIE_RUNS"] = str(lab.scratch / "nowhere")
    failed = passed = 0
    for row in rows:
        prepare(lab, row)
        for lie, columns in LIES.items():
            if lie != "silently" and row.name not in REFUSALS:
                continue
            os.environ["NSA_LIE"] = lie
            honest, lab.tools = lab.tools, lab.once("liars", lambda: liars(lab))
            counts = Counts(row)
            for number in range(CASES):
                counts.add(*run_case(lab, row, f"{seed} {lie}", number, keep=False))
                shutil.rmtree(lab.scratch / row.name, ignore_errors=True)
            lab.tools = honest
            found = sum(len(getattr(counts, column)) for column in columns)
            good = found == CASES
            passed, failed = passed + good, failed + (not good)
            print(f"{row.name}, {lie}: {found} of {CASES} counted as {columns[0]}"
                  + ("" if good else f": MISSED {counts.good} {counts.bad()}"), flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
