"""Reads records that a run appends, and passes them on in the order of steps."""

import hashlib
import json
import pathlib
import time

from nsa._optional import require
from nsa._runtime import InputError

# What a run's last heartbeat says.
ENDS = ("finished", "halted", "interrupted", "nan_loss")
# Of a step's heartbeat, what is no measure of training.
_OWN = ("ts", "iso", "pid", "rank", "step", "msg")


class _Lines:
    """The complete lines of a file that have been added since the last look."""

    def __init__(self, path):
        self.path, self.at = path, 0

    def new(self):
        if not self.path.is_file():
            return []
        with open(self.path, "rb") as file:
            file.seek(self.at)
            text = file.read()
        text = text[:text.rfind(b"\n") + 1]
        self.at += len(text)
        records = []
        for line in text.splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and isinstance(record.get("step"), int):
                records.append(record)
        return records


def _step_values(record):
    return {f"train/{name}": value for name, value in record.items() if name not in _OWN and value is not None}


def _evaluation_values(record):
    """Losses of an evaluation, and its gates and selections by layer."""
    values = {}
    if record.get("loss") is not None and record.get("msg") != "stage_end":
        values["val/loss"] = record["loss"]
    for part in record.get("positions", []):
        if part["tokens"]:
            values[f"val/loss_to_position/{part['last']}"] = part["loss"]
    if "earlier_length" in record:
        values["val/loss_at_earlier_length"] = record["earlier_length"]["loss"]
    for layer, gates in enumerate(record.get("gates", [])):
        for name, value in zip(("compressed", "selected", "window", "entropy"), gates):
            values[f"gates/{layer}/{name}"] = value
    for layer, selected in enumerate(record.get("selections", [])):
        for name, value in zip(("blocks", "distance", "distinct"), selected):
            values[f"selection/{layer}/{name}"] = value
    return values


class _Follower:
    def __init__(self, path, run):
        self.path, self.run = path, run
        self.heartbeats, self.evaluations = _Lines(path / "heartbeat_rank0.jsonl"), _Lines(path / "eval.jsonl")
        # Of a run that was followed before, what is there already.
        self.first = run.step
        self.ended = None

    def look(self):
        """Logs what is new. A step's evaluation follows its heartbeat, so heartbeats are read first."""
        heartbeats, evaluations = self.heartbeats.new(), self.evaluations.new()
        rows = [(record["step"], _step_values(record)) for record in heartbeats if "loss" in record]
        rows += [(record["step"], _evaluation_values(record)) for record in evaluations]
        for step, values in sorted(rows, key=lambda row: row[0]):
            # Steps only rise there: those of a run that went back to a checkpoint are left out until it is further.
            if step >= self.first and values:
                self.run.log(values, step=step)
                self.first = step
        for record in heartbeats:
            self.ended = record["msg"] if record.get("msg") in ENDS else None

    def finish(self):
        metrics = self.path / "metrics.json"
        if self.ended and metrics.is_file():
            self.run.summary.update(json.loads(metrics.read_text()))
        self.run.finish(exit_code=0 if self.ended in (None, "finished", "halted") else 1)


def follow(path, project=None, name=None, once=False, seconds=5.0):
    """Logs a run to Weights & Biases until it ends; `once` logs what there is by now. Started again, it goes on.

    path: directory of a run of nsa-train. project, name: of wandb.init; the run is called after its directory.
    seconds: between two looks. Returns how the run ended, or None. InputError: path is no run, or wandb is missing.
    """
    path = pathlib.Path(path).resolve()
    if not (path / "config.json").is_file():
        raise InputError(f"'{path}' is no run of nsa-train: it has no config.json")
    wandb = require("wandb", "following a run")
    config = json.loads((path / "config.json").read_text())
    run = wandb.init(project=project, name=name or path.name, config=config, resume="allow",
                     id=hashlib.sha256(str(path).encode()).hexdigest()[:16])
    follower = _Follower(path, run)
    try:
        follower.look()
        while not once and not follower.ended:
            time.sleep(seconds)
            follower.look()
    finally:
        follower.finish()
    return follower.ended
