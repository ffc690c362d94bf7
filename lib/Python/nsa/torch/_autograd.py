"""Operators of plain tensors with their gradients: the path without tracing.

An operator that is registered (_operators.py) passes PyTorch's dispatcher and a wrapper of its
gradient, both in Python, which take longer than its kernels for short sequences. Here are the same
calls of the same programs without them.
"""

import torch
from torch.autograd import Function

from nsa.torch import _operators as ops
from nsa.torch import _sources
from nsa.torch._checks import check_attention, float_gates
from nsa.torch._kernels import contiguous, find
from nsa.torch._transforms import differentiable, is_plain_gradient, needs_gradient


class _Attention(Function):
    """`used` are tensors as kernels read them; the first `count` have gradients."""

    @staticmethod
    def forward(ctx, call, count, *used):
        output, kept = call.keeping(list(used))
        ctx.save_for_backward(*used, kept)
        ctx.call, ctx.count = call, count
        return output

    @staticmethod
    def backward(ctx, grad):
        call, (*used, kept) = ctx.call, ctx.saved_tensors
        if is_plain_gradient(grad):
            [grad] = contiguous([grad])
            if call.gradient is None:
                call.gradient = find(_sources.attention_backward, [grad, *used, *call.views(kept)], call.parameters)
            gradients = call.gradient([grad, *used], kept, call.places)
            gradients = [gradient if gradient.dtype == tensor.dtype else gradient.to(tensor.dtype)
                         for gradient, tensor in zip(gradients, used)]
        else:
            gradients = ops.attention_gradient(grad, used, call.views(kept), call.parameters)
        return None, None, *gradients, *[None] * (len(used) - ctx.count)


#: Function.apply without what it does for transformations, of which is_plain sees none.
_apply_attention = super(Function, _Attention).apply


def attention(tensors, keys, values, rotary, start, selection, sizes, phi, scale):
    """torch.ops.nsa.attention, but of the output alone."""
    leaves = [*tensors[:7], float_gates(tensors[7]), *keys, *values]
    has_gradient = needs_gradient(leaves)
    if has_gradient:
        # Copies that belong to the graph: what is saved of them leads to the tensors that they are made of.
        leaves = [leaf.contiguous() for leaf in leaves]
    used = contiguous([*leaves, *ops.given(rotary, start, selection)])
    call = find(_sources.attention if has_gradient else _sources.attention_inference, used,
                (*sizes, phi, scale, len(keys), int(rotary is not None), start is not None, selection is not None),
                lambda: check_attention(tensors, keys, values, rotary, start, selection, sizes, phi))
    return _apply_attention(call, len(leaves), *used) if has_gradient else call(used)[0]


def attend(*inputs):
    """torch.ops.nsa.attend"""
    if not needs_gradient(inputs[:3]):
        return ops.attend(*inputs)
    return differentiable(ops.attend, inputs, ops.keep_attend, ops.attend_gradient)


def compress(x, weights, start, *parameters):
    """torch.ops.nsa.compress"""
    if not needs_gradient([x, *weights]):
        return ops.compress(x, weights, start, *parameters)
    return differentiable(ops.compress, (x, weights, start, *parameters), ops.keep_compress, ops.compress_gradient)
