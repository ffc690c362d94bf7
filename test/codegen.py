#!/usr/bin/env python3
"""Holds the code of all kernels against what was recorded.

  test/codegen.py check  [--only NAME...]
  test/codegen.py update [--only NAME...]

Compiles the two smallest configurations for each target and hashes what is emitted
for each kernel: PTX for GPUs, machine code for the CPU. Names, numbers of
labels, comments and debug information are left out of PTX, so that a kernel that
is only called otherwise has the same hash. test/codegen/NAME.txt has a line for
each hash with the kernels that have it, and one for the host program; its first
line names the versions of LLVM under which it was recorded, and under another
one a check says that it is skipped. --only takes configurations and targets.

A commit that means to keep the code leaves the files as they are; one that means
to change it updates them and says why.
"""
import argparse
import collections
import hashlib
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGETS = ("cpu", "sm_80", "sm_86", "sm_90a")
CONFIGURATIONS = ("smoke", "showcase")


def fail(message):
    sys.exit(f"codegen.py: error: {message}")


def call(*command):
    """What the command printed; the end if it fails."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode:
        fail(f"{' '.join(command)}\n{result.stderr}")
    return result.stdout


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def normalise(ptx, name):
    """A kernel's PTX without what does not matter to what it does."""
    ptx = re.sub(r"\b%s(?=\b|_param)" % re.escape(name), "K", ptx)
    ptx = re.sub(r"\$L__BB\d+_", "$L__BB_", ptx)
    ptx = re.sub(r"//[^\n]*", "", ptx)
    ptx = re.sub(r"^\s*\.(loc|file|version)\b[^\n]*", "", ptx, flags=re.M)
    ptx = re.sub(r"^\s*\.section\s+\.debug.*?^\s*\}", "", ptx, flags=re.M | re.S)
    return "\n".join(line.rstrip() for line in ptx.splitlines() if line.strip())


def kernels_of_ptx(path):
    """Names and normalised text of the kernels of a file."""
    with open(path) as file:
        text = file.read()
    parts = re.split(r"^\s*// \.globl\s+(\S+)[^\n]*\n", text, flags=re.M)
    return [(name, normalise(body, name).encode()) for name, body in zip(parts[1::2], parts[2::2])]


def constant(elf, mnemonic, operands, address):
    """The bytes of a constant in read-only data, which lies where it is in the file."""
    if re.search(r"(ss|broadcastd|cvtdq2ps)$", mnemonic):
        size = 4
    elif re.search(r"(sd|broadcastq)$", mnemonic):
        size = 8
    else:
        size = 32 if "%ymm" in operands else 16
    return elf[address:address + size].hex()


def kernels_of_elf(path):
    """Names and machine code of the functions of a shared object. Constants and
    jumps are by value and within the function: where a function lies does not matter."""
    with open(path, "rb") as file:
        elf = file.read()
    text = call(os.path.join(llvm_folder(), "bin", "llvm-objdump"), "-d", "--no-show-raw-insn",
                "--no-leading-addr", "--section=.text", path)
    for name, body in re.findall(r"^<(\S+)>:\n((?:[ \t]+\S.*\n?)*)", text, flags=re.M):
        lines = []
        # A comment on a line of its own has the address of a constant, too.
        for line in re.sub(r"\n\s*# 0x", " # 0x", body).splitlines():
            mnemonic, _, operands = line.strip().partition("\t")
            operands, _, comment = operands.partition("#")
            operands = re.sub(r"0x[0-9a-f]+ <[^@>+]*(\+0x[0-9a-f]+)?>", r"<\1>", operands)
            operands = re.sub(r"0x[0-9a-f]+ <(\w+@plt)>", r"\1", operands)
            address = re.search(r"0x([0-9a-f]+)\s*$", comment)
            if "(%rip)" in operands:
                value = "address" if mnemonic == "leaq" or not address else constant(
                    elf, mnemonic, operands, int(address[1], 16))
                operands = re.sub(r"-?(0x[0-9a-f]+)?\(%rip\)", value, operands)
            lines.append(f"{mnemonic} {operands.strip()}")
        # What fills the space up to the next function.
        while lines and re.match(r"(nop|int3|data16|cs)", lines[-1]):
            lines.pop()
        yield name, "\n".join(lines).encode()


