"""Programs of the build, for tests that need what they make."""

import pathlib
import subprocess

import nsa

BIN = pathlib.Path(nsa.__file__).parents[2] / "bin"


def run_programs(folder, *commands):
    """Runs commands in a folder, one after the other."""
    for program, *arguments in commands:
        subprocess.run([BIN / program, *arguments], cwd=folder, check=True, capture_output=True)


def train_on_ids(folder, config):
    """Trains a model on ids of `data`, below 16, that are drawn; the run directory."""
    (folder / "small.yaml").write_text(config)
    run_programs(folder, ["nsa-data", "synth", "--vocab", "16", "--tokens", "20k", "-o", "data"],
                 ["nsa-model", "small.yaml", "-o", "small.mlir"], ["nsa-compile", "small.mlir", "-o", "small.nsax"],
                 ["nsa-train", "small.nsax", "--config", "small.yaml", "--data", "data", "--out-dir", "runs",
                  "--run-name", "small"])
    return folder / "runs" / "small"
