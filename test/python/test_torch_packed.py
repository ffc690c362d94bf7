"""Sequences that share a row of nsa.torch: each is what it is alone, whatever its neighbours are."""

import re

import pytest

torch = pytest.importorskip("torch", minversion="2.9")

import nsa.torch as nt  # noqa: E402
from nsa import InputError  # noqa: E402
from torch import library  # noqa: E402
from torch_support import (DEVICE, SIZES, VECTOR, WIDE, check_attention, phi_parameters, seed,  # noqa: E402, F401
                           small_layer, tensors)

BLOCKS = {"block": SIZES["block"], "stride": SIZES["stride"]}
#: One token, none, less than a block, a block, primes, longer than the window, and one at a multiple of 64.
LENGTHS = [64, 1, 0, 7, 8, 13, 37]
TOKENS = sum(LENGTHS)
SEQUENCES = list(zip([sum(LENGTHS[:i]) for i in range(len(LENGTHS))], LENGTHS))


def ends(lengths=LENGTHS, device=DEVICE):
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32).to(device)


def parts(q, k_cmp, v_cmp, k_slc, v_slc, k_win, v_win, gates, cu_seqlens=None):
    """The sum of the branches, and causal attention, by the single operators."""
    packed = {"cu_seqlens": cu_seqlens}
    k, v = nt.compress(k_cmp, **BLOCKS, **packed), nt.compress(v_cmp, **BLOCKS, **packed)
    compressed, lse = nt.compressed_attention(q, k, v, **BLOCKS, **packed)
    indices = nt.select(q, k, lse, **BLOCKS, select_block=16, count=4, **packed)
    selected, _ = nt.selected_attention(q, k_slc, v_slc, indices, select_block=16, **packed)
    window = nt.window_attention(q, k_win, v_win, window=20, **packed)
    total = sum(g[..., None] * o for g, o in zip(gates.unbind(-1), (compressed, selected, window)))
    return total + nt.causal_attention(q, k_win, v_win, **packed)


def whole(*inputs, cu_seqlens=None):
    return nt.attention(*inputs, **SIZES, rotary=nt.rotary_table(inputs[0].shape[1], 16, device=DEVICE),
                        cu_seqlens=cu_seqlens)


def results_of(function, inputs, grad, cu_seqlens=None):
    inputs = [x.detach().requires_grad_() for x in inputs]
    o = function(*inputs, cu_seqlens=cu_seqlens)
    return [o.detach(), *torch.autograd.grad(o, inputs, grad)]


@pytest.mark.parametrize("function", [parts, whole])
def test_packed_sequence_is_what_it_is_alone(function):
    inputs = tensors(1, TOKENS, 4, 2, 16, WIDE)
    grad = torch.randn(1, TOKENS, 4, WIDE, device=DEVICE)
    got = results_of(function, inputs, grad, ends())
    for begin, length in SEQUENCES:
        own = slice(begin, begin + length)
        alone = results_of(function, [x[:, own] for x in inputs], grad[:, own])
        for a, b in zip(got, alone):
            torch.testing.assert_close(a[:, own], b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("function", [parts, whole])
@pytest.mark.parametrize("kept", [0, 5, 6])
def test_packed_other_sequences_change_no_bit(function, kept):
    inputs, others = (tensors(1, TOKENS, 4, 2, 16, WIDE) for _ in range(2))
    grad = torch.randn(1, TOKENS, 4, WIDE, device=DEVICE)
    own = slice(SEQUENCES[kept][0], sum(SEQUENCES[kept]))
    for other, x in zip(others, inputs):
        other.data[:, own] = x.data[:, own]
    got, changed = (results_of(function, x, grad, ends()) for x in (inputs, others))
    for a, b in zip(got, changed):
        assert torch.equal(a[:, own], b[:, own])


@pytest.mark.parametrize("phi", ["linear", "mlp"])
def test_packed_one_sequence_agrees_with_fp64(phi):
    inputs = tensors(1, 45, 4, 2, 16, WIDE)
    parameters = [phi_parameters(phi, 2, width, torch.float32) for width in (16, WIDE)]
    check_attention(inputs, SIZES, phi, parameters, rotary=nt.rotary_table(45, 16, device=DEVICE),
                    cu_seqlens=ends([45]))


def test_packed_parameters_of_phi_have_the_sum_of_gradients():
    inputs = tensors(1, TOKENS, 4, 2, 16, WIDE)
    weights = [phi_parameters("mlp", 2, width, torch.float32) for width in (16, WIDE)]
    leaves = [*weights[0], *weights[1]]

    def gradients(own, **packed):
        o = nt.attention(*[x[:, own] for x in inputs], **SIZES, phi="mlp", key_parameters=weights[0],
                         value_parameters=weights[1], **packed)
        return torch.autograd.grad(o.sum(), leaves)

    want = [torch.zeros_like(x) for x in leaves]
    for begin, length in SEQUENCES:
        want = [a + b for a, b in zip(want, gradients(slice(begin, begin + length)))]
    for a, b in zip(gradients(slice(None), cu_seqlens=ends()), want):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * b.abs().max().item())