def code_of(folder):
    """Names and hashes of the kernels of saved binaries."""
    for file in sorted(os.listdir(folder)):
        found = (kernels_of_ptx if file.endswith(".ptx") else kernels_of_elf)(os.path.join(folder, file))
        for name, code in found:
            yield re.sub(r"(_a\d+p\d+)+$", "", name), digest(code)


class Recorder:
    """Compiles into a folder of its own and hashes what comes out."""

    def __init__(self, build, folder):
        self.binaries = os.path.join(build, "bin")
        self.folder = folder

    def tool(self, name, *options):
        return call(os.path.join(self.binaries, name), *options)

    def program(self, artefact):
        """The hash of the commands with their offsets, kernels by their numbers."""
        text = self.tool("nsa-dump", artefact, "--program")
        text = re.sub(r'"[^"\n]*"', '""', text)
        names = {}
        text = re.sub(r"@(\w+)", lambda m: "@" + str(names.setdefault(m[1], len(names))), text)
        # The first lines have hashes of the file.
        return digest(text[text.find("segments"):].encode())

    def record(self, config, target):
        """The lines of a configuration for a target."""
        name = os.path.join(self.folder, f"{config}-{target}")
        yaml = os.path.join(ROOT, "configs", config + ".yaml")
        precision = "fp32" if target == "cpu" else "bf16"
        self.tool("nsa-model", yaml, "-o", name + ".mlir", "--set", f"runtime.precision={precision}")
        options = [] if target == "cpu" else ["--ptxas=none"]
        self.tool("nsa-compile", name + ".mlir", "-o", name + ".nsax", f"--target={target}",
                  f"--precision={precision}", *options)
        self.tool("nsa-dump", name + ".nsax", "--save-binaries", name)
        by_hash = collections.defaultdict(list)
        for kernel, code in code_of(name):
            by_hash[code].append(kernel)
        lines = [f"{code} {' '.join(sorted(names))}" for code, names in by_hash.items()]
        return [f"{self.program(name + '.nsax')} host program"] + sorted(lines, key=lambda l: l.split(" ", 1)[1])


def version():
    return call(os.path.join(llvm_folder(), "bin", "llvm-config"), "--version").strip()


def llvm_folder():
    return os.environ.get("NSA_LLVM", "/usr/lib/llvm-22")


def compare(name, recorded, found):
    """Prints what differs; returns whether nothing does."""
    old = collections.Counter(line.split(" ", 1)[0] for line in recorded)
    new = collections.Counter(line.split(" ", 1)[0] for line in found)
    gone, come = old - new, new - old
    names = dict(line.split(" ", 1) for line in recorded)
    later = dict(line.split(" ", 1) for line in found)
    for code in gone:
        print(f"{name}: gone:    {code} {names[code]}")
    for code in come:
        print(f"{name}: changed: {code} {later[code]}")
    same = not gone and not come
    if same and recorded != found:
        print(f"{name}: the same code under other names; update the file")
    return same and recorded == found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("check", "update"))
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    args = parser.parse_args()
    head = f"# LLVM {version()}"
    good = True
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(args.build, folder)
        for config in CONFIGURATIONS:
            for target in TARGETS:
                name = f"{config}-{target}"
                if args.only and name not in args.only and config not in args.only and target not in args.only:
                    continue
                path = os.path.join(ROOT, "test", "codegen", name + ".txt")
                if args.action == "update":
                    with open(path, "w") as file:
                        file.write("\n".join([head, *recorder.record(config, target)]) + "\n")
                    print(f"{name}: recorded", flush=True)
                    continue
                with open(path) as file:
                    recorded = file.read().splitlines()
                if recorded[0] != head:
                    print(f"{name}: skipped: recorded with {recorded[0][2:]}, this is {head[2:]}")
                    continue
                good &= compare(name, recorded[1:], recorder.record(config, target))
    sys.exit(0 if good else 1)


main()
