"""nsa.torch against PyTorch in fp64.

NSA_TORCH_SHAPES random shapes are tried; test/check-torch.sh asks for 200.
"""

import os
import random

import pytest

torch = pytest.importorskip("torch", minversion="2.9")

import nsa.torch as nt  # noqa: E402
import torch_reference as ref  # noqa: E402
from torch_support import (DEVICE, SIZES, WIDE, assert_all_close, check_attention, phi_parameters,  # noqa: E402
                           seed, tensors)  # noqa: F401


def random_shapes(count):
    choose = random.Random(int(os.environ.get("NSA_TEST_SEED", "0")))
    lengths = [1, 15, 16, 31, 32, 33, 47, 48, 63, 64, 65, 127, 128, 129]
    long = [511, 512, 513, 1024, 1025, 2048, 4097] if count >= 100 else []
    for _ in range(count):
        group = choose.randint(1, 32)
        length = choose.choice(lengths + long)
        batch, groups = (choose.choice([1, 2]), choose.choice([1, 2, 3])) if length < 256 else (1, 1)
        heads = groups * (group if length < 2000 else min(group, 4))
        wide = [8 * choose.randint(4, 32) for _ in range(2)]
        widths = choose.choice([(16, 16), (64, 64), (32, 16), (16, 48), (wide[0], wide[0]), tuple(wide)])
        blocks = choose.choice([(32, 16, 64), (16, 16, 16), (32, 32, 64), (16, 8, 48), (8, 4, 16), (64, 16, 128), (40, 20, 60)])
        yield ((batch, length, heads, groups, *widths), blocks, choose.choice([1, 3, 4, 16]),
               choose.choice([1, 64, 512]), choose.choice(["mean", "mean", "linear", "mlp"]),
               choose.choice([torch.float32, torch.bfloat16, torch.float16]))


@pytest.mark.parametrize("shape,blocks,count,window,phi,dtype",
                         list(random_shapes(int(os.environ.get("NSA_TORCH_SHAPES", "10")))))
def test_attention_random_shape_agrees_with_fp64(shape, blocks, count, window, phi, dtype):
    sizes = {"block": blocks[0], "stride": blocks[1], "select_block": blocks[2], "count": count, "window": window}
    inputs = tensors(*shape, dtype=dtype)
    parameters = [phi_parameters(phi, shape[3], width, dtype, block=blocks[0]) for width in shape[4:]]
    check_attention(inputs, sizes, phi, parameters)


@pytest.mark.device("cuda")
@pytest.mark.parametrize("number", range(4))
def test_attention_long_sequence_agrees_with_fp64(number):
    choose = random.Random(f"{os.environ.get('NSA_TEST_SEED', '0')} {number}")
    length = 65536 if number == 0 else choose.randint(4098, 65535)
    inputs = tensors(1, length, 2, 1, 64, 64, choose.choice([torch.bfloat16, torch.float16]))
    sizes = {"block": 32, "stride": 16, "select_block": 64, "count": 16, "window": 512}
    check_attention(inputs, sizes)


@pytest.mark.parametrize("phi,positions", [("mean", False), ("linear", False), ("mlp", True)])
def test_attention_rotary_agrees_with_fp64(phi, positions):
    inputs = tensors(2, 45, 4, 2, 16, WIDE)
    parameters = [phi_parameters(phi, 2, width, torch.float32, positions) for width in (16, WIDE)]
    check_attention(inputs, SIZES, phi, parameters, rotary=nt.rotary_table(45, 16, device=DEVICE))


@pytest.mark.parametrize("length,heads", [(47, 1), (63, 10)])
def test_attention_one_compressed_block_agrees_with_fp64(length, heads):
    # Its probability is 1: dP and dO.O cancel, and the weights of phi make large values of it.
    groups = min(heads, 2)
    inputs = tensors(2, length, heads, groups, 64, 64)
    parameters = [phi_parameters("mlp", groups, 64, torch.float32, block=32) for _ in range(2)]
    sizes = {"block": 32, "stride": 32, "select_block": 64, "count": 4, "window": 64}
    check_attention(inputs, sizes, "mlp", parameters)


