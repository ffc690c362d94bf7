"""The programs of nsa as console scripts."""

import importlib
import os
import sys

from nsa import _libraries


# Those that are written in Python.
_FUNCTIONS = {"nsa-eval": ("nsa.evaluate.__main__", "main"), "nsa-export": ("nsa.hf.__main__", "main_export"),
              "nsa-import": ("nsa.hf.__main__", "main_import"), "nsa-serve": ("nsa.serve.__main__", "main")}


def start(name):
    """Run a program that is written in Python. Returns its exit code."""
    module, function = _FUNCTIONS[name]
    return getattr(importlib.import_module(module), function)()


def main():
    """Replace this process by the program that it was called as."""
    name = os.path.basename(sys.argv[0])
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    if not os.path.exists(program):
        sys.exit(f"{name}: error: this installation of nsa has no {name}; nsa-compiler brings it")
    _libraries.make_known()
    os.execv(program, [program, *sys.argv[1:]])
