"""Sequences that share a row: cu_seqlens, as variable-length attention has them."""

import torch

from nsa._runtime import InputError

_RULE = "expected 0, then where each sequence ends, ascending, up to the {} tokens"


def _check_form(cu_seqlens, x):
    if not isinstance(cu_seqlens, torch.Tensor):
        raise InputError(f"cu_seqlens is a {type(cu_seqlens).__name__}, expected a tensor")
    if cu_seqlens.dtype != torch.int32:
        raise InputError(f"cu_seqlens is {cu_seqlens.dtype}, expected torch.int32")
    if cu_seqlens.dim() != 1 or cu_seqlens.shape[0] < 2:
        raise InputError(f"cu_seqlens has shape {tuple(cu_seqlens.shape)}, expected [number of sequences + 1]")
    if cu_seqlens.device.type != "cpu" and cu_seqlens.device != x.device:
        raise InputError(f"cu_seqlens lies on {cu_seqlens.device}, expected {x.device} or the CPU")
    if x.dim() < 2 or x.shape[0] != 1:
        raise InputError(f"cu_seqlens is given for tensors of shape {tuple(x.shape)}, expected a batch of 1: sequences "
                         "lie one after another")


def _check_values(ends, length):
    """What is wrong with the values, on the host."""
    rule = _RULE.format(length)
    if ends[0] != 0:
        raise InputError(f"cu_seqlens begins with {ends[0]}, {rule}")
    for i, (before, end) in enumerate(zip(ends, ends[1:])):
        if end < before:
            raise InputError(f"cu_seqlens[{i + 1}] is {end}, less than {before} before it; {rule}")
    if ends[-1] != length:
        raise InputError(f"cu_seqlens ends with {ends[-1]}, {rule}")


def starts_of(cu_seqlens, x):
    """The index of the first token of each token's sequence, int32 [1, T], for tensors x [1, T, ...].

    cu_seqlens is int32 [sequences + 1]: 0, then where each ends; some may be empty. Values on the
    CPU are checked here. Those on a GPU are not waited for: what is wrong with them stops the
    GPU with an assertion.
    """
    _check_form(cu_seqlens, x)
    length = x.shape[1]
    is_traced = torch.compiler.is_compiling() or type(cu_seqlens) is not torch.Tensor
    if cu_seqlens.device.type == "cpu" and not is_traced:
        _check_values(cu_seqlens.tolist(), length)
        ends = cu_seqlens.to(x.device, non_blocking=True)
    else:
        ends = cu_seqlens.to(x.device)
        is_right = (ends[0] == 0) & (ends[-1] == length) & (ends[1:] >= ends[:-1]).all()
        torch._assert_async(is_right, f"cu_seqlens is wrong: {_RULE.format('T')}")
    tokens = torch.arange(length, dtype=torch.int32, device=x.device)
    sequence = torch.searchsorted(ends, tokens, right=True) - 1
    starts = ends[sequence.clamp(0, ends.shape[0] - 2)]
    # Wrong values must not become addresses before the assertion stops the GPU.
    return torch.minimum(starts.clamp(min=0), tokens)[None]
