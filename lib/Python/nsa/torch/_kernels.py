"""Operators of tensors, compiled at their first call and kept."""

import collections
import functools
import importlib.util
import math
import operator
import os

import torch

from nsa._arguments import truth
from nsa._compile import compile, has_ptxas
from nsa._locks import forkable_lock
from nsa._runtime import InputError, load

#: Whether one program serves every batch and length on GPUs, too, as it does on CPUs.
_has_dynamic_shapes = False

#: Prepared calls that are kept, on the CPU, where each has threads, and on GPUs, where it has the code of its kernels.
MOST_CALLS = [16, 1024]

#: Of each tensor in a piece of memory that holds several, and of arrays that kernels of a GPU take.
ALIGNMENT = 256

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i32": torch.int32}
_GPU_TARGETS = {(8, 0): "sm_80", (8, 6): "sm_86", (8, 7): "sm_86", (8, 9): "sm_89", (9, 0): "sm_90a", (10, 0): "sm_100",
                (10, 3): "sm_103", (12, 0): "sm_120", (12, 1): "sm_120"}

_lock = forkable_lock()
_modules = {}
_calls = [collections.OrderedDict() for _ in MOST_CALLS]
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_is_recording = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)


def untraced(function):
    """Hides a function, and what it calls, from torch.compile, which traces what is called where it has given up, and then
    frees memory as soon as only its address is used."""
    dynamo = torch._C._dynamo.eval_frame
    skip = dynamo._FrameAction.SKIP
    dynamo.set_code_exec_strategy(function.__code__, dynamo._FrameExecStrategy(skip, skip))
    return function


def _target(device):
    if device.type == "cpu":
        return "cpu"
    capability = torch.cuda.get_device_capability(device)
    if capability not in _GPU_TARGETS:
        known = ", ".join(f"{major}.{minor}" for major, minor in _GPU_TARGETS)
        raise InputError(f"{device} has compute capability {capability[0]}.{capability[1]}, expected one of {known}")
    return _GPU_TARGETS[capability]


@functools.cache
def _compiler_options(target):
    """All processors compile. Where no ptxas is installed, that of Triton, which comes with PyTorch, makes machine
    code for the cache; without any, the driver compiles PTX where a program is loaded."""
    options = {"compile_threads": len(os.sched_getaffinity(0))}
    if target == "cpu" or has_ptxas():
        return options
    triton = importlib.util.find_spec("triton")
    for folder in (triton and triton.submodule_search_locations) or ():
        path = os.path.join(folder, "backends", "nvidia", "bin", "ptxas")
        if os.access(path, os.X_OK):
            options["ptxas"] = path
    return options


def set_dynamic_shapes(enabled):
    """Whether one program serves every batch and length on GPUs, too: where lengths vary from call to call, none waits
    for a compiler but the first. It is slower where kernels depend on the length; docs/torch.md has a table. Calls
    before and after it may differ in the last bits. On CPUs it changes nothing."""
    global _has_dynamic_shapes
    _has_dynamic_shapes = truth("enabled", enabled)


def _module(operator, source, extents, device):
    """The program of a source for these extents."""
    target = _target(device)
    serves_all = (target == "cpu" or _has_dynamic_shapes) and source.takes_any_extents
    text = source.text(None if serves_all else extents)
    if (text, target) not in _modules:
        _modules[text, target] = compile(text, name=f"{operator.__name__}.mlir", target=target,
                                         **_compiler_options(target))
    module = _modules[text, target]
    return module.with_extents(batch=extents["B"], seq=extents["T"]) if serves_all else module


