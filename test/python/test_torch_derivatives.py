"""Each way to ask PyTorch for a derivative, of each operator of nsa.torch: it is right, or it is an error."""

import os
import re

import pytest

torch = pytest.importorskip("torch", minversion="2.9")

import nsa.torch as nt  # noqa: E402
from torch import func  # noqa: E402
from torch.autograd import forward_ad, functional  # noqa: E402
from torch_support import DEVICE, SIZES, phi_parameters, seed, small_layer, tensors  # noqa: E402, F401

LENGTH = 21
BLOCKS = {"block": 8, "stride": 4}
NO_TANGENT = "has no forward-mode derivative"
NO_SECOND = "second derivatives are not supported"
NO_BATCH = "does not take batches of gradients"


def leaves_of(*numbers):
    """Those of q, keys and values of each branch, and gates."""
    inputs = tensors(1, LENGTH, 2, 1, 16, 16)
    return [inputs[number] for number in numbers]


def compressed(q, k, v, **packed):
    return nt.compressed_attention(q, nt.compress(k, **BLOCKS, **packed), nt.compress(v, **BLOCKS, **packed), **BLOCKS,
                                   **packed)[0]


def selected(q, k, v, **packed):
    indices = torch.zeros(1, 1, LENGTH, 1, dtype=torch.int32, device=DEVICE)
    return nt.selected_attention(q, k, v, indices, select_block=32, **packed)[0]


def gated(*inputs, **packed):
    parameters = {"key_parameters": inputs[8:11], "value_parameters": inputs[11:]} if len(inputs) > 8 else {}
    return nt.attention(*inputs[:8], **SIZES, phi="mlp" if parameters else "mean", **parameters,
                        rotary=nt.rotary_table(LENGTH, 16, device=DEVICE) if parameters else None, **packed)


def compress_mlp(x, *parameters, **packed):
    return nt.compress(x, **BLOCKS, phi="mlp", parameters=parameters, **packed)


def mlp_parameters():
    return phi_parameters("mlp", 1, 16, torch.float32)


def layer_and_leaves():
    layer = small_layer(phi="linear")
    # What is after attention is PyTorch's own. Tracing a gradient makes that of each parameter that takes one.
    named = [pair for pair in layer.requires_grad_(False).named_parameters() if pair[0] != "output.weight"]
    names, parameters = zip(*[(name, value.clone().requires_grad_()) for name, value in named])
    x = torch.randn(1, LENGTH, 32, device=DEVICE).requires_grad_()
    return (lambda x, *leaves, **packed: func.functional_call(layer, dict(zip(names, leaves)), (x,), packed),
            [x, *parameters])


#: Functions and the tensors that they are differentiated in.
OPERATORS = {
    "window": lambda: (lambda *x, **packed: nt.window_attention(*x, window=7, **packed), leaves_of(0, 5, 6)),
    "causal": lambda: (nt.causal_attention, leaves_of(0, 5, 6)),
    "selected": lambda: (selected, leaves_of(0, 3, 4)),
    "compress": lambda: (compress_mlp, [*leaves_of(1), *mlp_parameters()]),
    "compressed": lambda: (compressed, leaves_of(0, 1, 2)),
    "gated": lambda: (gated, leaves_of(*range(8))),
    "gated mlp": lambda: (gated, [*leaves_of(*range(8)), *mlp_parameters(), *mlp_parameters()]),
    "layer": layer_and_leaves,
}


