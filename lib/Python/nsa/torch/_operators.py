"""The operators of torch.ops.nsa: schemas, kernels, shapes for tracing, and gradients.

An operator checks its tensors when it is traced and at the first call of a signature.
Gradients are operators too, so that what traces a backward pass sees them whole.
"""

import torch

from nsa.torch import _sources
from nsa.torch._checks import check_attend, check_attention, check_compress, check_rotary, check_select, float_gates
from nsa.torch._kernels import run
from nsa.torch._transforms import define as _define
from nsa.torch._transforms import is_plain_gradient


def _like(*tensors):
    return [tensor.new_empty(tensor.shape) for tensor in tensors]


def _empty_lse(q):
    return q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32)


# Attention of one visibility


def given(*tensors):
    """Those that are given."""
    return [tensor for tensor in tensors if tensor is not None]


def attend(q, k, v, indices, start, visibility, scale):
    return tuple(run(_sources.attend, given(q, k, v, indices, start), (visibility, scale),
                     lambda: check_attend(q, k, v, indices, start, visibility)))


def _attend_fake(q, k, v, indices, start, visibility, scale):
    check_attend(q, k, v, indices, start, visibility)
    return q.new_empty((*q.shape[:3], v.shape[3])), _empty_lse(q)


def attend_backward(grad, q, k, v, o, lse, indices, start, visibility, scale):
    return tuple(run(_sources.attend_backward, given(grad, q, k, v, indices, start, o, lse), (visibility, scale),
                     lambda: check_attend(q, k, v, indices, start, visibility)))


def keep_attend(ctx, inputs, output):
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*inputs[:3], *output, *inputs[3:5])
    ctx.parameters = inputs[5:]


def attend_gradient(ctx, grad):
    backward = attend_backward if is_plain_gradient(grad) else torch.ops.nsa.attend_backward
    return backward(grad, *ctx.saved_tensors, *ctx.parameters)


_define("attend", "(Tensor q, Tensor k, Tensor v, Tensor? indices, Tensor? start, str visibility, float? scale) -> "
        "(Tensor, Tensor)", attend, _attend_fake, keep_attend, attend_gradient)
_define("attend_backward", "(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor? indices, "
        "Tensor? start, str visibility, float? scale) -> (Tensor, Tensor, Tensor)",
        attend_backward, lambda grad, q, k, v, *_: tuple(_like(q, k, v)))


# Compression


def compress(x, weights, start, phi, block, stride):
    return run(_sources.compress, given(x, *weights, start), (phi, block, stride, start is not None),
               lambda: check_compress(x, weights, phi, block, stride, start))[0]


def _compress_fake(x, weights, start, phi, block, stride):
    check_compress(x, weights, phi, block, stride, start)
    rows = _sources.compressed_rows(x.shape[1], block, stride, start is not None)
    return x.new_empty((x.shape[0], rows, *x.shape[2:]))


def compress_backward(grad, x, weights, start, phi, block, stride):
    return run(_sources.compress_backward, given(grad, x, *weights, start), (phi, block, stride, start is not None),
               lambda: check_compress(x, weights, phi, block, stride, start))


def keep_compress(ctx, inputs, output):
    x, weights, start, *ctx.parameters = inputs
    ctx.save_for_backward(x, start, *weights)


def compress_gradient(ctx, grad):
    x, start, *weights = ctx.saved_tensors
    backward = compress_backward if is_plain_gradient(grad) else torch.ops.nsa.compress_backward
    return backward(grad, x, weights, start, *ctx.parameters)


_define("compress", "(Tensor x, Tensor[] weights, Tensor? start, str phi, int block, int stride) -> Tensor", compress,
        _compress_fake, keep_compress, compress_gradient)
_define("compress_backward", "(Tensor grad, Tensor x, Tensor[] weights, Tensor? start, str phi, int block, int stride) "
        "-> Tensor[]", compress_backward, lambda grad, x, weights, *_: _like(x, *weights))


# Selection, which has no gradient


def select(q, k, lse, start, block, stride, select_block, count, initial, local, scale):
    return run(_sources.select, given(q, k, lse, start), (block, stride, select_block, count, initial, local, scale),
               lambda: check_select(q, k, lse, start, block, stride, select_block, count, initial, local))[0]


def _select_fake(q, k, lse, start, block, stride, select_block, count, initial, local, scale):
    check_select(q, k, lse, start, block, stride, select_block, count, initial, local)
    return q.new_empty((q.shape[0], k.shape[2], q.shape[1], count), dtype=torch.int32)


_define("select", "(Tensor q, Tensor k, Tensor lse, Tensor? start, int block, int stride, int select_block, int count, "
        "int initial, int local, float? scale) -> Tensor", select, _select_fake)


