#!/usr/bin/env python3
"""Prints how large and how readable the project is, as a table to compare with another commit's.

  test/measure.py [--root TREE] [--build FOLDER] [--touched WHAT=COMMIT...]

The text of the largest model that nsa-model writes by default and the longest line that each phase prints of
smoke (nsa-model and nsa-compile must be built); lines by folder of what git tracks; functions and data
members of the class that emits GPU kernels, counted by Clang. --touched counts files and lines of a commit:
what it took to add an operation, a target, a key.
"""
import argparse
import collections
import json
import os
import re
import shlex
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TEXT = (".cpp", ".h", ".td", ".py", ".sh", ".mlir", ".test", ".txt", ".md", ".inc", ".fbs", ".yaml", ".cmake", ".c", ".cu")


def call(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def row(what, value):
    print(f"| {what} | {value} |")


def measure_text(path):
    """Lines, bytes and the longest line."""
    with open(path) as file:
        text = file.read()
    return len(text.splitlines()), len(text.encode()), max(map(len, text.splitlines()), default=0)


def measure_models(root, build):
    """The text of a model and what phases print of another."""
    tool = os.path.join(build, "bin", "nsa-{}").format
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.mlir")
        call(tool("model"), os.path.join(root, "test/bench/shapes", "m7c_125m.yaml"), "-o", path)
        lines, size, longest = measure_text(path)
        row("m7c_125m as nsa-model writes it", f"{lines:,} lines, {size:,} bytes, longest line {longest:,}")
        call(tool("model"), os.path.join(root, "configs", "smoke.yaml"), "-o", path)
        row("longest line of smoke: model", f"{measure_text(path)[2]:,}")
        for target in ("cpu", "sm_90a"):
            phases = os.path.join(folder, target)
            extra = [] if target == "cpu" else ["--precision=bf16", "--ptxas=none"]
            call(tool("compile"), path, f"--target={target}", *extra, "-o", path + ".nsax", "--save-phases", phases,
                 stderr=subprocess.DEVNULL)
            for file in sorted(os.listdir(phases)):
                phase = re.sub(r"^\d+-|\.\w+$", "", file)
                row(f"longest line of smoke: {target}, {phase}", f"{measure_text(os.path.join(phases, file))[2]:,}")


def measure_folders(root):
    counts = collections.Counter()
    for name in call("git", "ls-files", cwd=root).splitlines():
        path = os.path.join(root, name)
        # What the code generator's check has recorded is data. A link's file counts where it lies.
        if not name.endswith(TEXT) or re.match(r"test/codegen/.*\.txt", name) or os.path.islink(path) or not os.path.isfile(path):
            continue
        with open(path, errors="replace") as file:
            lines = sum(1 for _ in file)
        folders = name.split("/")[:-1]
        counts[folders[0] if folders else "."] += lines
        if folders[:1] == ["passes"]:
            counts["/".join(folders[:2])] += lines
    tests = counts["test"]
    total = sum(count for name, count in counts.items() if "/" not in name)
    row("lines", f"{total:,}: {total - tests:,} product, {tests:,} tests")
    for name, count in sorted(counts.items()):
        row(f"lines of {name}", f"{count:,}")


def find_class(node, name):
    """The definition of a class in Clang's JSON."""
    if node.get("kind") == "CXXRecordDecl" and node.get("name") == name and node.get("completeDefinition"):
        return node
    for inner in node.get("inner", []):
        found = find_class(inner, name)
        if found:
            return found
    return None


def measure_class(root, build, name, source):
    """Functions and data members of a class, of those that it is compiled with."""
    if not os.path.exists(os.path.join(root, source)):
        row(f"class {name}", "gone")
        return
    with open(os.path.join(build, "compile_commands.json")) as file:
        command = next(entry for entry in json.load(file) if entry["file"].endswith(source))
    words = shlex.split(command["command"])
    compiler = next(i for i, word in enumerate(words) if "clang" in os.path.basename(word))
    words = words[compiler:words.index("-o")] + [command["file"]]
    text = call(*words, "-fsyntax-only", "-Xclang", "-ast-dump=json", "-Xclang", f"-ast-dump-filter={name}",
                cwd=command["directory"], stderr=subprocess.DEVNULL)
    # One object after the other, each after a line of its own.
    decoder, at, found = json.JSONDecoder(), text.find("{"), None
    while at >= 0 and not found:
        node, at = decoder.raw_decode(text, at)
        found = find_class(node, name)
        at = text.find("{", at)
    if not found:
        raise SystemExit(f"measure.py: error: {source} defines no class {name}")
    kinds = collections.Counter(node["kind"] for node in found["inner"] if not node.get("isImplicit"))
    functions = sum(kinds[kind] for kind in ("CXXMethodDecl", "CXXConstructorDecl", "FunctionTemplateDecl"))
    row(f"class {name}", f"{functions} member functions, {kinds['FieldDecl']} data members")


def measure_commit(root, what, commit):
    stat = call("git", "show", "--format=", "--shortstat", commit, cwd=root).strip()
    row(f"files and lines of {what} ({commit[:7]})", stat)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=ROOT)
    parser.add_argument("--build", help="TREE/build if it is not named")
    parser.add_argument("--touched", nargs="+", default=[], metavar="WHAT=COMMIT")
    args = parser.parse_args()
    root = os.path.abspath(args.root)
    build = os.path.abspath(args.build or os.path.join(root, "build"))
    print(f"| commit {call('git', 'rev-parse', '--short', 'HEAD', cwd=root).strip()} | |\n|---|---|")
    measure_models(root, build)
    measure_class(root, build, "ThreadBuilder", "passes/TileGPUToNVVM/ThreadBuilder.cpp")
    measure_folders(root)
    for pair in args.touched:
        measure_commit(root, *pair.split("=", 1))


main()
