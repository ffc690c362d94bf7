"""What tests of nsa.torch share: random tensors, and the comparison with PyTorch in fp64."""

import os
import pathlib
from functools import partial

import pytest

torch = pytest.importorskip("torch", minversion="2.9")

import nsa.torch as nt  # noqa: E402
import torch_reference as ref  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEVICE = os.environ.get("NSA_TORCH_DEVICE", "cpu")
LIMIT = {"cpu": 1e-5, "cuda": 1e-4}[DEVICE]
#: A width of values that differs from that of keys; GPUs have none of 24.
WIDE = {"cpu": 24, "cuda": 32}[DEVICE]
SIZES = {"block": 8, "stride": 4, "select_block": 16, "count": 4, "window": 20}
INPUTS = ("q", "k_cmp", "v_cmp", "k_slc", "v_slc", "k_win", "v_win", "gates")
VECTOR = (2, 33, 4, 2, 16, WIDE)


@pytest.fixture(autouse=True)
def seed(request):
    torch.manual_seed(int(os.environ.get("NSA_TEST_SEED", "0")) + sum(request.node.nodeid.encode()))


def tensors(batch, length, heads, groups, width, value_width, dtype=torch.float32):
    """q, then keys and values of each branch, and gates: leaves that take gradients."""
    def normal(heads, width):
        return torch.randn(batch, length, heads, width, device=DEVICE).to(dtype).requires_grad_()

    gates = torch.rand(batch, length, heads, 3, device=DEVICE).requires_grad_()
    return [normal(heads, width), *[normal(groups, w) for _ in range(3) for w in (width, value_width)], gates]


def phi_parameters(phi, groups, width, dtype, positions=True, block=8):
    # Results as large as what is compressed: larger scores would multiply errors of rounding.
    def normal(rows, scale):
        return (torch.randn(groups, rows, width, device=DEVICE) * scale).to(dtype).requires_grad_()

    weights = {"mean": [], "linear": [block * width], "mlp": [block * width, width]}[phi]
    return [normal(rows, rows ** -0.5) for rows in weights] + (
        [normal(block, 1.0)] if phi != "mean" and positions else [])


def assert_close(got, want, rounded, what, terms, redraw):
    """The error is at most twice that of the same formula with rounded tensors, or LIMIT of the largest value. Where
    all cancels to 0 it is at most what rounding leaves of the `terms`."""
    assert got.shape == want.shape
    if want.numel() == 0:
        return
    assert not got.isnan().any(), what
    error, top = ((got.double() - want).abs().max(), want.abs().max())
    limit = max(LIMIT * top, 2 * (rounded.double() - want).abs().max())
    if top <= 1e-10 * terms:
        limit = max(limit, LIMIT * terms, torch.finfo(got.dtype).eps * terms)
    if error > limit and redraw:
        limit = max(limit, 2 * redraw())
    assert error <= limit, f"{what}: error {error:.3g} over {limit:.3g}"


def references_of(function, leaves, grad):
    """The output and the gradients in fp64, and with tensors of the leaves' types."""
    results, leaves = [], list(leaves)
    for inner in (torch.float64, torch.float32):
        own = [x.detach().to(inner if inner == torch.float64 else x.dtype).requires_grad_() for x in leaves]
        want = function(*own, inner=inner)
        results.append([want, *torch.autograd.grad(want, own, grad.to(want.dtype), allow_unused=True,
                                                   materialize_grads=True)])
    return results


def assert_all_close(names, results, function, leaves, grad):
    """Of the output and the gradients of `function`, a formula."""
    references = references_of(function, leaves, grad)
    terms = grad.abs().max().double()

    def redraw(i, own):
        # Few roundings are no measure of the formula: the largest error with the same values in other orders, for a
        # result as large. A short sequence has few however many elements they make: dP - dO.O of a query that sees one
        # key is one for a row of dq, and two compressed blocks are two for the weights of phi.
        def shuffle(x):
            return x.detach().flatten()[torch.randperm(x.numel(), device=x.device)].view(x.shape)

        errors = []
        for _ in range(8):
            references = references_of(function, map(shuffle, leaves), shuffle(grad))
            want, rounded = (results[i].detach().double() for results in references)
            error, top = (rounded - want).abs().max(), want.abs().max()
            errors.append(error if top <= 1e-10 * terms else error * own / top)
        return max(errors)

    is_short = leaves[0].shape[1] <= 256
    for i, (name, got, want, rounded) in enumerate(zip(names, results, *references)):
        want = want.detach().double()
        again = partial(redraw, i, want.abs().max()) if is_short or want.numel() < 2**16 else None
        assert_close(got.detach(), want, rounded.detach(), name, terms, again)


def selected_by(q, k_cmp, v_cmp, parameters, phi, rotary, sizes):
    """The indices that the operators choose, which the reference takes."""
    blocks = {"block": sizes["block"], "stride": sizes["stride"]}
    k = nt.compress(k_cmp.detach(), **blocks, phi=phi, parameters=parameters[0])
    if rotary is not None:
        q, k = ref.rotate(q, rotary, inner=torch.float32), ref.rotate(k, rotary, sizes["stride"], torch.float32)
    _, lse = nt.compressed_attention(q.detach(), k.detach(), k.detach(), **blocks)
    return nt.select(q, k, lse, **blocks, select_block=sizes["select_block"], count=sizes["count"])


def check_attention(inputs, sizes, phi="mean", parameters=((), ()), rotary=None, scale=None, cu_seqlens=None):
    """The output and all gradients."""
    options = {"phi": phi, "key_parameters": parameters[0], "value_parameters": parameters[1], "rotary": rotary,
               "scale": scale}
    o = nt.attention(*inputs, **sizes, **options, cu_seqlens=cu_seqlens)
    indices = selected_by(*inputs[:3], parameters, phi, rotary, sizes)
    names = [*INPUTS, *[f"parameter {i}" for i in range(len(parameters[0]) + len(parameters[1]))]]
    leaves = [*inputs, *parameters[0], *parameters[1]]
    grad = torch.randn_like(o)
    results = [o, *torch.autograd.grad(o, leaves, grad)]
    formula = {name: size for name, size in sizes.items() if name != "count"}
    num_keys = 8 + len(parameters[0])

    def reference(*leaves, inner):
        given = {**options, "key_parameters": leaves[8:num_keys], "value_parameters": leaves[num_keys:]}
        return ref.native_sparse_attention(*leaves[:8], indices, **formula, **given, inner=inner)

    assert_all_close(["o", *names], results, reference, leaves, grad)


def small_layer(**options):
    sizes = {"block": 8, "stride": 4, "select_block": 16, "count": 3, "window": 12}
    return nt.NativeSparseAttention(32, 4, 2, 16, **sizes, **options).to(DEVICE)
