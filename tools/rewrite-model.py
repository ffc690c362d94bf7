#!/usr/bin/env python3
"""Rewrites a model of an earlier nsa-model, one function with everything spelled, as docs/model-text.md describes.

  tools/rewrite-model.py OLD.mlir -o NEW.mlir [--bin build/bin]

nsa-model writes the text again from the configuration that the old one carries; nsa-opt expands it and the two
functions are compared. Where they differ the old text was edited by hand, and nothing is written.
"""
import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHOWN = 160


def fail(message):
    sys.exit(f"rewrite-model.py: error: {message}")


def call(*command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode:
        fail(result.stderr.strip())
    return result.stdout


def read_string(text):
    """The value of a string as MLIR writes it, with \\0A for what is not printed."""
    return re.sub(r"\\([0-9A-F]{2}|.)", lambda m: chr(int(m[1], 16)) if len(m[1]) == 2 else m[1], text)


def read_config(path, text):
    """The configuration of a model and of what its inputs are."""
    found = re.search(r'nn\.config = "((?:[^"\\]|\\.)*)"', text)
    if not found:
        fail(f"{path} carries no configuration: nsa-model did not write it")
    carried = json.loads(read_string(found[1]))
    tokens = re.search(r'tensor<(\d+)x(\d+)xi32> \{[^{}]*nn\.name = "tokens"', text)
    if not tokens:
        fail(f"{path} has no input `tokens` of two dimensions")
    batch, length = int(tokens[1]), int(tokens[2])
    config = {section: carried[section] for section in ("model", "nsa") if section in carried}
    return {**config, "train": {"micro_batch": batch, "batch_size": batch, "seq_len": length}}


def normalise(text):
    """The lines of a function, without what the old text did not say."""
    text = re.sub(r"^module attributes \{.*\} \{$", "module {", text, flags=re.M)
    # The limits of a selection stand on nsa.select, too.
    text = re.sub(r"visible\(#nsa\.selected<block = (\d+)[^<>]*>", r"visible(#nsa.selected<block = \1>", text)
    # Arguments one by one.
    return re.sub(r"(%arg\d+: )", r"\n\1", text).splitlines()


def shortened(line):
    line = line.strip()
    return line if len(line) <= SHOWN else line[:SHOWN] + "..."


def check_equal(path, old, new):
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            has = f"has `{shortened(old[a])}`" if a < b else "has nothing"
            wants = f"describes `{shortened(new[c])}`" if c < d else "describes nothing"
            fail(f"{path} was edited by hand: it {has} where its configuration {wants}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD.mlir")
    parser.add_argument("-o", dest="new", metavar="NEW.mlir", required=True)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"), help="where nsa-model and nsa-opt are")
    args = parser.parse_args()
    opt, model = (os.path.join(args.bin, name) for name in ("nsa-opt", "nsa-model"))
    expand = (opt, "--columns=0", "--nsa-expand-model")
    text = call(opt, "--columns=0", args.old)
    if re.search(r"^  nn\.module @", text, re.M):
        fail(f"{args.old} has an nn.module already")
    name = os.path.splitext(os.path.basename(args.old))[0]
    with tempfile.TemporaryDirectory() as folder:
        source, written = (os.path.join(folder, name + suffix) for suffix in (".yaml", ".mlir"))
        with open(source, "w") as file:
            json.dump(read_config(args.old, text), file)
        call(model, source, "-o", written)
        check_equal(args.old, normalise(text), normalise(call(*expand, written)))
        with open(written) as file:
            result = file.read()
    with open(args.new, "w") as file:
        file.write(result)


main()
