"""Operators of tensors, compiled at their first call and kept."""

import collections
import threading

import torch

from nsa._compile import compile
from nsa._runtime import InputError, load

#: Targets with one program for every batch and length; elsewhere there is one for each shape.
ANY_EXTENTS = {"cpu"}

#: Prepared calls that are kept, on the CPU, where each has threads, and on GPUs, where it has the code of its kernels.
MOST_CALLS = [16, 1024]

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i32": torch.int32}
_GPU_TARGETS = {(8, 0): "sm_80", (8, 6): "sm_86", (8, 7): "sm_86", (8, 9): "sm_86", (9, 0): "sm_90a"}

_lock = threading.Lock()
_modules = {}
_calls = [collections.OrderedDict() for _ in MOST_CALLS]
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_is_recording = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)


def _target(device):
    if device.type == "cpu":
        return "cpu"
    capability = torch.cuda.get_device_capability(device)
    if capability not in _GPU_TARGETS:
        known = ", ".join(f"{major}.{minor}" for major, minor in _GPU_TARGETS)
        raise InputError(f"{device} has compute capability {capability[0]}.{capability[1]}, expected one of {known}")
    return _GPU_TARGETS[capability]


def _module(operator, source, extents, device):
    """The program of a source for these extents."""
    target = _target(device)
    serves_all = target in ANY_EXTENTS and source.takes_any_extents
    text = source.text(None if serves_all else extents)
    if (text, target) not in _modules:
        _modules[text, target] = compile(text, name=f"{operator.__name__}.mlir", target=target)
    module = _modules[text, target]
    return module.with_extents(batch=extents["B"], seq=extents["T"]) if serves_all else module


class _Call:
    """An operator for tensors of one signature on one device.

    `is_recorded`: a CUDA graph has its kernels, which then stay loaded.
    """

    def __init__(self, operator, tensors, parameters):
        self.is_recorded = False
        source = operator(tensors, parameters)
        self.device = device = tensors[0].device
        batch, length = tensors[source.sizes_of].shape[:2]
        extents = {"B": batch, "T": length, "N": source.rows}
        _check_arguments(source, tensors, extents)
        self.outputs = [(source.shape(alias, extents), TYPES[source.types[alias][1]])
                        for alias in source.results.values()]
        self.is_empty = batch == 0 or length == 0
        if self.is_empty:
            return
        module = _module(operator, source, extents, device)
        program = load(module._artifact, threads=0, seed=0, check_finite=False, poison=False, blas_library="",
                       device=device.index or 0, external_memory=True)
        self._run = program.prepare("main", [*source.arguments, *source.results])
        self._scratch = self._run.scratch_bytes
        self._index = device.index if device.type == "cuda" else None

    def __call__(self, tensors):
        device = self.device
        if self.is_empty:
            return [torch.zeros(shape, dtype=dtype, device=device) for shape, dtype in self.outputs]
        outputs = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in self.outputs]
        scratch = torch.empty(self._scratch, dtype=torch.uint8, device=device)
        addresses = [tensor.data_ptr() for tensor in tensors]
        stream = None
        if self._index is not None:
            stream = _current_stream(self._index)
            self.is_recorded |= _is_recording()
            for i, address in enumerate(addresses):
                # Where kernels of a GPU expect an array; views of tensors begin anywhere.
                if address % 256:
                    tensors[i] = tensors[i].clone()
                    addresses[i] = tensors[i].data_ptr()
        addresses += [output.data_ptr() for output in outputs]
        self._run(addresses, scratch.data_ptr(), stream)
        return outputs


def _check_arguments(source, tensors, extents):
    """What the checks of an operator leave: each tensor is what its kernels read."""
    for (name, alias), tensor in zip(source.arguments.items(), tensors, strict=True):
        shape, dtype = source.shape(alias, extents), TYPES[source.types[alias][1]]
        found = tuple(tensor.shape), tensor.dtype, tensor.device
        if found != (shape, dtype, tensors[0].device):
            raise InputError(f"the operator's argument {name} has shape {found[0]}, {found[1]} on {found[2]}; expected "
                             f"{shape}, {dtype} on {tensors[0].device}")


def run(operator, tensors, parameters, check):
    """What an operator of _sources gives for tensors; `check` says what is wrong with them, if something is.

    They are used where they are if they are contiguous, and copied once if not. Memory
    comes from PyTorch's allocator; on a GPU the call is put on the current stream.
    """
    tensors = [tensor.contiguous() for tensor in tensors]
    key = (operator, parameters, *[(tensor.shape, tensor.dtype, tensor.get_device()) for tensor in tensors])
    calls = _calls[tensors[0].is_cuda]
    call = calls.get(key)
    if call is None:
        with _lock:
            call = calls.get(key)
            if call is None:
                check()
                call = calls[key] = _Call(operator, tensors, parameters)
                _evict(calls, MOST_CALLS[tensors[0].is_cuda])
    elif not tensors[0].is_cuda:
        _touch(calls, key)
    return call(tensors)


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