class Case:
    """An operator as a function of its leaves alone; `project` is the function's products with two tensors, `wanted` the
    gradients of each as backward gives them, which other tests compare with fp64."""

    def __init__(self, name, is_packed):
        self.name = name
        function, self.leaves = OPERATORS[name]()
        packed = {"cu_seqlens": torch.tensor([0, 13, 13, LENGTH], dtype=torch.int32)} if is_packed else {}
        self.function = lambda *leaves: function(*leaves, **packed)
        self.output = self.function(*self.leaves)
        self.grads = torch.randn(2, *self.output.shape, device=DEVICE)
        self.wanted = [torch.autograd.grad(self.output, self.leaves, grad, retain_graph=True) for grad in self.grads]
        self.values = tuple(leaf.detach() for leaf in self.leaves)
        self.tangents = tuple(torch.ones_like(value) for value in self.values)
        self.all = tuple(range(len(self.leaves)))

    def project(self, *leaves):
        return (self.function(*leaves) * self.grads).flatten(1).sum(1)

    def scalar(self, *leaves):
        return self.project(*leaves)[0]

    def of_first(self, first):
        """`scalar` of the first leaf alone: matrices of all would be large."""
        return self.scalar(first, *self.values[1:])

    def twice(self, leaves):
        """Two of each leaf, for vmap, and the gradients of `scalar` for them."""
        pairs = tuple(torch.stack([leaf, leaf * 0.9]).detach() for leaf in leaves)
        singles = [[pair[i].clone().requires_grad_() for pair in pairs] for i in range(2)]
        return pairs, [torch.autograd.grad(self.scalar(*single), single) for single in singles]


def close(got, want):
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * max(1.0, b.abs().max().item()))


def by_backward(case):
    case.scalar(*case.leaves).backward()
    close([leaf.grad for leaf in case.leaves], case.wanted[0])


def by_backward_of_some_inputs(case):
    for i, leaf in enumerate(case.leaves):
        case.scalar(*case.leaves).backward(inputs=[leaf])
        assert all(other.grad is None for other in case.leaves[i + 1:])
    close([leaf.grad for leaf in case.leaves], case.wanted[0])


def by_grad_of_unneeded_leaves(case):
    for number in case.all:
        leaves = [value.clone().requires_grad_(i == number) for i, value in enumerate(case.values)]
        close(torch.autograd.grad(case.scalar(*leaves), leaves[number]), [case.wanted[0][number]])


def by_create_graph(case):
    close(torch.autograd.grad(case.scalar(*case.leaves), case.leaves, create_graph=True), case.wanted[0])


def by_func_grad(case):
    close(func.grad(case.scalar, case.all)(*case.values), case.wanted[0])


def by_func_vjp(case):
    output, pull = func.vjp(case.function, *case.values)
    assert torch.equal(output, case.output)
    close(pull(case.grads[1]), case.wanted[1])


def by_vmap_of_vjp(case):
    _, pull = func.vjp(case.function, *case.values)
    close(torch.vmap(pull)(case.grads), map(torch.stack, zip(*case.wanted)))


def by_jacrev(case):
    close(func.jacrev(case.project, case.all)(*case.values), map(torch.stack, zip(*case.wanted)))


def by_functional_jacobian(case):
    close(functional.jacobian(case.project, case.values), map(torch.stack, zip(*case.wanted)))


def by_functional_vjp(case):
    close(functional.vjp(case.function, case.values, case.grads[1])[1], case.wanted[1])


def by_vmap(case):
    pairs, _ = case.twice(case.leaves)
    got = torch.vmap(case.function)(*pairs)
    want = torch.stack([case.function(*[pair[i] for pair in pairs]) for i in range(2)])
    # The layer's projections are PyTorch's, whose products of batches may round in other places.
    if case.name == "layer":
        close([got], [want])
    else:
        assert torch.equal(got, want)


def by_vmap_of_grad(case):
    pairs, wanted = case.twice(case.leaves)
    close(torch.vmap(func.grad(case.scalar, case.all))(*pairs), map(torch.stack, zip(*wanted)))


def by_vmap_of_one_leaf(case):
    number = len(case.leaves) - 1
    wanted = [func.grad(case.scalar, number)(*case.values[:-1], case.values[-1] * factor) for factor in (1, 2)]
    last = torch.stack([case.values[-1], case.values[-1] * 2], 1)
    in_dims = (*[None] * number, 1)
    close(torch.vmap(func.grad(case.scalar, number), in_dims)(*case.values[:-1], last), torch.stack(wanted))


def by_grad_of_vmap(case):
    pairs, wanted = case.twice(case.leaves)
    total = func.grad(lambda *pairs: torch.vmap(case.scalar)(*pairs).sum(), case.all)
    close(total(*pairs), map(torch.stack, zip(*wanted)))