def test_attention_few_distinct_gradients_agree_with_fp64():
    # One compressed block that one query sees, and 64 sums of 16 heads in the gradient of its values.
    torch.manual_seed(31)
    sizes = {"block": 16, "stride": 8, "select_block": 48, "count": 4, "window": 64}
    check_attention(tensors(2, 16, 32, 2, 32, 16, torch.bfloat16), sizes)


def test_attention_gradient_of_the_shape_of_what_is_kept_agrees_with_fp64():
    # In fp32 the gradient of phi's second weight is as large as the logarithms of sums that the forward keeps.
    parameters = [phi_parameters("mlp", 1, 16, torch.bfloat16) for _ in range(2)]
    check_attention(tensors(1, 16, 16, 1, 16, 16, torch.bfloat16), SIZES, "mlp", parameters)


def test_attention_scale_is_used():
    check_attention(tensors(1, 40, 2, 1, 16, 16), SIZES, scale=0.5)


@pytest.mark.parametrize("length", [5, 8, 61])
def test_branches_sum_to_attention(length):
    inputs = tensors(2, length, 4, 2, 16, WIDE)
    q, k_cmp, v_cmp, k_slc, v_slc, k_win, v_win, gates = inputs
    blocks = {"block": 8, "stride": 4}
    k, v = nt.compress(k_cmp, **blocks), nt.compress(v_cmp, **blocks)
    compressed, lse = nt.compressed_attention(q, k, v, **blocks)
    indices = nt.select(q, k, lse, **blocks, select_block=16, count=4)
    selected, _ = nt.selected_attention(q, k_slc, v_slc, indices, select_block=16)
    window = nt.window_attention(q, k_win, v_win, window=20)
    total = sum(g[..., None] * o for g, o in zip(gates.unbind(-1), (compressed, selected, window)))
    whole = nt.attention(*inputs, **SIZES)
    torch.testing.assert_close(total, whole, rtol=1e-4, atol=1e-5)
    grad = torch.randn_like(whole)
    for a, b in zip(torch.autograd.grad(total, inputs, grad), torch.autograd.grad(whole, inputs, grad)):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_select_takes_the_best_blocks():
    q, k_cmp = tensors(2, 129, 4, 2, 16, 16)[:2]
    blocks = {"block": 8, "stride": 4}
    k = nt.compress(k_cmp, **blocks)
    _, lse = nt.compressed_attention(q, k, k, **blocks)
    indices = nt.select(q, k, lse, **blocks, select_block=16, count=4)
    assert indices.dtype == torch.int32 and not indices.requires_grad
    scores = ref.block_scores(q.cpu(), k.cpu(), lse.cpu(), 8, 4, 16)
    for t in (0, 20, 50, 100, 128):
        own, row = t // 16, indices[1, 1, t].tolist()
        forced = [j for j in {0, own, own - 1} if j >= 0]
        others = sorted((j for j in range(own + 1) if j not in forced), key=lambda j: (-scores[1, 1, t, j], j))
        want = sorted((forced + others)[:4])
        assert row == want + [-1] * (4 - len(want))


def test_selected_attention_of_any_selector():
    q, k, v = tensors(1, 70, 4, 2, 16, 16)[:3]
    indices = torch.full((1, 2, 70, 3), -1, dtype=torch.int32, device=DEVICE)
    indices[..., 0] = torch.arange(70, device=DEVICE) // 16
    indices[0, 1, 40:, :2] = torch.tensor([1, 2], device=DEVICE)
    o, lse = nt.selected_attention(q, k, v, indices, select_block=16)
    want, want_lse = ref.attention(q, k, v, ref.selected_mask(indices, 70, 16))
    torch.testing.assert_close(o.double(), want, rtol=0, atol=1e-5)
    torch.testing.assert_close(lse.double(), want_lse, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name,mask", [("window", ref.window_mask(50, 9)), ("causal", ref.window_mask(50, 50))])
def test_token_attention_agrees_with_fp64(name, mask, dtype):
    q, k, v = tensors(2, 50, 6, 2, 16, 32, dtype)[:3]
    o = nt.window_attention(q, k, v, window=9) if name == "window" else nt.causal_attention(q, k, v)
    grad = torch.randn_like(o)
    results = [o, *torch.autograd.grad(o, (q, k, v), grad)]
    assert_all_close("oqkv", results, lambda *x, inner: ref.attention(*x, mask, inner=inner)[0], (q, k, v), grad)
