"""Compiled programs, and their entries as methods."""

import inspect
import sys

import numpy

from nsa._arguments import array, path as _path, shown, takes, text, truth, whole
from nsa._locks import forkable_lock
from nsa._runtime import InputError, OptionError, RunError, load as _load

_loading = forkable_lock()

_NUMPY_TYPES = {"f32": "float32", "f16": "float16", "i32": "int32", "i64": "int64", "u8": "uint8"}
_TORCH_TYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "i32": "int32", "i64": "int64", "u8": "uint8"}


def _bf16():
    """The type of NumPy arrays of bf16: that of ml_dtypes, where it is installed, else uint16 for the bits."""
    try:
        import ml_dtypes
    except ImportError:
        return numpy.dtype(numpy.uint16)
    return numpy.dtype(ml_dtypes.bfloat16)


def _find_torch(arrays):
    """The module torch and the device of the first tensor among the arrays."""
    torch = sys.modules.get("torch")
    for array in arrays if torch else ():
        if isinstance(array, torch.Tensor):
            return torch, array.device
    return None, None


def _handle(stream):
    """A stream as the driver's number: an int, or what has one as PyTorch's and cuda.core's streams have."""
    if stream is None:
        return None
    if isinstance(stream, int):
        return whole(0, (1 << 64) - 1)("stream", stream)
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise InputError(f"the stream is a {type(stream).__name__}, expected a number, or an object with __cuda_stream__, "
                     "cuda_stream, ptr or handle")


def _producers(arrays, stream):
    """The stream that wrote tensors of PyTorch, if the call does not run after it anyway."""
    torch, place = _find_torch(arrays.values())
    if not torch or place.type != "cuda":
        return []
    current = torch.cuda.current_stream(place).cuda_stream
    return [] if current == (_handle(stream) or 0) else [current]


class Entry:
    """An entry of a module, to be called with arrays.

    Arrays are passed by keyword, named as the entry's inputs; a name with a dot, such as
    `grad.o`, is also known as `grad_o`. They are dense row-major arrays of NumPy, or of
    any library with DLPack (PyTorch, JAX, CuPy), the array interface or the CUDA array
    interface; the element type and the shape are those of the tensor (`inputs`), and they
    lie where the module runs: on the CPU, or on its GPU at a multiple of 256 bytes. They
    are used where they are, without a copy. NumPy has no bf16: it is ml_dtypes.bfloat16,
    or uint16 for the bits.

    `out` is an array for the only output, or {name: array}; outputs that it does not name
    are new arrays: tensors of PyTorch if an argument is one, else of NumPy (bf16 as
    ml_dtypes.bfloat16 where ml_dtypes is installed, else as uint16). Returns
    {name: array} with all outputs.

    `stream`, on a GPU: a stream of the driver (a number, 0 for the default one, or an
    object with __cuda_stream__ or cuda_stream). The call then returns at once; what the
    stream has before it is waited for, and what is put there after it finds the outputs.
    Without one the call waits for the default stream before, and for the outputs after.
    PyTorch's current stream is waited for where an argument is a tensor of PyTorch.

    Threads may call entries of one module; calls use its memory one after the other.

    Errors: InputError (a ValueError), before anything runs, for a name that the entry does
    not have, or an array that is missing or has another type, shape, order of elements or
    device; it says both what was found and what is expected. RunError (a RuntimeError) if
    the machine cannot run the program, or a run fails.
    """

    def __init__(self, module, name):
        inputs, outputs = module.entries[name]
        tensors = module.tensors
        self._module = module
        self.name = self.__name__ = name
        #: {input: (type, shape)}; parameters and states of the module need not be given.
        self.inputs = {key: tensors[key][:2] for key in inputs}
        #: {output: (type, shape)} of what a call returns.
        self.outputs = {key: tensors[key][:2] for key in outputs if tensors[key][2] == "output"}
        known = [*inputs, *outputs]
        self._aliases = {key.replace(".", "_"): key for key in known if key.replace(".", "_") not in known}
        parameters = [inspect.Parameter(key.replace(".", "_"), inspect.Parameter.KEYWORD_ONLY)
                      for key in inputs if key.replace(".", "_").isidentifier() and tensors[key][2] == "input"]
        parameters += [inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None)
                       for key in ("out", "stream")]
        self.__signature__ = inspect.Signature(parameters)

    def __repr__(self):
        return f"<nsa.Entry {self._describe()}>"

    def _describe(self):
        def text(tensors):
            return ", ".join(f"{key}: {kind}{list(shape)}" for key, (kind, shape) in tensors.items())
        data = {key: value for key, value in self.inputs.items() if self._module.tensors[key][2] == "input"}
        return f"{self.name}({text(data)}) -> ({text(self.outputs)})"

    def __call__(self, *positional, out=None, stream=None, **arrays):
        if positional:
            raise InputError(f"entry '{self.name}' takes its arrays by name: {', '.join(self.inputs)}")
        arrays = {self._aliases.get(key, key): value for key, value in arrays.items()}
        program = self._module.program
        given = self._given(out)
        for key in given:
            if key in arrays:
                raise InputError(f"entry '{self.name}': argument '{key}' is given twice")
        results = {key: given[key] if key in given else self._empty(key, arrays.values(), program.device)
                   for key in self.outputs}
        program.call(self.name, {**arrays, **results}, _handle(stream), _producers(arrays, stream))
        return results

    def _given(self, out):
        if out is None:
            return {}
        if not isinstance(out, dict):
            if len(self.outputs) != 1:
                raise InputError(f"entry '{self.name}': out is one array, expected a dict for the {len(self.outputs)} "
                                 f"outputs {', '.join(self.outputs)}")
            return {next(iter(self.outputs)): out}
        out = {self._aliases.get(key, key): value for key, value in out.items()}
        for key in out:
            if key not in self.outputs:
                raise InputError(f"entry '{self.name}' has no output '{key}'; it has {', '.join(self.outputs)}")
        return out

    def _empty(self, key, arrays, device):
        kind, shape = self.outputs[key]
        torch, place = _find_torch(arrays)
        if torch:
            return torch.empty(shape, dtype=getattr(torch, _TORCH_TYPES[kind]),
                               device=place if device == "cpu" or place.type == "cuda" else device)
        if device != "cpu":
            raise InputError(f"entry '{self.name}': there is no array for the output '{key}' on {device}; give one "
                             "with out=, or a tensor of PyTorch as an argument")
        return numpy.empty(shape, _bf16() if kind == "bf16" else _NUMPY_TYPES[kind])


