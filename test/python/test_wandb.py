"""nsa.wandb on a module that records its calls; no account and no network."""

import json
import sys
import types

import pytest

import nsa
from nsa.wandb.__main__ import main


class RecordedRun:
    def __init__(self, step):
        self.step, self.logged, self.summary, self.code = step, [], {}, None

    def log(self, values, step):
        assert step >= self.step, "wandb takes no step before the last one"
        self.step = step
        self.logged.append((step, values))

    def finish(self, exit_code):
        self.code = exit_code


@pytest.fixture
def wandb(monkeypatch):
    stub = types.ModuleType("wandb")
    stub.runs, stub.arguments, stub.step = [], [], 0

    def init(**arguments):
        stub.arguments.append(arguments)
        stub.runs.append(RecordedRun(stub.step))
        return stub.runs[-1]

    stub.init = init
    monkeypatch.setitem(sys.modules, "wandb", stub)
    return stub


def append(path, *records):
    with open(path, "a") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "small"
    path.mkdir()
    (path / "config.json").write_text('{"train": {"lr": 0.1}}')
    append(path / "heartbeat_rank0.jsonl", {"step": 0, "msg": "start", "memory": 1},
           {"step": 1, "msg": "step", "ts": 1.0, "loss": 5.0, "lr": 0.1, "gate_selected": 0.5},
           {"step": 2, "msg": "step", "ts": 2.0, "loss": 4.0, "lr": 0.1}, {"step": 2, "msg": "validated"})
    append(path / "eval.jsonl",
           {"step": 2, "msg": "validated", "loss": 4.5, "tokens": 10, "gates": [[0.1, 0.2, 0.3, 1.0]],
            "selections": [[3.0, 2.0, 4.0]], "positions": [{"last": 64, "loss": 4.75, "tokens": 5}]})
    return path


def test_follow_records_of_a_run_are_logged_by_step(wandb, run):
    with open(run / "heartbeat_rank0.jsonl", "a") as file:
        file.write('{"step": 3, "msg": "step", "lo')
    assert main([str(run), "--project", "p", "--once"]) == 0
    [arguments], [made] = wandb.arguments, wandb.runs
    assert (arguments["project"], arguments["name"], arguments["config"]) == ("p", "small", {"train": {"lr": 0.1}})
    assert made.logged == [
        (1, {"train/loss": 5.0, "train/lr": 0.1, "train/gate_selected": 0.5}),
        (2, {"train/loss": 4.0, "train/lr": 0.1}),
        (2, {"val/loss": 4.5, "val/loss_to_position/64": 4.75, "gates/0/compressed": 0.1, "gates/0/selected": 0.2,
             "gates/0/window": 0.3, "gates/0/entropy": 1.0, "selection/0/blocks": 3.0, "selection/0/distance": 2.0,
             "selection/0/distinct": 4.0}),
    ]
    assert made.code == 0 and made.summary == {}


def test_follow_started_again_goes_on_under_the_same_id(wandb, run):
    assert main([str(run), "--once"]) == 0
    wandb.step = 3
    append(run / "heartbeat_rank0.jsonl", {"step": 3, "msg": "step", "loss": 3.0}, {"step": 3, "msg": "finished"})
    (run / "metrics.json").write_text('{"val_loss": 3.5}')
    assert main([str(run)]) == 0
    assert wandb.arguments[0]["id"] == wandb.arguments[1]["id"]
    assert wandb.runs[1].logged == [(3, {"train/loss": 3.0})]
    assert wandb.runs[1].summary == {"val_loss": 3.5} and wandb.runs[1].code == 0


def test_follow_growing_run_is_read_to_its_end(wandb, run, monkeypatch):
    steps = iter([
        [{"step": 3, "msg": "step", "loss": 3.0}],
        # The run goes on from the checkpoint of step 2.
        [{"step": 2, "msg": "start"}, {"step": 3, "msg": "step", "loss": 3.0}, {"step": 4, "msg": "step", "loss": 2.0}],
        [{"step": 4, "msg": "nan_loss"}],
    ])
    monkeypatch.setattr("time.sleep", lambda seconds: append(run / "heartbeat_rank0.jsonl", *next(steps)))
    assert nsa.wandb.follow(run) == "nan_loss"
    assert [step for step, _ in wandb.runs[0].logged] == [1, 2, 2, 3, 3, 4]
    assert wandb.runs[0].code == 1


def test_follow_without_wandb_is_one_error(run, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main([str(run), "--once"]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("nsa.wandb: error: following a run needs the Python package wandb, which is not installed")


def test_follow_no_run_is_an_error(wandb, tmp_path, capsys):
    assert main([str(tmp_path)]) == 1
    assert f"'{tmp_path}' is no run of nsa-train: it has no config.json" in capsys.readouterr().err
    assert wandb.arguments == []
