"""Losses and gradient norms of the first steps on the CPU, bit by bit.

Hashes of code do not see what the host program, the data, the initial values and the matrix library make of
it. test/codegen/losses.txt has a line for each step: configuration, step, loss and norm of the gradient as
hexadecimal floats. They depend on the version of OpenBLAS; its kernels are chosen by name, so that they do
not depend on the processor."""
import csv
import ctypes
import os
import subprocess
import sys
import tempfile

from .programs import ROOT

CONFIGURATIONS = ("smoke", "showcase")
STEPS = 20
CORE = "Haswell"


def find_openblas():
    """Its version and the kernels that it chooses."""
    try:
        library = ctypes.CDLL("libopenblas.so.0")
        library.openblas_get_config.restype = ctypes.c_char_p
        library.openblas_get_corename.restype = ctypes.c_char_p
    except (OSError, AttributeError):
        return "none"
    return f"{library.openblas_get_config().decode().split(' ')[1]} {library.openblas_get_corename().decode()}"


def versions(compiler):
    # The library looks at its environment once, when it is loaded.
    asked = subprocess.run([sys.executable, "-c", "from codegen import losses; print(losses.find_openblas())"],
                           cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))), check=True,
                           env={**os.environ, "OPENBLAS_CORETYPE": CORE}, stdout=subprocess.PIPE, text=True)
    return {"LLVM": compiler.versions["LLVM"], "OpenBLAS": asked.stdout.strip()}


def hexadecimal(text):
    """A float's shortest decimal digits as its bits."""
    return ctypes.c_float(float(text)).value.hex()


def train(compiler, config):
    """Lines of a configuration's first steps."""
    artefact = compiler.compile_configuration(config, "cpu")
    yaml = os.path.join(ROOT, "test/bench/shapes", config + ".yaml")
    with tempfile.TemporaryDirectory(dir=compiler.folder) as folder:
        data = os.path.join(folder, "data")
        compiler.tool("nsa-data", "synth", "--kind=markov", "--vocab=256", "--tokens=200000", "--seed=1", "-o", data)
        compiler.tool("nsa-train", artefact, "--config", yaml, "--data", data, "--out-dir", folder, "--run-name=run",
                      "--set", "train.log_every=1", "--threads=2", f"--stop-after={STEPS}", "--no-progress",
                      env={"OPENBLAS_CORETYPE": CORE})
        with open(os.path.join(folder, "run", "training.csv")) as file:
            return [f"{config} {row['step']} {hexadecimal(row['loss'])} {hexadecimal(row['grad_norm'])}"
                    for row in csv.DictReader(file)]


def compare(recorded, found):
    """The first step of each configuration that differs, in words."""
    differences, seen = [], set()
    for old, new in zip(recorded, found):
        config, step, *values = old.split(" ")
        if old != new and config not in seen:
            seen.add(config)
            differences.append(f"{config}, step {step}: loss and gradient norm {' '.join(values)} before, "
                               f"{' '.join(new.split(' ')[2:])} now")
    if len(recorded) != len(found):
        differences.append(f"{len(recorded)} steps before, {len(found)} now")
    return differences