def _library(name, value):
    """A path, or none where it is empty."""
    return _path(name, value) if not isinstance(value, str) or value else ""


_RUNTIME = {"threads": whole(0, (1 << 31) - 1), "seed": whole(0, (1 << 64) - 1), "check_finite": truth, "poison": truth,
            "blas_library": _library, "device": whole(0, (1 << 31) - 1)}


def _checked(runtime, target):
    """Checks the runtime options, and returns them for the loader."""
    try:
        checked = {key: _RUNTIME[key](f"option '{key}'", value) for key, value in runtime.items()}
    except InputError as error:
        raise OptionError(str(error)) from None
    if target == "cpu" and checked["device"]:
        raise OptionError("option 'device' has no effect for the target 'cpu'")
    return checked


#: Sizes with larger ones do not fit any address.
_MOST_EXTENT = (1 << 48) - 1


class Module:
    """A compiled program; nsa.compile and nsa.load make them.

    Its entries are methods: a function `@window` of the source is called as
    `module.window(q=..., k=..., v=...)`; see Entry. It is loaded by the first call, so that
    one for a GPU can be made, inspected and saved on a machine without one.
    """

    def __init__(self, artifact, runtime, compilation=None):
        self._artifact = artifact
        self._runtime = _checked(runtime, artifact.target)
        self._compilation = compilation
        self._loaded = None
        #: {entry: (input names, output names)}
        self.entries = artifact.entries
        #: {tensor: (type, shape, role)}
        self.tensors = artifact.tensors
        self._methods = {name: Entry(self, name) for name in self.entries}

    @property
    def name(self):
        """The name of the program in messages."""
        return self._artifact.name

    @property
    def target(self):
        """The machine that it is for: cpu, or a GPU such as sm_90a."""
        return self._artifact.target

    @property
    def artifact(self):
        """The contents of the .nsax file."""
        return self._artifact.bytes

    @property
    def program(self):
        """The program loaded on this machine. RunError if that cannot be."""
        with _loading:
            if self._loaded is None:
                self._loaded = _load(self._artifact, **self._runtime)
            return self._loaded

    @takes(name=text)
    def entry(self, name):
        """The Entry of this name, whatever methods a module has."""
        if name not in self._methods:
            raise InputError(f"{self.name} has no entry '{name}'; it has {', '.join(self.entries)}")
        return self._methods[name]

    def __getattr__(self, name):
        methods = self.__dict__.get("_methods", {})
        if name in methods:
            return methods[name]
        raise AttributeError(f"{type(self).__name__} has no attribute '{name}', and this one no such entry; it has "
                             f"{', '.join(methods)}", name=name, obj=self)

    def __dir__(self):
        return [*super().__dir__(), *self._methods]

    def __repr__(self):
        entries = ", ".join(entry._describe() for entry in self._methods.values())
        return f"<nsa.Module '{self.name}' for {self._artifact.cpu}: {entries}>"

    def save(self, path):
        """Write the .nsax file, whole or not at all."""
        self._artifact.save(_path("path", path))

    @property
    def extents(self):
        """Names of the extents that are `?` in the source and still to be given: batch, seq."""
        return self._artifact.extents

    def with_extents(self, **extents):
        """The same program for tensors of these extents, with the same machine code.

        >>> import numpy, nsa
        >>> module = nsa.compile('''
        ... func.func @twice(%x: tensor<?x?x3xf32> {nn.name = "x"}) -> (tensor<?x?x3xf32> {nn.name = "y"}) {
        ...   %y = nn.add %x, %x : (tensor<?x?x3xf32>, tensor<?x?x3xf32>) -> tensor<?x?x3xf32>
        ...   return %y : tensor<?x?x3xf32>
        ... }''')
        >>> module.with_extents(batch=1, seq=2).twice(x=numpy.ones((1, 2, 3), numpy.float32))["y"].shape
        (1, 2, 3)
        """
        names = self.extents
        if sorted(extents) != sorted(names):
            raise InputError(f"{self.name} is given the extents ({', '.join(sorted(extents))}), expected "
                             f"({', '.join(names)})")
        values = [whole(0, _MOST_EXTENT)(name, extents[name]) for name in names]
        return Module(self._artifact.with_extents(values), self._runtime, self._compilation)

    @takes(entry=text)
    def run(self, entry, inputs):
        """Run an entry on copies: {input: NumPy array} -> {output: NumPy array}.

        Any order of elements will do. bf16 takes float32, rounded to nearest even, or its
        bits as uint16, and comes back as float32.
        """
        if not isinstance(inputs, dict):
            raise InputError(f"inputs is {shown(inputs)}, expected a dict of arrays by name")
        return self.program.run(entry, {text("the name of an input", name): array(f"input '{name}'", value)
                                        for name, value in inputs.items()})

    @takes(name=text)
    def read(self, name):
        """A copy of a named tensor, for example a parameter, as a NumPy array (bf16 as float32)."""
        return self.program.read(name)

    @takes(name=text, value=array)
    def write(self, name, value):
        """Overwrite a named tensor."""
        self.program.write(name, value)

    @takes(phase=text)
    def ir(self, phase):
        """The IR after a phase (one of nsa.PHASES and, for a GPU, nsa.GPU_PHASES), as text.

        Only of a module that nsa.compile made: an artefact has no IR.
        """
        return self._need_source("ir").ir(phase)

    def ptx(self):
        """The PTX of all kernels of a program for a GPU, as text."""
        if self.target == "cpu":
            raise InputError(f"{self.name} is for the target 'cpu', expected a GPU: only those have PTX")
        text = self._artifact.ptx
        return text if text is not None else self._need_source("ptx").ir("ptx")

    def report(self):
        """A Report of commands and memory; str() is a table by command. Only of what was compiled here."""
        return self._need_source("report").report()

    def estimate(self):
        """The memory that the program needs, as a Report, without making machine code."""
        return self._need_source("estimate").estimate()

    def _need_source(self, what):
        if self._compilation is None:
            raise RunError(f"{self.name} was loaded and has no source for {what}(); nsa.compile keeps it")
        return self._compilation
