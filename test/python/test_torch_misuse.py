"""Wrong arguments of nsa.torch: each has its error, with both values."""

import math
import re

import pytest

torch = pytest.importorskip("torch", minversion="2.9")

import nsa.torch as nt  # noqa: E402
from nsa import InputError  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch_support import DEVICE, INPUTS, SIZES, VECTOR, WIDE, seed, tensors  # noqa: E402, F401


@pytest.mark.parametrize("change,message", [
    (lambda x: {"q": x["q"].double()},
     "q is torch.float64, expected one of torch.float32, torch.bfloat16, torch.float16"),
    (lambda x: {"q": x["q"][0]}, "q has shape (33, 4, 16), expected [B, T, Hq, Dk]"),
    (lambda x: {"k_slc": x["k_slc"].bfloat16()}, "k_slc is torch.bfloat16, expected torch.float32, as q is"),
    (lambda x: {"k_win": x["k_win"][:, 1:]}, "k_win has shape (2, 32, 2, 16), expected (2, 33, 2, 16)"),
    (lambda x: {"v_slc": x["v_slc"][..., :16]}, f"v_slc has shape (2, 33, 2, 16), expected (2, 33, 2, {WIDE})"),
    (lambda x: {"gates": x["gates"][..., :2]}, "gates has shape (2, 33, 4, 2), expected (2, 33, 4, 3)"),
    (lambda x: {"q": x["q"][:, :, :3], "gates": x["gates"][:, :, :3]},
     "q has 3 heads, expected a multiple of the 2 of k_cmp"),
    (lambda x: {"stride": 3}, "block is 8, expected a multiple of stride, 3"),
    (lambda x: {"select_block": 4}, "select_block is 4, expected a multiple of stride, 4, that is at least block, 8"),
    (lambda x: {"count": 0}, "count is 0, expected at least 1"),
    (lambda x: {"window": 0}, "window is 0, expected at least 1"),
    (lambda x: {"phi": "max"}, "phi is 'max', expected one of mean, linear, mlp"),
    (lambda x: {"phi": "mlp"}, "phi 'mlp' of k_cmp has 0 parameters, expected these, the last one if wanted: "
                               "(2, 128, 16), (2, 16, 16), (2, 8, 16)"),
    (lambda x: {"rotary": torch.zeros(32, 8, 2, device=DEVICE)}, "rotary has shape (32, 8, 2), expected (33, 8, 2)"),
    (lambda x: {"rotary": torch.zeros(33, 8, 2, device=DEVICE).double()},
     "rotary is torch.float64, expected torch.float32"),
    (lambda x: {"q": [1.0]}, "q is a list, expected a tensor"),
    (lambda x: {"gates": None}, "gates is a NoneType, expected a tensor"),
    (lambda x: {"key_parameters": [1.0]}, "key_parameters[0] is a float, expected a tensor"),
    (lambda x: {"gates": x["gates"].long()}, "gates are torch.int64, expected a floating-point type"),
    (lambda x: {"k_slc": x["k_slc"].to("meta")}, "k_slc lies on meta, expected"),
    (lambda x: {"stride": 0}, "stride is 0, expected at least 1"),
    (lambda x: {"scale": math.nan}, "scale is nan, expected a finite number or None"),
])
def test_attention_misuse_is_named(change, message):
    arguments = dict(zip(INPUTS, tensors(*VECTOR)), **SIZES)
    with pytest.raises(InputError, match=re.escape(message)):
        nt.attention(**{**arguments, **change(arguments)})


@pytest.mark.parametrize("change,message", [
    (lambda i: i.long(), "indices has the type torch.int64, expected torch.int32"),
    (lambda i: i[:, :1], "indices has shape (2, 1, 33, 3), expected (2, 2, 33, 3)"),
])
def test_indices_misuse_is_named(change, message):
    indices = torch.zeros(2, 2, 33, 3, dtype=torch.int32, device=DEVICE)
    with pytest.raises(InputError, match=re.escape(message)):
        nt.selected_attention(*tensors(*VECTOR)[:3], change(indices), select_block=16)


@pytest.mark.parametrize("call,message", [
    (lambda q, k: nt.window_attention(q, k, k, window=0), "window is 0, expected at least 1"),
    (lambda q, k: nt.window_attention(q, k, k, window=2.5), "window is 2.5, expected an integer"),
    (lambda q, k: nt.compressed_attention(q, k, k, block=8, stride=0), "stride is 0, expected at least 1"),
    (lambda q, k: nt.compressed_attention(q, k, k, block=8, stride=4), "k has shape (2, 33, 2, 16), expected (2, 7,"),
    (lambda q, k: nt.selected_attention(q, k, k, [0], select_block=16), "indices is a list, expected a tensor"),
    (lambda q, k: nt.selected_attention(q, k, k, q, select_block=0), "select_block is 0, expected at least 1"),
    (lambda q, k: nt.compress(k[0], block=8, stride=4), "x has shape (33, 2, 16), expected [B, T, Hkv, D]"),
    (lambda q, k: nt.select(q, k[:, :7], torch.zeros(2, 4, 33).double().to(DEVICE), block=8, stride=4, select_block=16,
                            count=2), "lse is torch.float64, expected torch.float32"),
])
def test_parts_misuse_is_named(call, message):
    with pytest.raises(InputError, match=re.escape(message)):
        call(*tensors(*VECTOR)[:2])


def test_width_that_gpus_do_not_have_lists_those_they_have():
    torch._C._ensureCUDADeviceGuardSet()
    with FakeTensorMode():
        q, k = (torch.empty(1, 8, heads, 24, device="cuda") for heads in (4, 2))
        with pytest.raises(InputError, match="of q have width 24, which is not supported on GPUs; these are: 16, 32, "):
            nt.causal_attention(q, k, k)


def test_group_of_more_than_32_is_an_error():
    with pytest.raises(InputError, match="makes groups of 33; expected at most 32"):
        nt.causal_attention(*tensors(1, 4, 33, 1, 16, 16)[:3])
