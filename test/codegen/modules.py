"""Many small modules that are made up, of one operation and of many.

test/codegen/random-TARGET.txt has a line for each module: its name, hashes of its text, of its kernels' code and of
its host program. The second line has a hash of all kernels of the set: if that is equal, nothing changed.
judge/write_modules.py makes the modules."""
import glob
import os
import re
import subprocess
from typing import NamedTuple

from . import normalise

SETS = ("random",)
JUDGE = os.path.join(os.path.dirname(__file__), "..", "judge")


class Module(NamedTuple):
    name: str
    text: str
    code: str
    program: str


class Set(NamedTuple):
    versions: dict
    modules: list

    def write(self):
        head = "# " + ", ".join(f"{tool} {version}" for tool, version in self.versions.items())
        together = normalise.digest(" ".join(module.code for module in self.modules).encode())
        return "\n".join([head, f"{together} all", *(" ".join(module) for module in self.modules)]) + "\n"


def parse(text):
    head, _, *lines = text.splitlines()
    return Set(dict(word.split(" ", 1) for word in head.lstrip("# ").split(", ")),
               [Module(*line.split(" ")) for line in lines])


def write_modules(compiler, fail):
    """Paths of all modules without their suffix."""
    folder = os.path.join(compiler.folder, "modules")
    python = subprocess.run([os.path.join(JUDGE, "..", "python-env.sh")], stdout=subprocess.PIPE, text=True)
    if python.returncode != 0:
        fail("modules are made up by a Python that test/python-env.sh makes, which it cannot")
    subprocess.run([python.stdout.strip(), os.path.join(JUDGE, "write_modules.py"), folder], check=True)

    def order(path):
        return [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", path)]
    return sorted((path[:-len(".mlir")] for path in glob.glob(os.path.join(folder, "*.mlir"))), key=order)


def record_module(compiler, path, target):
    with open(path + ".mlir") as file:
        text = file.read()
    options = re.findall(r"^// (--\S+)", text, re.MULTILINE)
    # Kernels of a few elements are slow in one way or another.
    artefact = compiler.compile(path, target, "--allow-slow-path=all", *options, output=f"{path}-{target}.nsax")
    found = compiler.record(artefact, target)
    codes = sorted(kernel.code for kernel in found.kernels)
    return Module(os.path.basename(path), normalise.digest(text.encode()),
                  normalise.digest(" ".join(codes).encode()), normalise.digest(repr(found.hashes).encode()))


def record_set(compiler, target, paths):
    versions = {"LLVM": compiler.versions["LLVM"]}
    return Set(versions, [record_module(compiler, path, target) for path in paths])


def compare(recorded, found):
    """Pairs of what differs, and in what module."""
    before = {module.name: module for module in recorded.modules}
    after = {module.name: module for module in found.modules}
    differences = [("gone", name) for name in before if name not in after]
    for name, module in after.items():
        old = before.get(name)
        if old is None:
            differences.append(("new", name))
            continue
        also = "" if old.text == module.text else " (of another text)"
        if old.code != module.code:
            differences.append(("changed", name + also))
        if old.program != module.program:
            differences.append(("host program", name + also))
    return differences
