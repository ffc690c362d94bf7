"""Selections of nsa.torch out and in: a call that is given blocks attends to these."""

import pytest

torch = pytest.importorskip("torch", minversion="2.9")

import nsa.torch as nt  # noqa: E402
from nsa import InputError  # noqa: E402
from torch_support import DEVICE, SIZES, WIDE, seed, small_layer, tensors  # noqa: E402, F401

LENGTH = 150


def replay(inputs, **options):
    """Outputs and gradients: as usual, with the selection as a result, and with it given. And the selection."""
    grad = torch.randn(*inputs[0].shape[:3], WIDE, device=DEVICE)
    usual = nt.attention(*inputs, **SIZES, **options)
    output, selection = nt.attention(*inputs, **SIZES, **options, return_selection=True)
    given = nt.attention(*inputs, **SIZES, **options, selection=selection)
    return [[o, *torch.autograd.grad(o, inputs, grad)] for o in (usual, output, given)], selection


@pytest.mark.parametrize("batch, ends", [(2, None), (1, [0, 71, 71, LENGTH])], ids=["batch", "packed"])
def test_own_selection_given_back_changes_no_bit(batch, ends):
    inputs = tensors(batch, LENGTH, 4, 2, 16, WIDE)
    options = {} if ends is None else {"cu_seqlens": torch.tensor(ends, dtype=torch.int32, device=DEVICE)}
    (usual, *others), selection = replay(inputs, rotary=nt.rotary_table(LENGTH, 16, device=DEVICE), **options)
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(usual, other))
    with torch.no_grad():
        assert torch.equal(nt.attention(*inputs, **SIZES, rotary=nt.rotary_table(LENGTH, 16, device=DEVICE), **options,
                                        selection=selection), usual[0])


def test_other_selection_is_attended_to():
    inputs = tensors(2, LENGTH, 4, 2, 16, WIDE)
    own = torch.arange(LENGTH, device=DEVICE)[:, None] // SIZES["select_block"]
    selection = torch.where(own > 0, torch.cat([own - 1, own, own * 0 - 1, own * 0 - 1], 1),
                            torch.tensor([0, -1, -1, -1], device=DEVICE)).int().expand(2, 2, -1, -1).contiguous()
    q, kc, vc, ks, vs, kw, vw, gates = inputs
    blocks = {name: SIZES[name] for name in ("block", "stride")}
    branches = (nt.compressed_attention(q, nt.compress(kc, **blocks), nt.compress(vc, **blocks), **blocks)[0],
                nt.selected_attention(q, ks, vs, selection, select_block=SIZES["select_block"])[0],
                nt.window_attention(q, kw, vw, window=SIZES["window"]))
    want = sum(g[..., None] * o for g, o in zip(gates.unbind(-1), branches))
    got, found = nt.attention(*inputs, **SIZES, selection=selection, return_selection=True)
    assert found is selection
    grad = torch.randn_like(got)
    for a, b in zip([got, *torch.autograd.grad(got, inputs, grad)], [want, *torch.autograd.grad(want, inputs, grad)]):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_layer_replays_its_selection_compiled_too():
    layer = small_layer()
    x = torch.randn(2, 90, layer.query.weight.shape[1], device=DEVICE)
    y, selection = layer(x, return_selection=True)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(layer(x, selection=selection), y) and torch.equal(compiled(x, selection=selection), y)
    assert torch.equal(layer(x), y)


@pytest.mark.parametrize("change, message", [
    (lambda i: i[:, :, :, :3], r"selection has shape \(1, 2, 40, 3\), expected \(1, 2, 40, 4\)"),
    (lambda i: i[:, :1], r"selection has shape \(1, 1, 40, 4\), expected \(1, 2, 40, 4\)"),
    (lambda i: i.long(), r"selection has the type torch.int64, expected torch.int32"),
    (lambda i: [0], r"selection is a list, expected a tensor")])
def test_selection_of_another_shape_is_an_error(change, message):
    inputs = tensors(1, 40, 4, 2, 16, WIDE)
    selection = nt.attention(*inputs, **SIZES, return_selection=True)[1]
    with pytest.raises(InputError, match=message):
        nt.attention(*inputs, **SIZES, selection=change(selection))
