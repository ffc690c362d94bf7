"""Where programs run, behind one call: execute(program) gives results, then gradients."""

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from declarations import ROOT

sys.path.insert(0, os.environ.get("NSA_PYTHON_PATH", str(ROOT / "build" / "python")))
BUILD = pathlib.Path(sys.path[0]).parent
# Every run compiles what it tests.
os.environ.setdefault("NSA_CACHE", "0")
import nsa  # noqa: E402

#: Of everything that is random; NSA_TEST_SEED repeats a run.
SEED = int(os.environ.get("NSA_TEST_SEED", int.from_bytes(os.urandom(3))))


def make_rng(*words):
    """Random numbers of their own for a test that these words name."""
    return np.random.default_rng([SEED, *(c for word in words for c in str(word).encode())])


TYPES = {"i32": np.int32, "f16": np.float16}


def arrays(program):
    """The inputs by their names in the text."""
    inputs = {f"a{i}": np.asarray(v.array, TYPES.get(v.element, np.float32)) for i, v in enumerate(program.arguments)}
    if program.wanted and program.seed is not None:
        inputs["grad.r0"] = np.asarray(program.seed, TYPES.get(program.results[0].element, np.float32))
    return inputs


def wanted_names(program):
    return [f"a{program.arguments.index(v)}" for v in program.wanted]


def output_names(program):
    """Of results, which may be states, and gradients."""
    updated = program.updated()
    return [f"a{program.arguments.index(updated[v])}" if v in updated else f"r{i}"
            for i, v in enumerate(program.results)] + [f"grad.{name}" for name in wanted_names(program)]


#: What programs are compiled for and run on: the processor, or the GPU of this machine.
TARGET = os.environ.get("NSA_JUDGE_TARGET", "cpu")


class CPU:
    place = "cpu" if TARGET == "cpu" else "gpu"

    def __init__(self, **options):
        self.options = {"threads": 2, "poison": True, "target": TARGET} | options

    def __call__(self, program):
        known = ("tile_size",) if self.place == "cpu" else ("tile_size", "selected_form")
        tiles = {key: program.options[key] for key in known if key in program.options}
        module = nsa.compile(program.text(), gradients=wanted_names(program), allow_slow_path=["all"],
                             **self.options, **tiles)
        inputs = arrays(program)
        for v in program.updated().values():
            name = f"a{program.arguments.index(v)}"
            module.write(name, inputs.pop(name))
        out = module.run("main", inputs)
        return [out[name] if name in out else module.read(name) for name in output_names(program)]


class Emulator:
    """Kernels of a GPU, on the emulator of unit/Emulator."""
    place = "gpu"

    def __init__(self, target):
        self.target = target

    def __call__(self, program):
        """As nsa-compile does, the next schedule is taken where a kernel needs more shared memory than there is; sizes of
        tiles that are given are an error there."""
        given = program.options
        try:
            while True:
                try:
                    return self._run(program)
                except nsa.RunError as error:
                    refused = program.options.get("refused", 0)
                    if "bytes of shared memory, more than" not in str(error) or refused > 11:
                        raise
                    program.options = {key: x for key, x in given.items() if key != "tile_size"} | {"refused": refused + 1}
        finally:
            program.options = given

    def _run(self, program):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "module.mlir").write_text(program.text())
            for name, array in arrays(program).items():
                np.save(folder / f"{name}.npy", np.array(array, order="C"))
            done = subprocess.run([BUILD / "test" / "judge" / "nsa-emulate", self.target, ",".join(wanted_names(program)), folder,
                                   program.options.get("selected_form", "auto"), *program.options.get("tile_size", [])],
                                  capture_output=True, text=True)
            if done.returncode != 0:
                raise nsa.RunError(f"exit code {done.returncode}: {done.stderr}")
            return [np.load(folder / f"{name}.npy") for name in output_names(program)]