def test_packed_layer_is_one_sequence_after_the_other():
    layer = small_layer()
    x = torch.randn(1, TOKENS, 32, device=DEVICE)
    got = layer(x, ends())
    for begin, length in SEQUENCES:
        if length:
            torch.testing.assert_close(got[:, begin:begin + length], layer(x[:, begin:begin + length]), rtol=1e-4,
                                       atol=1e-5)


def test_packed_opcheck():
    inputs = tensors(1, *VECTOR[1:])
    start = torch.tensor([[0] * 20 + [20] * 13], dtype=torch.int32, device=DEVICE)
    weights = [phi_parameters("mlp", 2, width, torch.float32) for width in (16, WIDE)]
    sizes = [8, 4, 16, 4, 1, 2, 20]
    for operator, arguments in (
            ("attend", (*inputs[:3], None, start, "#nsa.window<8>", None)),
            ("compress", (inputs[1], weights[0], start, "mlp", 8, 4)),
            ("attention", (*inputs, *weights, nt.rotary_table(33, 16, device=DEVICE), start, None, sizes, "mlp", None))):
        library.opcheck(getattr(torch.ops.nsa, operator).default, arguments)


def test_packed_compile_fullgraph_is_the_same():
    inputs = tensors(1, TOKENS, 4, 2, 16, WIDE)
    compiled = torch.compile(whole, fullgraph=True, backend="aot_eager", dynamic=False)
    grad = torch.randn(1, TOKENS, 4, WIDE, device=DEVICE)
    for a, b in zip(*(results_of(function, inputs, grad, ends()) for function in (compiled, whole))):
        torch.testing.assert_close(a, b)


def test_packed_ends_on_the_cpu_give_the_same():
    inputs = tensors(1, TOKENS, 4, 2, 16, WIDE)
    assert torch.equal(whole(*inputs, cu_seqlens=ends()), whole(*inputs, cu_seqlens=ends(device="cpu")))


@pytest.mark.parametrize("change,message", [
    (lambda e: e.tolist(), "cu_seqlens is a list, expected a tensor"),
    (lambda e: e.long(), "cu_seqlens is torch.int64, expected torch.int32"),
    (lambda e: e[None], "cu_seqlens has shape (1, 3), expected [number of sequences + 1]"),
    (lambda e: e[:1], "cu_seqlens has shape (1,), expected [number of sequences + 1]"),
    (lambda e: e.to("meta"), "cu_seqlens lies on meta, expected"),
    (lambda e: e + 1, "cu_seqlens begins with 1, expected 0, then where each sequence ends"),
    (lambda e: e * torch.tensor([1, 3, 1]), "cu_seqlens[2] is 33, less than 60 before it; expected 0, then"),
    (lambda e: e - torch.tensor([0, 0, 1]), "cu_seqlens ends with 32, expected 0, then where each sequence ends, "
                                            "ascending, up to the 33 tokens"),
])
def test_packed_misuse_is_named(change, message):
    wrong = change(ends([20, 13], device="cpu"))
    if isinstance(wrong, torch.Tensor) and wrong.dtype == torch.int64 and "int64" not in message:
        wrong = wrong.to(torch.int32)
    for function in (parts, whole):
        with pytest.raises(InputError, match=re.escape(message)):
            function(*tensors(1, *VECTOR[1:]), cu_seqlens=wrong)


def test_packed_batch_of_two_is_an_error():
    message = "cu_seqlens is given for tensors of shape (2, 33, 4, 16), expected a batch of 1"
    with pytest.raises(InputError, match=re.escape(message)):
        whole(*tensors(*VECTOR), cu_seqlens=ends([33]))
