"""Compile Native Sparse Attention programs and run them on arrays.

    module = nsa.compile(open("window.mlir").read())      # or nsa.load("window.nsax")
    result = module.window(q=q, k=k, v=v)                 # {"o": ..., "lse": ...}

Arrays of NumPy, PyTorch and others are used where they are; see Entry. Every error is an
nsa.Error, and a ValueError (InputError) or a RuntimeError (RunError).
"""

from nsa import _libraries

_libraries.make_known()

from nsa._compile import GPU_PHASES, PHASES, Report, compile, compile_to, load, load_bytes  # noqa: E402
from nsa._checkpoint import model_text  # noqa: E402
from nsa._model import Model  # noqa: E402
from nsa._module import Entry, Module  # noqa: E402
from nsa._runtime import CompileError, Error, InputError, OptionError, RunError, __version__  # noqa: E402
from nsa._scheduler import Scheduler  # noqa: E402

__all__ = ["CompileError", "Entry", "Error", "GPU_PHASES", "InputError", "Model", "Module", "OptionError", "PHASES", "RunError",
           "Scheduler", "compile", "compile_to", "load", "load_bytes", "model_text"]

for _name in __all__:
    if hasattr(globals()[_name], "__module__"):
        globals()[_name].__module__ = "nsa"
