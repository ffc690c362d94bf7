"""Where programs run, as one call: execute(program) gives results, then gradients."""

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
    return [f"a{program.arguments.index(updated[i])}" if i in updated else f"r{i}" for i in range(len(program.results))] + [f"grad.{name}" for name in wanted_names(program)]


#: What programs are compiled for and run on: the processor, or the GPU of this machine.
TARGET = os.environ.get("NSA_JUDGE_TARGET", "cpu")


def run_module(module, program):
    """Results and gradients of a program, compiled."""
    inputs = arrays(program)
    for v in program.updated().values():
        name = f"a{program.arguments.index(v)}"
        module.write(name, inputs.pop(name))
    out = module.run("main", inputs)
    if hasattr(module, "tensors"):
        types = [module.tensors[name][0] for name in output_names(program)]
        assert types == [v.element for v in [*program.results, *program.wanted]], f"outputs of {types}\n{program.text()}"
    return [out[name] if name in out else module.read(name) for name in output_names(program)]


class CPU:
    place = "cpu" if TARGET == "cpu" else "gpu"

    def __init__(self, **options):
        self.options = {"threads": 2, "poison": True, "target": TARGET, "allow_slow_path": ["all"]} | options

    def compile(self, text, extents=None, **options):
        module = nsa.compile(text, **self.options | options)
        return module.with_extents(batch=extents[0], seq=extents[1]) if extents else module

    def __call__(self, program):
        return run_module(self.compile(program.text(), program.extents(), gradients=wanted_names(program)), program)


class EmulatedModule:
    """What nsa.compile gives, of a program whose kernels are those of a GPU, on the emulator of unit/Emulator."""

    def __init__(self, target, text, **options):
        self.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.folder.name) / "module.mlir"
        path.write_text(text)
        self.array = path.with_name("array.npy")
        words = [f"{key.replace('_', '-')}={','.join(map(str, x)) if isinstance(x, (list, tuple)) else x}"
                 for key, x in options.items() if x]
        self.process = subprocess.Popen([BUILD / "test" / "judge" / "nsa-emulate", path, target, *words], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __del__(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.stderr.close()
        self.process.wait()

    def _ask(self, *words):
        try:
            print(*words, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass
        answer = self.process.stdout.readline()
        if not answer.startswith("ok"):
            raise nsa.RunError(answer or f"exit code {self.process.wait()}: {self.process.stderr.read()}")
        return answer.split()[1:]

    def write(self, name, array):
        np.save(self.array, np.array(array, order="C"))
        self._ask("write", name, self.array)

    def read(self, name):
        self._ask("read", name, self.array)
        return np.load(self.array)

    def run(self, entry, inputs):
        for name, array in inputs.items():
            self.write(name, array)
        return {name: self.read(name) for name in self._ask("run", entry)}


class Emulator:
    place = "gpu"

    def __init__(self, target):
        self.target = target

    def compile(self, text, **options):
        return EmulatedModule(self.target, text, **options)

    def __call__(self, program):
        """As nsa-compile does, the next schedule is taken where a kernel needs more shared memory than there is; sizes of
        tiles that are given are an error there."""
        given = program.options
        try:
            while True:
                try:
                    module = self.compile(program.text(), extents=program.extents(), gradients=wanted_names(program))
                    return run_module(module, program)
                except nsa.RunError as error:
                    refused = program.options.get("refused", 0)
                    if "bytes of shared memory, more than" not in str(error) or refused > 11:
                        raise
                    forms = {kernel: {"form": one["form"]} for kernel, one in given.get("schedules", {}).items() if "form" in one}
                    program.options = {"schedules": forms, "refused": refused + 1}
        finally:
            program.options = given
