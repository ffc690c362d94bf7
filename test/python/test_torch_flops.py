"""Formulas of nsa.torch for torch.utils.flop_counter."""

import pytest

torch = pytest.importorskip("torch", minversion="2.9")

import nsa.torch as nt  # noqa: E402
import torch_reference as ref  # noqa: E402
from nsa.torch._flops import _pairs  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402
from torch_support import DEVICE, SIZES, VECTOR, phi_parameters, seed, tensors  # noqa: E402, F401


def count(call):
    with FlopCounterMode(display=False) as counter:
        call()
    return {str(operator): flops for operator, flops in counter.get_flop_counts()["Global"].items()
            if "nsa" in str(operator)}


@pytest.mark.parametrize("length", [1, 8, 33, 100])
def test_pairs_are_those_of_the_masks(length):
    q, k, v, *_ = [x.detach() for x in tensors(1, length, 4, 2, 16, 16)]
    blocks = {"block": 8, "stride": 4}
    kc = nt.compress(k, **blocks)
    indices = nt.select(q, kc, nt.compressed_attention(q, kc, kc, **blocks)[1], **blocks, select_block=16, count=3)
    for visibility, mask in (("#nsa.compressed<block = 8, stride = 4>", ref.compressed_mask(length, 8, 4)),
                             ("#nsa.window<20>", ref.window_mask(length, 20)),
                             ("#nsa.causal", ref.window_mask(length, length)),
                             ("#nsa.selected<block = 16>", ref.selected_mask(indices, length, 16)[0, 0])):
        assert _pairs(visibility, length, 3) == mask.sum(), visibility


def test_attention_counts_its_parts_forward_and_backward():
    inputs = tensors(*VECTOR)
    q, kc, vc, ks, vs, kw, vw, gates = inputs
    weights = [phi_parameters("mlp", 2, x.shape[3], torch.float32) for x in (kc, vc)]
    blocks = {"block": SIZES["block"], "stride": SIZES["stride"]}

    def whole():
        nt.attention(*inputs, **SIZES, phi="mlp", key_parameters=weights[0], value_parameters=weights[1]).sum().backward()

    def parts():
        kcc, vcc = (nt.compress(x, **blocks, phi="mlp", parameters=w) for x, w in zip((kc, vc), weights))
        o, lse = nt.compressed_attention(q, kcc, vcc, **blocks)
        selection = {"select_block": SIZES["select_block"]}
        indices = nt.select(q, kcc, lse, **blocks, **selection, count=SIZES["count"])
        o = o + nt.selected_attention(q, ks, vs, indices, **selection)[0]
        (o + nt.window_attention(q, kw, vw, window=SIZES["window"])).sum().backward()

    fused, apart = count(whole), count(parts)
    assert set(fused) == {"nsa.attention", "nsa.attention_backward"}
    assert fused["nsa.attention"] == apart["nsa.attend"] + apart["nsa.select"] + apart["nsa.compress"]
    assert fused["nsa.attention_backward"] == apart["nsa.attend_backward"] + apart["nsa.compress_backward"]
    # Two dots of 16 and 24 or 32 for a pair; five in backward.
    pairs = 2 * 4 * sum(_pairs(f"#nsa.{kind}", 33, 4) for kind in ("compressed<8, 4>", "selected<16>", "window<20>"))
    assert apart["nsa.attend"] == 2 * pairs * (16 + vc.shape[3])
    assert apart["nsa.attend_backward"] == 2 * pairs * (3 * 16 + 2 * vc.shape[3])
    with torch.no_grad():
        assert count(lambda: nt.attention(*inputs, **SIZES)).keys() == {"nsa.attention_inference"}
