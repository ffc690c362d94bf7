"""Many small modules: those of the kernel sweep and random ones.

test/codegen/sweep-TARGET.txt and random-TARGET.txt have a line for each module: its name, hashes of its text,
of its kernels' code and of its host program. The second line has a hash of all kernels of the set: if that is
equal, nothing changed. nsa-write-modules makes the modules from a seed."""
import glob
import os
import re
import subprocess
from typing import NamedTuple

from . import normalise

SETS = ("sweep", "random")
COMBINATIONS, MODULES = 8, 200


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
    writer = os.path.join(compiler.build, "test", "codegen", "nsa-write-modules")
    if not os.path.exists(writer):
        fail(f"{writer} is not built: ninja nsa-write-modules")
    subprocess.run([writer, folder, str(COMBINATIONS), str(MODULES)], check=True)

    def order(path):
        return [int(word) if word.isdigit() else word for word in re.split(r"(\d+)", path)]
    return sorted((path[:-len(".mlir")] for path in glob.glob(os.path.join(folder, "*.mlir"))), key=order)


def record_module(compiler, path, target):
    with open(path + ".mlir") as file:
        text = file.read()
    options = re.findall(r"--\S+", text.split("\n", 1)[0])
    # Kernels of a few elements are slow in one way or another.
    artefact = compiler.compile(path, target, "--allow-slow-path=all", *options, output=f"{path}-{target}.nsax")
    found = compiler.record(artefact, target)
    codes = sorted(kernel.code for kernel in found.kernels)
    return Module(os.path.basename(path), normalise.digest(text.encode()),
                  normalise.digest(" ".join(codes).encode()), normalise.digest(repr(found.hashes).encode()))


def record_set(compiler, which, target, paths):
    versions = {"LLVM": compiler.versions["LLVM"]}
    return Set(versions, [record_module(compiler, path, target) for path in paths
                          if os.path.basename(path).startswith(which)])


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
