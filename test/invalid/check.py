#!/usr/bin/env python3
"""Feeds invalid modules, configurations and files to the tools. Each must be refused with
one error that says where and what, and with an exit code: no assertion, no stack trace,
nothing written.
    check.py BIN SCRATCH
BIN is the folder of the tools. Of the systematic mutations a sample runs, all of them
with NSA_TEST_SUITE=full; the hand-written cases always do."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

import configs
import files
import fused
import modules
import operations

CRASH = re.compile(
    r"Assertion|Stack dump|PLEASE submit|LLVM ERROR|Segmentation|terminate called|"
    r"runtime error:|Sanitizer"
)
# What MLIR itself adds to an error of ours, about types that do not follow from the
# operands and about words that an enumeration does not have.
FOLLOW_UP = re.compile(r"failed to infer returned types|failed to parse \w+ parameter")


class Case:
    """One wrong input: how to run it, and what must come of it."""

    def __init__(self, name, command, place, expected, stdin, output):
        self.name = name
        self.command = command
        # The beginning of the error's position, such as "<stdin>:2:".
        self.place = place
        self.expected = expected if isinstance(expected, tuple) else (expected,)
        self.stdin = stdin
        # What the tool would write if it did accept the input.
        self.output = output

    def run(self):
        return subprocess.run(
            self.command, input=self.stdin, capture_output=True, text=True,
            errors="surrogateescape", timeout=120,
        )

    def problem(self):
        """What is wrong with the answer, or nothing."""
        try:
            done = self.run()
        except subprocess.TimeoutExpired:
            return "does not end"
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        first = errors[0] if errors else done.stderr.strip()[:300]
        if done.returncode < 0 or done.returncode > 2 or CRASH.search(done.stderr):
            return f"exit code {done.returncode}: {done.stderr.strip()[:600]}"
        if done.returncode == 0:
            return "is accepted"
        if len([e for e in errors if not FOLLOW_UP.search(e)]) != 1:
            return f"{len(errors)} errors instead of one: {done.stderr.strip()[:600]}"
        if self.place not in first:
            return f"does not name the place {self.place}: {first}"
        if not any(part in first for part in self.expected):
            return f"does not say {' or '.join(self.expected)!r}: {first}"
        if self.output.exists():
            return f"writes {self.output}: {first}"
        return None


def sample(cases, every, full):
    """Every n-th case, or all."""
    cases = list(cases)
    return cases if full else cases[::every]


class Suite:
    """All cases, with the good files that they start from."""

    def __init__(self, tools, scratch, full):
        self.tools = tools
        self.scratch = scratch
        self.full = full
        self.cases = []

    def make(self, tool, *arguments):
        """Runs a tool that must succeed and returns its output."""
        done = subprocess.run(
            [self.tools / tool, *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout

    def add(self, name, command, place, expected, stdin=None):
        """A case; OUT in its command is a path of its own."""
        output = self.scratch / "out" / f"{len(self.cases):04}"
        command = [str(part).replace("OUT", str(output)) for part in command]
        command[0] = str(self.tools / command[0])
        self.cases.append(Case(name, command, place, expected, stdin, output))

    # --- modules -------------------------------------------------------------

    def add_operations(self):
        chosen = sample(operations.attribute_mutations(), 3, self.full)
        chosen += sample(operations.operand_mutations(), 10, self.full)
        for name, text, line, expected in chosen:
            command = ["nsa-opt", "-", "-o", "OUT"]
            self.add(name, command, f"<stdin>:{line}:", expected, text)

    def add_modules(self):
        for name, tool, flags, text, expected in modules.CASES:
            line = modules.marked_line(text)
            text = text.replace(modules.MARK, "")
            # Where nothing is marked the error is about an option.
            place = f"<stdin>:{line}:" if line else ""
            self.add(name, [tool, "-", *flags, "-o", "OUT"], place, expected, text)
        for name, text, line, expected in fused.write():
            self.add(f"nsa.fused: {name}", ["nsa-opt", "-", "-o", "OUT"], f"<stdin>:{line}:", expected, text)

    # --- configurations ------------------------------------------------------

    def add_configurations(self):
        good = self.scratch / "good.yaml"
        good.write_text("model:\n  dim: 64\n")
        cases = list(configs.FILES)
        keys = configs.schema(self.make("nsa-model", good))
        cases += sample(configs.key_mutations(keys), 4, self.full)
        for number, (name, text, line, column, expected) in enumerate(cases):
            path = self.scratch / f"{number:04}.yaml"
            path.write_bytes(text.encode(errors="surrogateescape"))
            place = f"{path}:" + (f"{line}:" if line else "") + (f"{column}:" if column else "")
            command = ["nsa-train", "x.nsax", "--data", "x", "--out-dir", "OUT", "--config", path]
            if number % 5 == 0:
                command = ["nsa-model", path, "-o", "OUT"]
            self.add(name, command, place, expected)
        train = ["nsa-train", "x.nsax", "--data", "x", "--out-dir", "OUT", "--config", good]
        for option, values in files.TRAIN_VALUES.items():
            for value in values:
                expected = f"--{option}: ", option.replace("-", "_")
                self.add(f"--{option}={value}", [*train, f"--{option}={value}"], "", expected)
        self.add("two names", [*train, "--run-name=a", "--run-name=b"], "", "--run-name: At Most 1")
        self.add("a third file", [*train, "more"], "", "unexpected argument 'more'")
        for override, expected in configs.OVERRIDES:
            for command in train, ["nsa-model", good, "-o", "OUT"]:
                self.add(override, [*command, "--set", override], "", expected)

    # --- files ---------------------------------------------------------------

    def add_artefacts(self):
        good = self.scratch / "good.nsax"
        self.make("nsa-test-artifact", good)
        data = good.read_bytes()
        for number, (name, change, expected) in enumerate(files.ARTEFACTS):
            path = self.scratch / f"{number:04}.nsax"
            path.write_bytes(change(data))
            commands = [
                ["nsa-dump", path],
                ["nsa-run", path, "--entry=eval", "--output-dir", "OUT"],
                ["nsa-train", path, "--data", "x", "--out-dir", "OUT", "--config", self.scratch / "good.yaml"],
            ]
            command = commands[number % len(commands)]
            self.add(f"artefact: {name}", command, f"{path}: ", expected)
        for name, arguments, expected in files.RUN_COMMANDS:
            command = ["nsa-run", good, *arguments, "--output-dir", "OUT"]
            self.add(f"nsa-run: {name}", command, "nsa-run: error: ", expected)
        for number, (name, content, expected) in enumerate(files.ARRAYS):
            path = self.scratch / f"{number:04}.npy"
            path.write_bytes(content)
            command = ["nsa-run", good, "--entry=eval", f"--input=x={path}", "--output-dir", "OUT"]
            self.add(f"array: {name}", command, f"{path}: ", expected)

    def add_data(self):
        good = self.scratch / "data"
        self.make("nsa-data", "synth", "--vocab=16", "--tokens=2000", "-o", good)
        for number, (name, change, culprit, expected) in enumerate(files.DATA):
            folder = self.scratch / f"data{number:02}"
            shutil.copytree(good, folder)
            change(folder)
            self.add(f"data: {name}", ["nsa-data", "info", folder], f"{folder}/{culprit}'", expected)
        inputs = self.scratch / "texts"
        files.texts(inputs)
        for name, arguments, expected in files.DATA_COMMANDS:
            command = [argument.replace("IN", str(inputs)) for argument in arguments]
            self.add(f"nsa-data: {name}", ["nsa-data", *command], "nsa-data: error: ", expected)

    # --- the run -------------------------------------------------------------

    def unchanged_operations(self):
        """What is wrong with what the mutations start from."""
        for name, text in [*operations.valid(), *fused.VALID]:
            done = subprocess.run(
                [self.tools / "nsa-opt", "-"], input=text, capture_output=True, text=True
            )
            if done.returncode != 0:
                yield f"{name}, unchanged", done.stderr

    def failures(self):
        """(name, what is wrong) for every case that fails."""
        yield from self.unchanged_operations()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for case, problem in zip(self.cases, pool.map(Case.problem, self.cases)):
                if problem:
                    yield case.name, problem


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("scratch", type=pathlib.Path)
    arguments = parser.parse_args()
    scratch = arguments.scratch.resolve()
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "out").mkdir(parents=True)
    suite = Suite(
        arguments.bin.resolve(), scratch, os.environ.get("NSA_TEST_SUITE") == "full"
    )
    suite.add_operations()
    suite.add_modules()
    suite.add_configurations()
    suite.add_artefacts()
    suite.add_data()
    failures = list(suite.failures())
    for name, problem in failures:
        print(f"{name}: {problem}\n")
    print(f"{len(suite.cases)} wrong inputs, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
