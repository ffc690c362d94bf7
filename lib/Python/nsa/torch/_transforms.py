"""How operators are registered: with a gradient, for torch.vmap, and with an error for all other derivatives.

PyTorch's own registration would drop tangents of forward mode without a word, and its gradients of operators that take
lists of tensors are not for torch.func.
"""

import torch
from torch import library
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import Function, forward_ad

from nsa.torch._kernels import untraced

_library = library.Library("nsa", "FRAGMENT")
_PLAIN = {torch.Tensor, torch.nn.Parameter}


def is_plain(tensors):
    """Whether no tracing, transform or mode is active for these tensors; None stands for one that is not given."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return False
    return all(tensor is None or type(tensor) in _PLAIN and (tensor.is_cuda or tensor.is_cpu) and
               not (tensor.is_neg() or tensor._is_zerotensor()) for tensor in tensors)


def is_plain_gradient(grad):
    """Whether the gradients that belong to `grad` are asked for as numbers: not to be differentiated, nor of a batch."""
    return (not torch.is_grad_enabled() and is_plain([grad]) and
            not torch._C._functorch.is_legacy_batchedtensor(grad))


def needs_gradient(tensors):
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _flatten(arguments):
    """Arguments without lists, and the length of each that was a list."""
    leaves, lengths = [], []
    for argument in arguments:
        is_list = isinstance(argument, (list, tuple))
        leaves += argument if is_list else [argument]
        lengths.append(len(argument) if is_list else None)
    return leaves, lengths


class _Differentiable(Function):
    """A function of an operator's arguments, flat. `keep` saves what `gradient` takes, which gives those of the first
    ones; only the first result has a gradient."""

    @staticmethod
    def forward(ctx, function, lengths, keep, gradient, *leaves):
        rest = iter(leaves)
        inputs = [next(rest) if length is None else [next(rest) for _ in range(length)] for length in lengths]
        output = function(*inputs)
        ctx.set_materialize_grads(False)
        ctx.gradient, ctx.count = gradient, len(leaves)
        keep(ctx, inputs, output)
        return tuple(output) if isinstance(output, list) else output

    @staticmethod
    def backward(ctx, *grads):
        gradients = [] if all(grad is None for grad in grads) else ctx.gradient(ctx, grads[0])
        return None, None, None, None, *gradients, *[None] * (ctx.count - len(gradients))


#: Function.apply without what it does for transforms: an operator's kernel sees one of them at a time.
_apply = super(Function, _Differentiable).apply


def differentiable(function, arguments, keep, gradient):
    """function(*arguments), whose gradient is that of `gradient`."""
    leaves, lengths = _flatten(arguments)
    return _apply(function, lengths, keep, gradient, *leaves)


def _define_gradient(name, keep, gradient, with_gradient):
    operator = getattr(torch.ops.nsa, name).default

    @untraced
    def kernel(keys, *arguments):
        tensors = [leaf for leaf in _flatten(arguments)[0] if isinstance(leaf, torch.Tensor)]
        if forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled():
            if any(torch._VF._unpack_dual(tensor, level=0)[1] is not None for tensor in tensors):
                raise NotImplementedError(f"nsa::{name} has no forward-mode derivative (torch.func.jvp, jacfwd, dual "
                                          "tensors): only gradients are supported")

        def below(*arguments):
            # A transform around this one has its own derivative.
            with torch._C._AutoDispatchBelowAutograd(), torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
                return operator.redispatch(keys & torch._C._after_autograd_keyset, *arguments)

        if with_gradient and needs_gradient(tensors):
            return with_gradient(*arguments)
        if not gradient or not needs_gradient(tensors):
            return below(*arguments)
        with enable_single_level_autograd_function():
            output = differentiable(below, arguments, keep, gradient)
        return list(output) if operator._schema.returns[0].type.kind() == "ListType" else output

    _library.impl(name, kernel, "Autograd", with_keyset=True)


def _define_vmap(name):
    """One call for each element of the dimension that is mapped over."""
    operator = getattr(torch.ops.nsa, name).default

    def pick(argument, dim, i):
        if isinstance(dim, (list, tuple)):
            return [pick(*each, i) for each in zip(argument, dim)]
        return argument if dim is None else argument.select(dim, i)

    def rule(info, dims, *arguments):
        if info.batch_size == 0:
            raise NotImplementedError(f"nsa::{name} is mapped over a dimension of size 0")
        outputs = [operator(*pick(arguments, dims, i)) for i in range(info.batch_size)]
        if isinstance(outputs[0], torch.Tensor):
            return torch.stack(outputs), 0
        kind = type(outputs[0])
        stacked = kind(map(torch.stack, zip(*outputs)))
        return stacked, kind(0 for _ in stacked)

    def refuse(*arguments):
        raise NotImplementedError(f"nsa::{name} does not take batches of gradients (is_grads_batched, vectorize): use "
                                  "torch.func.vjp and torch.vmap")

    library.register_vmap(f"nsa::{name}", rule, lib=_library)
    _library.impl(name, refuse, "Batched")


def define(name, schema, kernel, fake, keep=None, gradient=None, with_gradient=None):
    """torch.ops.nsa.NAME. It has a gradient if `gradient` is given, or `with_gradient`, the same function with one. That
    of a gradient, a name that ends with _backward, is an error."""
    library.define(f"nsa::{name}", schema)
    library.impl(f"nsa::{name}", ("cpu", "cuda"), untraced(kernel))
    library.register_fake(f"nsa::{name}", fake)
    if name.endswith("_backward"):
        def keep(*_):
            pass

        def gradient(*_):
            raise NotImplementedError(f"nsa::{name} is a gradient and has none itself: second derivatives are not "
                                      "supported")
    _define_gradient(name, keep, gradient, with_gradient)
    _define_vmap(name)
