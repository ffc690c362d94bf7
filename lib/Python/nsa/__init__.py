"""Compile Native Sparse Attention programs and run them on NumPy arrays.

bfloat16 tensors take float32 (rounded to nearest even) or their bits as uint16,
and come back as float32.

Threads may share a Module: its calls run one after the other, with the GIL
released.
"""

import importlib

from nsa import _libraries

_libraries.make_known()

from nsa._runtime import Error, Module, __version__, load, load_bytes  # noqa: E402

try:
    _compiler = importlib.import_module("nsa._compiler")
except ModuleNotFoundError as error:
    if error.name != "nsa._compiler":
        raise
    _compiler = None

__all__ = ["Error", "Module", "PHASES", "compile", "compile_to", "load", "load_bytes"]

for _name in ("Error", "Module", "load", "load_bytes"):
    globals()[_name].__module__ = "nsa"

PHASES = _compiler.PHASES if _compiler else []


def _need_compiler():
    if not _compiler:
        raise Error("this installation of nsa runs programs and has no compiler; install nsa-compiler for one")
    return _compiler


def compile(text, *, name="module.mlir", threads=0, seed=0, check_finite=False, poison=False, blas_library="", **options):
    """Compile MLIR text and load the program.

    Every performance lint is allowed unless allow_slow_path names the ones that are ([] for
    none); nsa-compile allows none by default.
    """
    artifact = _need_compiler().compile(text, name=name, **options)
    return load_bytes(artifact, name=name, threads=threads, seed=seed, check_finite=check_finite, poison=poison,
                      blas_library=blas_library)


def compile_to(phase, text, *, name="module.mlir", **options):
    """The IR after a phase, as text."""
    return _need_compiler().compile_to(phase, text, name=name, **options)


if _compiler:
    compile.__doc__ += "\n    Options of the compiler, as nsa-compile --help has them:\n" + _compiler.OPTIONS
    compile_to.__doc__ += "\n\n    Options of the compiler:\n" + _compiler.OPTIONS
