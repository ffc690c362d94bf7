"""From text to modules."""

import importlib
import logging
import os
import re
import sys
import warnings

from nsa._arguments import optional, path as _path, shown, takes, text as _text, texts
from nsa._files import open_file
from nsa._module import Module
from nsa._runtime import Artifact, InputError, OptionError, RunError, cached, is_cache_off, read_artifact

try:
    _compiler = importlib.import_module("nsa._compiler")
except ModuleNotFoundError as error:
    if error.name != "nsa._compiler":
        raise
    _compiler = None

_log = logging.getLogger("nsa")

PHASES = _compiler.PHASES if _compiler else []
GPU_PHASES = _compiler.GPU_PHASES if _compiler else []
Report = _compiler.Report if _compiler else None


def _need_compiler():
    if not _compiler:
        raise RunError("this installation of nsa runs programs and has no compiler; install nsa-compiler for one")
    return _compiler


def has_ptxas():
    """Whether programs for GPUs become machine code without the option `ptxas`."""
    return bool(_need_compiler().find_ptxas())


class _Compilation:
    """A source and the options that it is compiled with."""

    def __init__(self, source, name, options):
        self.source = source
        self.name = name
        self.options = options
        self._report = None

    def artifact(self):
        """The contents of the artefact, from the cache if it is there."""
        inputs, is_plain = _need_compiler().describe(self.options)
        if not is_plain or is_cache_off():
            return self.compile()
        stem = os.path.splitext(os.path.basename(self.name))[0]
        label = re.sub(r"[^A-Za-z0-9._-]", "_", stem) or "module"
        try:
            return cached(label, self.source, f"{self.name}\n{inputs}", self.compile, _log.info)
        except RunError as error:
            warnings.warn(f"compiled without a cache: {error}", stacklevel=4)
            return self.compile()

    def compile(self):
        data, self._report, messages = _need_compiler().compile(self.source, self.name, self.options)
        if "warning: " in messages:
            warnings.warn(messages, stacklevel=5)
        elif messages:
            print(messages, file=sys.stderr)
        return data

    def ir(self, phase):
        return _need_compiler().compile_to(phase, self.source, self.name, self.options)

    def report(self):
        if self._report is None:
            self.compile()
        return self._report

    def estimate(self):
        return self._report or _need_compiler().estimate(self.source, self.name, self.options)


def _read_source(source, name):
    """The bytes of a source, and what it is called."""
    if isinstance(source, Module):
        kept = source._need_source("compile")
        return kept.source, name or kept.name
    if isinstance(source, bytes):
        return source, name or "module.mlir"
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return source.encode(), name or "module.mlir"
    if not isinstance(source, (str, os.PathLike)):
        raise InputError(f"the source is {shown(source)}, expected text, a path, bytes or a Module")
    path = _path("the source", source)
    try:
        with open_file(path) as file:
            text = file.read()
    except OSError as error:
        raise InputError(f"cannot read the source '{path}': {error.strerror}") from error
    if os.path.splitext(path)[1] in (".yaml", ".yml", ".json"):
        return _need_compiler().model_text(text, path).encode(), name or path
    return text, name or path


def _check_options(options):
    """Checks types of option values; the compiler checks the rest."""
    for key, value in options.items():
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if not (each is None or isinstance(each, (str, bool, int, float, os.PathLike))):
                raise OptionError(f"option '{key}' is {shown(value)}, expected a text, a number, True or False, or a list of "
                                  "these")


@takes(name=optional(_text), gradients=texts)
def compile(source, *, name=None, target="cpu", gradients=(), threads=0, seed=0, check_finite=False, poison=False,
            blas_library="", device=0, **options):
    """Compile MLIR to a Module.

    `source` is text (with a line break or a brace), the path of a file (a configuration
    .yaml or .json stands for its model), bytes, or a Module that was compiled, to be
    compiled otherwise; `name` stands for it in messages.
    `target` is "cpu", or a GPU such as "sm_80" or "sm_90a" (docs/tools.md); that needs no GPU here.
    `gradients` names arguments of functions: their gradients become outputs `grad.NAME`, of
    the first floating-point result (or the one marked nn.objective), whose gradient is an
    input `grad.RESULT` unless it is a scalar.

    How it runs: `threads` of the CPU (0: one per processor), `seed` of initial values,
    `check_finite` (a NaN or an infinity is an error), `poison` (NaNs where nothing was
    written), `blas_library` (a file or folder), `device` (the number of the GPU).

    Artefacts are kept in $XDG_CACHE_HOME/nsa (~/.cache/nsa), 2 GiB at most, by source, options
    and build of the compiler; NSA_CACHE=0 in the environment turns that off.

    Every performance lint is allowed unless allow_slow_path names the ones that are ([] for
    none); nsa-compile allows none by default.

    Raises CompileError with what the compiler reported, OptionError for an unknown option,
    InputError for a source that cannot be read (all are ValueErrors).

    >>> import numpy, nsa
    >>> module = nsa.compile('''
    ... func.func @twice(%x: tensor<2x3xf32> {nn.name = "x"}) -> (tensor<2x3xf32> {nn.name = "y"}) {
    ...   %y = nn.add %x, %x : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    ...   return %y : tensor<2x3xf32>
    ... }''')
    >>> float(module.twice(x=numpy.ones((2, 3), numpy.float32))["y"].sum())
    12.0
    """
    source, name = _read_source(source, name)
    options = {"target": target, "gradients": gradients, **options}
    _check_options(options)
    compilation = _Compilation(source, name, options)
    runtime = dict(threads=threads, seed=seed, check_finite=check_finite, poison=poison, blas_library=blas_library,
                   device=device)
    return Module(Artifact(compilation.artifact(), name), runtime, compilation)


@takes(phase=_text, name=optional(_text))
def compile_to(phase, source, *, name=None, **options):
    """The IR after a phase (one of PHASES and, for a GPU, GPU_PHASES), as text; the options are those of compile."""
    source, name = _read_source(source, name)
    _check_options(options)
    return _Compilation(source, name, options).ir(phase)


@takes(name=optional(_text))
def load(artifact, *, name=None, threads=0, seed=0, check_finite=False, poison=False, blas_library="", device=0):
    """A Module from an artefact (.nsax): a path, or the contents as bytes.

    The keywords are those of compile. An artefact holds machine code: load only what you
    trust. Raises InputError (a ValueError) for a file that cannot be read or is damaged.
    """
    runtime = dict(threads=threads, seed=seed, check_finite=check_finite, poison=poison, blas_library=blas_library,
                   device=device)
    if isinstance(artifact, (bytes, bytearray, memoryview)):
        return Module(Artifact(bytes(artifact), name or "artifact"), runtime)
    if not isinstance(artifact, (str, os.PathLike)):
        raise InputError(f"the artefact is {shown(artifact)}, expected a path or bytes")
    return Module(read_artifact(_path("the artefact", artifact)), runtime)


def load_bytes(artifact, **keywords):
    """A Module from the contents of a .nsax file; see load."""
    if not isinstance(artifact, (bytes, bytearray, memoryview)):
        raise InputError(f"the artefact is {shown(artifact)}, expected bytes")
    return load(bytes(artifact), **keywords)


if _compiler:
    compile.__doc__ += "\n    Options of the compiler, as nsa-compile --help has them:\n" + _compiler.OPTIONS
    compile_to.__doc__ += "\n\n    Options of the compiler:\n" + _compiler.OPTIONS