# All of Native Sparse Attention

_INPUTS = ("Tensor q, Tensor k_cmp, Tensor v_cmp, Tensor k_slc, Tensor v_slc, Tensor k_win, Tensor v_win, "
           "Tensor gates, Tensor[] key_weights, Tensor[] value_weights, Tensor? rotary, Tensor? start, Tensor? selection")
_PARAMETERS = "int[] sizes, str phi, float? scale"
_KEPT = ("Tensor o_cmp, Tensor lse_cmp, Tensor o_slc, Tensor lse_slc, Tensor o_win, Tensor lse_win, Tensor indices")


def _run_attention(operator, inputs, grad=(), kept=()):
    *tensors, keys, values, rotary, start, selection, sizes, phi, scale = inputs
    return run(operator, [*grad, *tensors[:7], float_gates(tensors[7]), *keys, *values, *given(rotary, start, selection), *kept],
               (*sizes, phi, scale, len(keys), int(rotary is not None), start is not None, selection is not None),
               lambda: check_attention(tensors, keys, values, rotary, start, selection, sizes, phi))


def _no_selection(q):
    """In place of the selection that a call was given."""
    return q.new_empty(0, dtype=torch.int32)


def _attention(*inputs):
    results = _run_attention(_sources.attention, inputs)
    return (*results, *[_no_selection(inputs[0])] * (8 - len(results)))


def _attention_fake(*inputs):
    *tensors, keys, values, rotary, start, selection, sizes, phi, _ = inputs
    check_attention(tensors, keys, values, rotary, start, selection, sizes, phi)
    q, k, v = tensors[:3]
    output = (*q.shape[:3], v.shape[3])
    branches = [tensor for _ in range(3) for tensor in (q.new_empty(output), _empty_lse(q))]
    indices = (q.new_empty((q.shape[0], k.shape[2], q.shape[1], sizes[3]), dtype=torch.int32) if selection is None
               else _no_selection(q))
    return (q.new_empty(output), *branches, indices)


def _attention_inference(*inputs):
    return _run_attention(_sources.attention_inference, inputs)[0]


def _attention_backward(grad, *inputs):
    inputs, kept, parameters = inputs[:13], inputs[13:20], inputs[20:]
    kept = kept if inputs[12] is None else kept[:-1]
    gradients = _run_attention(_sources.attention_backward, (*inputs, *parameters), [grad], kept)
    wanted = [*inputs[:8], *inputs[8], *inputs[9]]
    return [gradient.to(tensor.dtype) for gradient, tensor in zip(gradients, wanted)]


def _keep_attention(ctx, inputs, output):
    *tensors, keys, values, rotary, start, selection, sizes, phi, scale = inputs
    check_rotary(rotary)
    ctx.mark_non_differentiable(*output[1:])
    ctx.num_kept = len(output) - 1
    ctx.save_for_backward(*output[1:], *tensors, *keys, *values, *given(rotary, start, selection))
    ctx.parameters = (*sizes, phi, scale, len(keys), rotary is not None, start is not None, selection is not None)


def attention_gradient(grad, used, kept, parameters):
    """The gradients of the first ones of `used`, of parameters as _run_attention has them."""
    *sizes, phi, scale, num_keys, has_rotary, is_packed, is_given = parameters
    tensors, weights = used[:8], list(used[8:])
    selection = weights.pop() if is_given else None
    start = weights.pop() if is_packed else None
    rotary = weights.pop() if has_rotary else None
    return torch.ops.nsa.attention_backward(grad, *tensors, weights[:num_keys], weights[num_keys:], rotary, start,
                                            selection, *kept, *[_no_selection(grad)] * (7 - len(kept)), sizes, phi, scale)


def _attention_gradient(ctx, grad):
    # Asked for once: what recomputes activations gives them once.
    saved = ctx.saved_tensors
    return attention_gradient(grad, saved[ctx.num_kept:], saved[:ctx.num_kept], ctx.parameters)


_define("attention", f"({_INPUTS}, {_PARAMETERS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
        _attention, _attention_fake, _keep_attention, _attention_gradient)
_define("attention_inference", f"({_INPUTS}, {_PARAMETERS}) -> Tensor", _attention_inference,
        lambda *inputs: _attention_fake(*inputs)[0], with_gradient=lambda *inputs: torch.ops.nsa.attention(*inputs)[0])
_define("attention_backward", f"(Tensor grad, {_INPUTS}, {_KEPT}, {_PARAMETERS}) -> Tensor[]", _attention_backward,
        lambda grad, *inputs: _like(*inputs[:8], *inputs[8], *inputs[9]))
