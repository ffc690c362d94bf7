"""Operators of plain tensors with their gradients: what a call takes outside of tracing.

An operator that is registered (_operators.py) passes PyTorch's dispatcher and a wrapper of its
gradient, both in Python, which take longer than its kernels for short sequences. Here are the same
calls of the same programs without them.
"""

import torch
from torch.autograd import Function

from nsa.torch import _operators as ops
from nsa.torch import _sources
from nsa.torch._checks import check_attention
from nsa.torch._kernels import contiguous, find

_PLAIN = {torch.Tensor, torch.nn.Parameter}


def is_plain(tensors):
    """Whether nothing traces, transforms or looks at a call of these tensors; None stands for one that is not given."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    if torch._C._are_functorch_transforms_active():
        return False
    return all(tensor is None or type(tensor) in _PLAIN and (tensor.is_cuda or tensor.is_cpu) for tensor in tensors)


def _needs_gradient(tensors):
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _final(name, gradients):
    """Gradients that cannot be differentiated: where a graph of them is made, doing so is an error."""
    if not torch.is_grad_enabled():
        return gradients
    message = f"nsa::{name} is a gradient and has none itself: second derivatives are not supported"
    refuse = torch._C._functions.DelayedError(message.encode(), len(gradients))
    return refuse(*[gradient.detach().requires_grad_() for gradient in gradients])


class _Attention(Function):
    """`used` are the tensors as kernels read them; `tensors` are those that have gradients, which come first there."""

    @staticmethod
    def forward(ctx, call, used, *tensors):
        output, kept = call.keeping(used)
        ctx.save_for_backward(*used, kept)
        ctx.call, ctx.types = call, [tensor.dtype for tensor in tensors]
        return output

    @staticmethod
    def backward(ctx, grad):
        call, (*used, kept) = ctx.call, ctx.saved_tensors
        [grad] = contiguous([grad])
        if call.gradient is None:
            call.gradient = find(_sources.attention_backward, [grad, *used, *call.views(kept)], call.parameters)
        gradients = call.gradient([grad, *used], kept, call.places)
        gradients = [gradient if gradient.dtype == dtype else gradient.to(dtype)
                     for gradient, dtype in zip(gradients, ctx.types)]
        return None, None, *_final("attention_backward", gradients)


#: Function.apply without what it does for transformations, of which is_plain sees none.
_apply_attention = super(Function, _Attention).apply


def attention(tensors, keys, values, rotary, start, sizes, phi, scale):
    """torch.ops.nsa.attention, but of the output alone."""
    leaves = [*tensors, *keys, *values]
    used = [*tensors, *keys, *values, *ops.given(rotary, start)]
    if used[7].dtype != torch.float32:
        used[7] = used[7].detach().float()
    used = contiguous(used)
    needs_gradient = _needs_gradient(leaves)
    call = find(_sources.attention if needs_gradient else _sources.attention_inference, used,
                (*sizes, phi, scale, len(keys), int(rotary is not None), start is not None),
                lambda: check_attention(tensors, keys, values, rotary, start, sizes, phi))
    return _apply_attention(call, used, *leaves) if needs_gradient else call(used)[0]


class _Attend(Function):
    @staticmethod
    def forward(ctx, q, k, v, *others):
        output, lse = ops.attend(q, k, v, *others)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(lse)
        ctx.save_for_backward(q, k, v, output, lse, *others[:2])
        ctx.parameters = others[2:]
        return output, lse

    @staticmethod
    def backward(ctx, grad, _):
        if grad is None:
            return (None,) * 7
        gradients = ops.attend_backward(grad, *ctx.saved_tensors, *ctx.parameters)
        return *_final("attend_backward", gradients), None, None, None, None


def attend(*inputs):
    """torch.ops.nsa.attend"""
    return _Attend.apply(*inputs) if _needs_gradient(inputs[:3]) else ops.attend(*inputs)


class _Compress(Function):
    @staticmethod
    def forward(ctx, parameters, start, x, *weights):
        ctx.save_for_backward(x, start, *weights)
        ctx.parameters = parameters
        return ops.compress(x, weights, start, *parameters)

    @staticmethod
    def backward(ctx, grad):
        x, start, *weights = ctx.saved_tensors
        gradients = ops.compress_backward(grad, x, weights, start, *ctx.parameters)
        return None, None, *_final("compress_backward", gradients)


def compress(x, weights, start, *parameters):
    """torch.ops.nsa.compress"""
    if not _needs_gradient([x, *weights]):
        return ops.compress(x, weights, start, *parameters)
    return _Compress.apply(parameters, start, x, *weights)