def by_backward_of_vmap(case):
    pairs, wanted = case.twice(case.leaves)
    pairs = [pair.requires_grad_() for pair in pairs]
    close(torch.autograd.grad(torch.vmap(case.scalar)(*pairs).sum(), pairs), map(torch.stack, zip(*wanted)))


RIGHT = [by_backward, by_backward_of_some_inputs, by_grad_of_unneeded_leaves, by_create_graph, by_func_grad, by_func_vjp,
         by_vmap_of_vjp, by_jacrev, by_functional_jacobian, by_functional_vjp, by_vmap, by_vmap_of_grad,
         by_vmap_of_one_leaf, by_grad_of_vmap, by_backward_of_vmap]


def dual(case, function=None, needs_gradient=False):
    """In each of the leaves alone: what is lost in one of them is lost in silence."""
    refused = 0
    for number in case.all:
        with forward_ad.dual_level():
            leaves = [value.clone().requires_grad_(needs_gradient) for value in case.values]
            leaves[number] = forward_ad.make_dual(leaves[number], case.tangents[number])
            with pytest.raises(NotImplementedError, match=NO_TANGENT):
                (function or case.function)(*leaves)
            refused += 1
    assert refused == len(case.leaves)
    raise NotImplementedError(NO_TANGENT)


def gradient_of_gradient(case, backward):
    """Each leaf's gradient, in each leaf: parts of a second derivative are as wrong as none."""
    for gradient in torch.autograd.grad(case.scalar(*case.leaves), case.leaves, create_graph=True):
        for leaf in case.leaves:
            with pytest.raises(NotImplementedError, match=NO_SECOND):
                backward(gradient.sum(), leaf)
    raise NotImplementedError(NO_SECOND)


def backward_twice(case):
    case.scalar(*case.leaves).backward(create_graph=True)
    sum(leaf.grad.sum() for leaf in case.leaves).backward()


ERRORS = {
    "func.jvp": (NO_TANGENT, lambda c: func.jvp(c.function, c.values, c.tangents)),
    "func.jacfwd": (NO_TANGENT, lambda c: func.jacfwd(c.project)(*c.values)),
    "func.linearize": (NO_TANGENT, lambda c: func.linearize(c.function, *c.values)),
    "func.hessian": (NO_TANGENT, lambda c: func.hessian(c.scalar)(*c.values)),
    "jvp of vmap": (NO_TANGENT, lambda c: func.jvp(torch.vmap(c.function), *[c.twice(c.leaves)[0]] * 2)),
    "vmap of jvp": (NO_TANGENT, lambda c: torch.vmap(lambda *x: func.jvp(c.function, x, c.tangents))(
        *c.twice(c.leaves)[0])),
    "jvp of grad": (NO_TANGENT, lambda c: func.jvp(func.grad(c.scalar), c.values, c.tangents)),
    "grad of grad": (NO_SECOND, lambda c: func.grad(lambda *x: func.grad(c.scalar)(*x).sum(), len(c.leaves) - 1)(*c.values)),
    "jacrev of grad": (NO_SECOND, lambda c: func.jacrev(func.grad(c.scalar))(*c.values)),
    "dual tensors": (NO_TANGENT, dual),
    "dual tensors with gradients": (NO_TANGENT, lambda c: dual(c, needs_gradient=True)),
    "functional.jvp": (NO_SECOND, lambda c: functional.jvp(c.function, c.values, c.tangents)),
    "functional.hvp": (NO_SECOND, lambda c: functional.hvp(c.scalar, c.values, c.tangents)),
    "functional.vhp": (NO_SECOND, lambda c: functional.vhp(c.scalar, c.values, c.tangents)),
    "functional.hessian": (NO_SECOND, lambda c: functional.hessian(c.scalar, c.values)),
    "functional.hessian, vectorized": (NO_SECOND, lambda c: functional.hessian(c.of_first, c.values[0], vectorize=True)),
    "functional.hessian, forward": (NO_TANGENT, lambda c: functional.hessian(
        c.of_first, c.values[0], vectorize=True, outer_jacobian_strategy="forward-mode")),
    "functional.jacobian, vectorized": (NO_BATCH, lambda c: functional.jacobian(c.project, c.values, vectorize=True)),
    "functional.jacobian, forward": (NO_TANGENT, lambda c: functional.jacobian(
        c.of_first, c.values[0], vectorize=True, strategy="forward-mode")),
    "is_grads_batched": (NO_BATCH, lambda c: torch.autograd.grad(c.output, c.leaves, c.grads, is_grads_batched=True)),
    "grad of a gradient": (NO_SECOND, lambda c: gradient_of_gradient(
        c, lambda total, leaf: torch.autograd.grad(total, leaf, allow_unused=True, retain_graph=True))),
    "backward of a gradient into some inputs": (NO_SECOND, lambda c: gradient_of_gradient(
        c, lambda total, leaf: total.backward(inputs=[leaf], retain_graph=True))),
    "backward of a gradient": (NO_SECOND, backward_twice),
}


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, backend="aot_eager", dynamic=False)


