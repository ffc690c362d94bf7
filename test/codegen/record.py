"""What was found of a program, kept in a file of lines and compared.

The first line names the versions under which it was recorded. `HASH host program` is of the
commands and `HASH launches` of all grids and numbers of threads. Each other line has the hash of a
kernel's code and the names of the kernels that have it. Between them GPUs have
`SECTION:REGISTERS:SPILLS:SHARED`: the hash of the machine code that ptxas makes of it, registers of
a thread, bytes of its spills and of a block's shared memory."""
import collections
import re
from typing import NamedTuple, Optional

from .normalise import base


class Kernel(NamedTuple):
    name: str
    code: str
    # SECTION:REGISTERS:SPILLS:SHARED, or nothing for a CPU or without ptxas.
    machine: Optional[str] = None


class Record(NamedTuple):
    versions: dict
    hashes: dict  # "host program", "launches"
    kernels: list

    def write(self):
        head = "# " + ", ".join(f"{tool} {version}" for tool, version in self.versions.items())
        lines = [f"{code} {what}" for what, code in self.hashes.items()]
        groups = collections.defaultdict(list)
        for kernel in self.kernels:
            groups[kernel.code, kernel.machine].append(kernel.name)
        rows = [(sorted(names), code, machine) for (code, machine), names in groups.items()]
        for names, code, machine in sorted(rows, key=lambda row: row[0]):
            lines.append(" ".join([code] + ([machine] if machine else []) + names))
        return "\n".join([head, *lines]) + "\n"


def parse(text):
    head, *lines = text.splitlines()
    versions = dict(word.split(" ", 1) for word in head.lstrip("# ").split(", "))
    hashes, kernels = {}, []
    for line in lines:
        code, *words = line.split(" ")
        if words in (["host", "program"], ["launches"]):
            hashes[" ".join(words)] = code
            continue
        machine = words.pop(0) if re.match(r"[0-9a-f]{16}:", words[0]) else None
        kernels += [Kernel(name, code, machine) for name in words]
    return Record(versions, hashes, kernels)


class Difference(NamedTuple):
    # "changed", "other alignment", "gone", "new", "renamed", "machine code", "host program" or "launches"
    kind: str
    text: str


def describe_machine(old, new):
    """What ptxas makes of other code, in words."""
    if not old or not new:
        return ""
    if old == new:
        return " (the same machine code)"
    names = ("registers", "bytes of spills", "bytes of shared memory")
    parts = [f"{name} {x} -> {y}"
             for name, x, y in zip(names, old.split(":")[1:], new.split(":")[1:]) if x != y]
    return f" ({', '.join(parts)})" if parts else ""


def compare(recorded, found):
    """The differences of two records. Kernels are a multiset of hashes: one with the same code
    and another name is a rename."""
    differences = [Difference(what, "") for what in sorted({*recorded.hashes, *found.hashes})
                   if recorded.hashes.get(what) != found.hashes.get(what)]
    old = collections.Counter(kernel.code for kernel in recorded.kernels)
    new = collections.Counter(kernel.code for kernel in found.kernels)
    gone, come = old - new, new - old
    before = {base(kernel.name): kernel for kernel in recorded.kernels}
    after = {base(kernel.name): kernel for kernel in found.kernels}
    for kernel in found.kernels:
        earlier = before.get(base(kernel.name))
        if kernel.code in come and not (earlier and earlier.code == kernel.code):
            if earlier is None:
                differences.append(Difference("new", kernel.name))
                continue
            kind = "changed" if earlier.name == kernel.name else "other alignment"
            differences.append(Difference(kind, kernel.name + describe_machine(earlier.machine, kernel.machine)))
    for kernel in recorded.kernels:
        if kernel.code in gone and base(kernel.name) not in after:
            differences.append(Difference("gone", kernel.name))
    for code in old.keys() & new.keys():
        lost = sorted({k.name for k in recorded.kernels if k.code == code} - {k.name for k in found.kernels})
        won = sorted({k.name for k in found.kernels if k.code == code} - {k.name for k in recorded.kernels})
        differences += [Difference("renamed", f"{x} -> {y}") for x, y in zip(lost, won)]
    # The same code by the same assembler.
    machines = {kernel.code: kernel.machine for kernel in recorded.kernels}
    for kernel in found.kernels:
        was = machines.get(kernel.code)
        if was and kernel.machine and was != kernel.machine:
            differences.append(Difference("machine code", kernel.name + describe_machine(was, kernel.machine)))
    if not differences and sorted(recorded.kernels) != sorted(
            found.kernels if all(k.machine for k in found.kernels) else
            [Kernel(k.name, k.code, machines.get(k.code)) for k in found.kernels]):
        differences.append(Difference("renamed", "kernels exchange their names"))
    return differences
