"""tools/quality.py on the processor: rows are trained once, stages too."""
import csv
import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

pytest.importorskip("yaml")

PLAN = {
    "corpus": 60000, "batches": 2,
    "model": {"model.dim": 16, "model.n_layers": 1, "model.n_heads": 2, "model.n_kv_groups": 1, "model.d_k": 8,
              "model.d_v": 8, "model.mlp_dim": 16, "nsa.l": 8, "nsa.d": 4, "nsa.l_sel": 16, "nsa.n_sel": 3, "nsa.w": 16,
              "runtime.device": "cpu", "runtime.precision": "fp32", "train.warmup_steps": 1},
    "arms": {"nsa": {}, "staged": {"stages": [{"share": 0.5, "seq_len": 64}, {"share": 0.5}]},
             "zero": {"rewrite": {"normal 0.02 decay": "constant 0.0 decay"}},
             "on": {"model.attention": "dense", "from": {"arm": "zero", "length": 128, "steps": 8}}},
    "rows": [{"length": 128, "steps": 8, "seeds": [1, 2], "arms": ["nsa", "staged"]},
             {"length": 128, "steps": 8, "seeds": [1], "arms": ["zero", "on"]}],
}


def run(command, plan, folder, *options):
    result = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "quality.py"), command, plan, folder, *options],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 0, result.stdout
    return result.stdout


def test_quality_rowsOfAPlan_areTrainedOnce(tmp_path):
    packages = tmp_path / "packages"
    packages.mkdir()
    for i in range(100):
        (packages / f"package{i}.py").write_text(f"value = {i}\n" * 40)
    plan, table = str(tmp_path / "plan.yaml"), str(tmp_path / "quality.csv")
    (tmp_path / "plan.yaml").write_text(json.dumps(PLAN | {"roots": [str(packages)]}))
    folder = str(tmp_path / "folder")
    run("prepare", plan, folder, "--target", "cpu", "--build", os.path.join(ROOT, "build"))
    run("run", plan, folder, "--csv", table, "--arms", "nsa")
    first = list(csv.DictReader(open(table)))
    assert [(row["arm"], row["seed"]) for row in first] == [("nsa", "1"), ("nsa", "2")]
    printed = run("run", plan, folder, "--csv", table)
    rows = list(csv.DictReader(open(table)))
    assert rows[:2] == first and "nsa-128" not in printed
    assert [(row["arm"], row["tokens"]) for row in rows[2:]] == [("staged", "1024")] * 2 + [("zero", "1024"), ("on", "1024")]
    assert [row["loss"] for row in rows[4:]] == ["5.54518"] * 2  # log 256: no weight has a gradient, nor where it goes on
    assert rows[0]["loss"] != rows[1]["loss"] and {row["corpus"] for row in rows} == {first[0]["corpus"]}
    curves = list(csv.DictReader(open(tmp_path / "quality-curves.csv")))
    assert [row["at"] for row in curves if (row["arm"], row["seed"]) == ("nsa", "1")][-1] == "1024"
    assert len(list(csv.DictReader(open(tmp_path / "quality-positions.csv")))) == 12
    # One that ended without its row, its last validation cut, is validated again.
    (tmp_path / "quality.csv").write_text("".join(line for line in open(table) if ",zero," not in line))
    label = os.path.join(folder, "runs", "zero-128-1-8")
    shutil.rmtree(label)
    subprocess.run([os.path.join(folder, "nsa-train"), label + ".yaml", "--no-progress", "--run-name", "zero-128-1-8", "--data",
                    os.path.join(folder, "corpus")], check=True, stdout=subprocess.DEVNULL,
                   env=os.environ | {"NSA_PREPARED": os.path.join(folder, "zero-128"), "XDG_CACHE_HOME": str(tmp_path)})
    run("run", plan, folder, "--csv", table)
    again = list(csv.DictReader(open(table)))
    assert [row | {"seconds": ""} for row in again] == [row | {"seconds": ""} for row in rows[:4] + [rows[5], rows[4]]]