def by_compiled_backward(case):
    close(torch.autograd.grad(compiled(case.scalar)(*case.leaves), case.leaves), case.wanted[0])


def by_compiled_func_grad(case):
    close(compiled(func.grad(case.scalar, case.all))(*case.values), case.wanted[0])


def by_compiled_jacrev(case):
    close(compiled(func.jacrev(case.project, case.all))(*case.values), map(torch.stack, zip(*case.wanted)))


def by_compiled_vmap_of_grad(case):
    pairs, wanted = case.twice(case.leaves)
    close(compiled(torch.vmap(func.grad(case.scalar, case.all)))(*pairs), map(torch.stack, zip(*wanted)))


COMPILED = [by_compiled_backward, by_compiled_func_grad, by_compiled_jacrev, by_compiled_vmap_of_grad]
COMPILED_ERRORS = {
    "func.jvp": (NO_TANGENT, lambda c: compiled(lambda *x: func.jvp(c.function, x, c.tangents))(*c.values)),
    "dual tensors": (NO_TANGENT, lambda c: dual(c, compiled(c.function))),
    "grad of grad": (NO_SECOND, lambda c: compiled(func.grad(lambda *x: func.grad(c.scalar)(*x).sum()))(*c.values)),
    # PyTorch's own words.
    "grad of a gradient": ("double backward", lambda c: torch.autograd.grad(torch.autograd.grad(
        compiled(c.scalar)(*c.leaves), c.leaves, create_graph=True)[0].sum(), c.leaves)),
}

#: What takes a second each to trace.
TRACED = ["causal", "compress", "gated mlp", "layer"]


def traced(roads):
    """Each operator on each road, or on every second one where few shapes are tried."""
    step = 1 if int(os.environ.get("NSA_TORCH_SHAPES", "10")) >= 10 else 2
    return pytest.mark.parametrize("road, operator", [
        (road, operator) for i, road in enumerate(roads) for operator in TRACED[i % step::step]])


every_operator = pytest.mark.parametrize("operator", OPERATORS)
packed_and_not = pytest.mark.parametrize("is_packed", [False, True])


@packed_and_not
@every_operator
@pytest.mark.parametrize("road", RIGHT)
def test_derivative_is_right(road, operator, is_packed):
    road(Case(operator, is_packed))


@packed_and_not
@every_operator
@pytest.mark.parametrize("road", ERRORS)
def test_derivative_is_an_error(road, operator, is_packed):
    message, ask = ERRORS[road]
    with pytest.raises(NotImplementedError, match=message):
        ask(Case(operator, is_packed))


@traced(COMPILED)
def test_derivative_compiled_is_right(road, operator):
    road(Case(operator, is_packed=operator == "causal"))


@traced(COMPILED_ERRORS)
def test_derivative_compiled_is_an_error(road, operator):
    message, ask = COMPILED_ERRORS[road]
    with pytest.raises(RuntimeError, match=re.escape(message)):
        ask(Case(operator, is_packed=operator == "causal"))