class Call:
    """An operator for tensors of one signature on one device.

    `is_recorded`: a CUDA graph has its kernels, which then stay loaded. `gradient`: the call for the gradient, once
    there was one; `parameters` are those of both.
    """

    def __init__(self, operator, tensors, parameters):
        self.is_recorded = False
        self.gradient = None
        self.parameters = parameters
        source = operator(tensors, parameters)
        self.device = device = tensors[0].device
        batch, length = tensors[source.sizes_of].shape[:2]
        extents = {"B": batch, "T": length, "N": source.rows}
        _check_arguments(source, tensors, extents)
        self.outputs = [(source.shape(alias, extents), TYPES[source.types[alias][1]])
                        for alias in source.outputs.values()]
        self._place_kept()
        # What has the shape of an argument is made fastest.
        kinds = [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
        self._like = [kinds.index(kind) if kind in kinds else None for kind in self.outputs]
        self.is_empty = batch == 0 or length == 0
        if self.is_empty:
            return
        module = _module(operator, source, extents, device)
        program = load(module._artifact, threads=0, seed=0, check_finite=False, poison=False, blas_library="",
                       device=device.index or 0, external_memory=True)
        self._run = program.prepare("main", [*source.inputs, *source.outputs])
        self._scratch = self._run.scratch_bytes
        self._index = device.index if device.type == "cuda" else None

    def _place_kept(self):
        """Where all outputs but the first lie one after another."""
        self.places, self.kept_bytes = [], 0
        for shape, dtype in self.outputs[1:]:
            self.places.append(self.kept_bytes)
            self.kept_bytes += -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT

    @untraced
    def __call__(self, tensors, kept=None, places=()):
        """The outputs for contiguous tensors, of which the last ones lie at `places` of `kept`, if that is given."""
        if self.is_empty:
            return [torch.zeros(shape, dtype=dtype, device=self.device) for shape, dtype in self.outputs]
        outputs = [self._make(i, tensors) for i in range(len(self.outputs))]
        addresses = self._addresses(tensors)
        if kept is not None:
            base = kept.data_ptr()
            addresses += [base + place for place in places]
        self._start(addresses + [output.data_ptr() for output in outputs])
        return outputs

    @untraced
    def keeping(self, tensors):
        """The first output, and the memory of the others, which lie at `places`."""
        kept = torch.empty(self.kept_bytes, dtype=torch.uint8, device=self.device)
        if self.is_empty:
            shape, dtype = self.outputs[0]
            return torch.zeros(shape, dtype=dtype, device=self.device), kept
        output, base = self._make(0, tensors), kept.data_ptr()
        self._start([*self._addresses(tensors), output.data_ptr(), *[base + place for place in self.places]])
        return output, kept

    def _make(self, number, tensors):
        like = self._like[number]
        # What is kept lies in one piece of memory and is not among the tensors.
        if like is not None and like < len(tensors):
            return torch.empty_like(tensors[like])
        shape, dtype = self.outputs[number]
        return torch.empty(shape, dtype=dtype, device=self.device)

    def views(self, kept):
        """The outputs that `keeping` has put there, as tensors."""
        return [kept[place:place + math.prod(shape) * dtype.itemsize].view(dtype).view(shape)
                for place, (shape, dtype) in zip(self.places, self.outputs[1:])]

    def _addresses(self, tensors):
        addresses = [tensor.data_ptr() for tensor in tensors]
        if self._index is not None and functools.reduce(operator.or_, addresses) % ALIGNMENT:
            # Where kernels of a GPU expect an array; views of tensors begin anywhere.
            for i, address in enumerate(addresses):
                if address % ALIGNMENT:
                    tensors[i] = tensors[i].clone()
                    addresses[i] = tensors[i].data_ptr()
        return addresses

    def _start(self, addresses):
        scratch = torch.empty(self._scratch, dtype=torch.uint8, device=self.device)
        stream = None
        if self._index is not None:
            stream = _current_stream(self._index)
            if not self.is_recorded:
                self.is_recorded = _is_recording()
        self._run(addresses, scratch.data_ptr(), stream)


def _check_arguments(source, tensors, extents):
    """What the checks of an operator leave: each tensor is what its kernels read."""
    for (name, alias), tensor in zip(source.inputs.items(), tensors, strict=True):
        shape, dtype = source.shape(alias, extents), TYPES[source.types[alias][1]]
        found = tuple(tensor.shape), tensor.dtype, tensor.device
        if found != (shape, dtype, tensors[0].device):
            raise InputError(f"the operator's argument {name} has shape {found[0]}, {found[1]} on {found[2]}; expected "
                             f"{shape}, {dtype} on {tensors[0].device}")


def contiguous(tensors):
    """The tensors, copied where they are not contiguous; a copy is no part of a graph of gradients."""
    return [tensor if tensor.is_contiguous() else tensor.detach().contiguous() for tensor in tensors]


@untraced
def find(operator, tensors, parameters, check=lambda: None):
    """The call of an operator of _sources for tensors like these; `check` says what is wrong with them, if
    something is."""
    key = (operator, parameters, _has_dynamic_shapes,
           *[(tensor.shape, tensor.dtype, tensor.get_device()) for tensor in tensors])
    is_cuda = tensors[0].is_cuda
    calls = _calls[is_cuda]
    call = calls.get(key)
    if call is None:
        with _lock:
            call = calls.get(key)
            if call is None:
                check()
                call = calls[key] = Call(operator, tensors, parameters)
                _evict(calls, MOST_CALLS[is_cuda])
    elif not is_cuda:
        _touch(calls, key)
    return call


def run(operator, tensors, parameters, check):
    """What an operator of _sources gives for tensors.

    They are used where they are if they are contiguous, and copied once if not. Memory
    comes from PyTorch's allocator; on a GPU the call is put on the current stream.
    """
    tensors = contiguous(tensors)
    return find(operator, tensors, parameters, check)(tensors)


def _touch(calls, key):
    try:
        calls.move_to_end(key)
    except KeyError:
        # Another thread has dropped it.
        pass


def _evict(calls, most):
    old = [key for key, call in list(calls.items()) if not call.is_recorded]
    for key in old[:max(0, len(calls) - most)]:
        del calls[key]
