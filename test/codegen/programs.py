"""Compiles programs and records what comes out."""
import os
import re
import shutil
import subprocess
import sys

from . import normalise
from .record import Kernel, Record

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TARGETS = ("cpu", "sm_80", "sm_86", "sm_90a")
CONFIGURATIONS = ("smoke", "showcase", "m7c_125m", "m7c_3090_smoke", "llama_1b", "decode")
# Those that are another's file with options of their own.
FILES = {"decode": "smoke"}
# As the configurations themselves say.
OPTIONS = {"llama_1b": ["--recompute=cheap"], "decode": ["--context=256"]}


def fail(message):
    sys.exit(f"codegen.py: error: {message}")


def call(*command, env=None):
    """What the command printed on both streams; the end if it fails."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, **(env or {})})
    if result.returncode:
        fail(f"{' '.join(command)}\n{result.stdout}")
    return result.stdout


def llvm_folder():
    return os.environ.get("NSA_LLVM", "/usr/lib/llvm-22")


def find_ptxas():
    """As nsa-compile finds it."""
    home = os.environ.get("CUDA_HOME")
    for path in ([os.path.join(home, "bin", "ptxas")] if home else []) + [shutil.which("ptxas")] + (
            [] if home else ["/usr/local/cuda/bin/ptxas"]):
        if path and os.access(path, os.X_OK):
            return path
    return None


def find_versions(ptxas):
    versions = {"LLVM": call(os.path.join(llvm_folder(), "bin", "llvm-config"), "--version").strip()}
    if ptxas:
        versions["ptxas"] = re.search(r"V(\d\S*)", call(ptxas, "--version"))[1]
    return versions


def file_of(config):
    return os.path.join(ROOT, "test/bench/shapes", FILES.get(config, config) + ".yaml")


def precision_of(config, target):
    """The configuration's own, but that GPUs compute in 16 bits."""
    with open(file_of(config)) as file:
        precision = re.search(r"^\s+precision:\s*(\w+)", file.read(), re.M)[1]
    return "bf16" if precision == "fp32" and target != "cpu" else precision


class Compiler:
    """Compiles into a folder of its own."""

    def __init__(self, build, folder):
        self.build = build
        self.folder = folder
        self.ptxas = find_ptxas()
        self.versions = find_versions(self.ptxas)

    def tool(self, name, *options, env=None):
        return call(os.path.join(self.build, "bin", name), *options, env=env)

    def compile_configuration(self, config, target):
        """The path of an artefact, of PTX for a GPU."""
        path = os.path.join(self.folder, f"{config}-{target}")
        precision = precision_of(config, target)
        self.tool("nsa-model", file_of(config), "-o", path + ".mlir",
                  "--set", f"runtime.precision={precision}")
        return self.compile(path, target, f"--precision={precision}", *OPTIONS.get(config, []))

    def compile(self, path, target, *options, output=None):
        """The artefact of PATH.mlir, PATH.nsax unless `output` names another file."""
        output = output or path + ".nsax"
        if target != "cpu":
            options = [*options, "--ptxas=none"]
        self.tool("nsa-compile", path + ".mlir", "-o", output, f"--target={target}", "--threads=1", *options)
        return output

    def record(self, artefact, target):
        """What the artefact holds, without what ptxas makes of it."""
        program = self.tool("nsa-dump", artefact, "--program")
        launches = normalise.launches_of(self.tool("nsa-dump", artefact, "--kernels"))
        hashes = {"host program": normalise.digest(normalise.normalise_program(program)),
                  "launches": normalise.digest(repr(sorted(launches.values())).encode())}
        kernels = [Kernel(name, normalise.digest(code)) for name, code in self.kernels_of(artefact)]
        versions = {tool: version for tool, version in self.versions.items() if tool != "ptxas" or target != "cpu"}
        return Record(versions, hashes, kernels)

    def kernels_of(self, artefact):
        """Names and normalised code."""
        folder = artefact + ".binaries"
        self.tool("nsa-dump", artefact, "--save-binaries", folder)
        for file in sorted(os.listdir(folder)):
            path = os.path.join(folder, file)
            if file.endswith(".ptx"):
                with open(path) as stream:
                    yield from normalise.kernels_of_ptx(stream.read())
                continue
            # Of the archive's objects, whose code has no addresses yet.
            call(os.path.join(llvm_folder(), "bin", "ld.lld"), "-shared", "--whole-archive", path, "-o", path + ".so")
            path += ".so"
            text = call(os.path.join(llvm_folder(), "bin", "llvm-objdump"), "-d", "--no-show-raw-insn",
                        "--no-leading-addr", "--section=.text", path)
            with open(path, "rb") as stream:
                yield from normalise.kernels_of_objdump(text, stream.read())

    def assemble(self, artefact, target, record):
        """The record with what ptxas makes of the artefact's PTX."""
        shared = {name: launch[2] for name, launch in
                  normalise.launches_of(self.tool("nsa-dump", artefact, "--kernels")).items()}
        machines = {}
        folder = artefact + ".binaries"
        for file in sorted(os.listdir(folder)):
            path = os.path.join(folder, file)
            log = call(self.ptxas, f"-arch={target}", "-O3", "-v", "-o", path + ".cubin", path)
            resources = normalise.resources_of_log(log)
            with open(path + ".cubin", "rb") as stream:
                sections = dict(normalise.sections_of_cubin(stream.read()))
            for name, code in sections.items():
                registers, spills = resources[name]
                machines[name] = f"{normalise.digest(code)}:{registers}:{spills}:{shared[name]}"
        return record._replace(kernels=[k._replace(machine=machines[k.name]) for k in record.kernels])
