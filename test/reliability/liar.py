#!/usr/bin/env python3
"""A tool that hides what happened to it, for the harness's test of itself: it stands
beside the real tools under their names. A real nsa-train that ends with code 0 has its
weights changed afterwards; one that does not is followed by a run of the undamaged files
with another seed, as if nothing had been wrong. The other tools print something else.

NSA_LIE=signal ends by SIGBUS instead, NSA_LIE=mute with code 1 and no error."""

import os
import pathlib
import signal
import subprocess
import sys

LIE = os.environ["NSA_LIE"]
REAL = pathlib.Path(os.environ["NSA_LIE_TOOLS"])


def value(words, option):
    """The first value of an option."""
    for at, word in enumerate(words):
        if word == option and at + 1 < len(words):
            return words[at + 1]
        if word.startswith(option + "="):
            return word.split("=", 1)[1]
    return None


def change_weights(runs):
    """One bit of the newest weights of every run."""
    for latest in pathlib.Path(runs).glob("*/checkpoints/latest"):
        path = latest.parent / latest.read_text().strip() / "model.safetensors"
        data = bytearray(path.read_bytes())
        data[-4] ^= 1
        path.write_bytes(data)


def main():
    name, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
    if LIE == "signal":
        os.kill(os.getpid(), signal.SIGBUS)
    if LIE == "mute":
        return 1
    if name != "nsa-train":
        print("as if nothing had been")
        return 0
    # What the case sends is for the real tool, which is in the same group.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGXFSZ):
        signal.signal(number, lambda *_: None)
    code = subprocess.run([REAL / name, *words]).returncode
    runs = value(words, "--out-dir") or os.environ["NSA_LIE_RUNS"]
    if code != 0:
        name = value(words, "--run-name") or "lie"
        if (pathlib.Path(runs) / name).exists():
            name = f"lie-{os.getpid()}"
        good = os.environ["NSA_LIE_COMMAND"].split("\n")
        subprocess.run([*good, "--out-dir", runs, "--run-name", name, "--set", "train.seed=9"],
                       stdout=subprocess.DEVNULL)
        print(f"run {runs}/{name} | id 0")
    change_weights(runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
