"""nsa.torch against PyTorch in fp64, and in what PyTorch does with operators.

NSA_TORCH_SHAPES random shapes are tried; test/check-torch.sh asks for 200.
"""

import copy
import math
import os
import pathlib
import random
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch", minversion="2.9")

import nsa  # noqa: E402
import nsa.torch as nt  # noqa: E402
import torch_reference as ref  # noqa: E402
from nsa import InputError  # noqa: E402
from nsa.torch import _kernels  # noqa: E402
from programs import BIN, train_on_ids  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch.library import opcheck  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEVICE = os.environ.get("NSA_TORCH_DEVICE", "cpu")
LIMIT = {"cpu": 1e-5, "cuda": 1e-4}[DEVICE]
#: A width of values that differs from that of keys; GPUs take multiples of 16.
WIDE = {"cpu": 24, "cuda": 32}[DEVICE]
SIZES = {"block": 8, "stride": 4, "select_block": 16, "count": 4, "window": 20}
INPUTS = ("q", "k_cmp", "v_cmp", "k_slc", "v_slc", "k_win", "v_win", "gates")


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
    def normal(rows, scale):
        return (torch.randn(groups, rows, width, device=DEVICE) * scale).to(dtype).requires_grad_()

    weights = {"mean": [], "linear": [(block * width, 0.1)], "mlp": [(block * width, 0.1), (width, 0.3)]}[phi]
    return [normal(*w) for w in weights] + ([normal(block, 1.0)] if phi != "mean" and positions else [])


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
    if error > limit and want.numel() < 2**16:
        limit = max(limit, 2 * top * redraw())
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

    def redraw(i):
        # Few roundings are no measure of the formula: the largest relative error with the same values in other orders.
        def shuffle(x):
            return x.detach().flatten()[torch.randperm(x.numel(), device=x.device)].view(x.shape)

        errors = []
        for _ in range(8):
            references = references_of(function, map(shuffle, leaves), shuffle(grad))
            want, rounded = (results[i].detach().double() for results in references)
            errors.append((rounded - want).abs().max() / want.abs().max())
        return max(errors)

    for i, (name, got, want, rounded) in enumerate(zip(names, results, *references)):
        assert_close(got.detach(), want.detach().double(), rounded.detach(), name, grad.abs().max().double(),
                     lambda i=i: redraw(i))


def selected_by(q, k_cmp, v_cmp, parameters, phi, rotary, sizes):
    """The indices that the operators choose, which the reference takes."""
    blocks = {"block": sizes["block"], "stride": sizes["stride"]}
    k = nt.compress(k_cmp.detach(), **blocks, phi=phi, parameters=parameters[0])
    if rotary is not None:
        q, k = ref.rotate(q, rotary, inner=torch.float32), ref.rotate(k, rotary, sizes["stride"], torch.float32)
    _, lse = nt.compressed_attention(q.detach(), k.detach(), k.detach(), **blocks)
    return nt.select(q, k, lse, **blocks, select_block=sizes["select_block"], count=sizes["count"])


def check_attention(inputs, sizes, phi="mean", parameters=((), ()), rotary=None, scale=None):
    """The output and all gradients."""
    options = {"phi": phi, "key_parameters": parameters[0], "value_parameters": parameters[1], "rotary": rotary,
               "scale": scale}
    o = nt.attention(*inputs, **sizes, **options)
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


def random_shapes(count):
    choose = random.Random(int(os.environ.get("NSA_TEST_SEED", "0")))
    lengths = [1, 15, 16, 31, 32, 33, 47, 48, 63, 64, 65, 127, 128, 129]
    long = [511, 512, 513, 1024, 1025, 2048, 4097] if count >= 100 else []
    for _ in range(count):
        group = choose.choice([1, 2, 3, 4, 5, 6, 8, 12, 16, 32])
        length = choose.choice(lengths + long)
        batch, groups = (choose.choice([1, 2]), choose.choice([1, 2, 3])) if length < 256 else (1, 1)
        heads = groups * (group if length < 2000 else min(group, 4))
        widths = choose.choice([(16, 16), (64, 64), (32, 16), (16, 48)])
        blocks = choose.choice([(32, 16, 64), (16, 16, 16), (32, 32, 64), (16, 8, 48), (8, 4, 16)])
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


@pytest.mark.skipif(DEVICE != "cuda", reason="takes minutes on a CPU")
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


# What PyTorch does with operators

VECTOR = (2, 33, 4, 2, 16, WIDE)


@pytest.mark.parametrize("name", ["window", "selected", "compress", "attention", "inference", "rotary"])
def test_opcheck(name):
    inputs = tensors(*VECTOR)
    indices = torch.zeros(2, 2, 33, 3, dtype=torch.int32, device=DEVICE)
    sizes = [8, 4, 16, 4, 1, 2, 20]
    weights = [phi_parameters("mlp", 2, width, torch.float32) for width in (16, WIDE)]
    operator, arguments = {
        "window": ("attend", (*inputs[:3], None, "#nsa.window<8>", None)),
        "selected": ("attend", (*inputs[:3], indices, "#nsa.selected<block = 16>", 0.3)),
        "compress": ("compress", (inputs[1], weights[0], "mlp", 8, 4)),
        "attention": ("attention", (*inputs, *weights, None, sizes, "mlp", None)),
        "inference": ("attention_inference", (*[x.detach() for x in inputs], [], [], None, sizes, "mean", None)),
        "rotary": ("attention", (*inputs, [], [], nt.rotary_table(33, 16, device=DEVICE), sizes, "mean", None)),
    }[name]
    opcheck(getattr(torch.ops.nsa, operator).default, arguments)


def test_compile_fullgraph_is_the_same():
    def loss(*inputs):
        return nt.attention(*inputs, **SIZES).square().mean() + nt.causal_attention(*inputs[:3]).sum()

    inputs = tensors(*VECTOR)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=False)
    want, got = loss(*inputs), compiled(*inputs)
    torch.testing.assert_close(got, want)
    for a, b in zip(torch.autograd.grad(got, inputs), torch.autograd.grad(want, inputs)):
        torch.testing.assert_close(a, b)


def test_compile_dynamic_length_is_the_same():
    def layer(*inputs):
        return nt.attention(*inputs, **SIZES)

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (33, 40, 57):
        inputs = [x.detach() for x in tensors(1, length, 4, 2, 16, 16)]
        torch.testing.assert_close(compiled(*inputs), layer(*inputs))


def test_repeated_calls_are_equal_bit_for_bit():
    inputs = tensors(2, 90, 8, 2, 16, 16)
    grad = torch.randn(2, 90, 8, 16, device=DEVICE)
    first, *others = [(o := nt.attention(*inputs, **SIZES), *torch.autograd.grad(o, inputs, grad)) for _ in range(3)]
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other))


def test_no_gradient_is_the_same_bit_for_bit():
    inputs = tensors(*VECTOR)
    want = nt.attention(*inputs, **SIZES)
    with torch.no_grad():
        got = nt.attention(*inputs, **SIZES)
    assert torch.equal(got, want) and not got.requires_grad
    with torch.inference_mode():
        assert torch.equal(nt.attention(*inputs, **SIZES), want)


def test_strides_any_order_gives_the_same():
    inputs = tensors(*VECTOR)
    want = nt.attention(*inputs, **SIZES)
    others = [x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in inputs]
    # Parts of one projection, as models have them.
    both = torch.cat([inputs[1], inputs[2]], -1).detach().requires_grad_()
    others[1], others[2] = both[..., :16], both[..., 16:]
    got = nt.attention(*others, **SIZES)
    assert torch.equal(got, want)
    grad = torch.randn_like(want)
    wanted = torch.autograd.grad(want, inputs[1:3], grad)
    assert torch.equal(torch.autograd.grad(got, both, grad)[0], torch.cat(wanted, -1))


def test_same_tensor_as_several_arguments_sums_gradients():
    q, k, v, *_, gates = tensors(1, 40, 4, 2, 16, 16)
    o = nt.attention(q, k, v, k, v, k, v, gates, **SIZES)
    copies = [x.detach().clone().requires_grad_() for x in (k, v, k, v, k, v)]
    apart = nt.attention(q, *copies, gates, **SIZES)
    assert torch.equal(o, apart)
    grad = torch.randn_like(o)
    dk, dv = torch.autograd.grad(o, (k, v), grad)
    parts = torch.autograd.grad(apart, copies, grad)
    torch.testing.assert_close(dk, parts[0] + parts[2] + parts[4])
    torch.testing.assert_close(dv, parts[1] + parts[3] + parts[5])


@pytest.mark.parametrize("batch,length", [(0, 16), (2, 0), (0, 0)])
def test_no_tokens_give_empty_tensors(batch, length):
    inputs = tensors(batch, length, 4, 2, 16, WIDE)
    weights = [phi_parameters("linear", 2, width, torch.float32) for width in (16, WIDE)]
    o = nt.attention(*inputs, **SIZES, phi="linear", key_parameters=weights[0], value_parameters=weights[1])
    assert o.shape == (batch, length, 4, WIDE)
    gradients = torch.autograd.grad(o.sum(), [*inputs, *weights[0], *weights[1]])
    assert all((gradient == 0).all() for gradient in gradients)


def test_gradient_of_a_gradient_is_an_error():
    inputs = tensors(*VECTOR)
    o = nt.attention(*inputs, **SIZES)
    [dq] = torch.autograd.grad(o.square().sum(), inputs[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives are not supported"):
        dq.sum().backward()


def test_retain_graph_and_checkpoint_give_the_same():
    inputs = tensors(*VECTOR)
    o = nt.attention(*inputs, **SIZES)
    first = torch.autograd.grad(o.sum(), inputs, retain_graph=True)
    again = torch.autograd.grad(o.sum(), inputs)
    kept = torch.utils.checkpoint.checkpoint(lambda *x: nt.attention(*x, **SIZES), *inputs, use_reentrant=False)
    recomputed = torch.autograd.grad(kept.sum(), inputs)
    for a, b, c in zip(first, again, recomputed):
        assert torch.equal(a, b) and torch.equal(a, c)


def test_autocast_casts_all_but_gates():
    inputs = tensors(*VECTOR)
    with torch.autocast(DEVICE, torch.bfloat16):
        o = nt.attention(*inputs, **SIZES)
        window = nt.window_attention(*inputs[:3], window=8)
    assert o.dtype == window.dtype == torch.bfloat16
    low = [x.bfloat16() for x in inputs[:7]]
    assert torch.equal(o, nt.attention(*low, inputs[7], **SIZES))
    assert torch.autograd.grad(o.float().sum(), inputs)[0].dtype == torch.float32


def test_gates_any_type_gradient_has_it():
    inputs = tensors(*VECTOR)
    gates = inputs[7].detach().bfloat16().requires_grad_()
    o = nt.attention(*inputs[:7], gates, **SIZES)
    assert torch.autograd.grad(o.sum(), gates)[0].dtype == torch.bfloat16


def test_threads_results_are_their_own():
    calls = [[x.detach() for x in tensors(1, length, 4, 2, 16, 16)] for length in (20, 20, 35, 50)]
    wants = [nt.attention(*inputs, **SIZES) for inputs in calls]
    wrong = []

    def work(number):
        for _ in range(30):
            if not torch.equal(nt.attention(*calls[number], **SIZES), wants[number]):
                wrong.append(number)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert not wrong


def run_with_gradients(inputs, grad):
    o = nt.attention(*inputs, **SIZES)
    return [o.detach(), *torch.autograd.grad(o, inputs, grad)]


@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")
def test_streams_and_graphs_give_the_same():
    inputs = tensors(1, 300, 8, 2, 64, 64, torch.bfloat16)
    grad = torch.randn(1, 300, 8, 64, device=DEVICE).bfloat16()
    want = run_with_gradients(inputs, grad)
    streams = [torch.cuda.Stream() for _ in range(2)]
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
    for _ in range(20):
        for stream in streams:
            with torch.cuda.stream(stream):
                got = run_with_gradients(inputs, grad)
            stream.synchronize()
            assert all(torch.equal(a, b) for a, b in zip(got, want))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=streams[0]):
        recorded = run_with_gradients(inputs, grad)
    with torch.no_grad():
        for x in inputs:
            x.copy_(torch.rand_like(x))
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(recorded, run_with_gradients(inputs, grad)))


@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")
def test_call_does_not_wait_for_the_gpu():
    inputs = tensors(1, 300, 8, 2, 64, 64, torch.bfloat16)
    grad = torch.randn(1, 300, 8, 64, device=DEVICE).bfloat16()
    run_with_gradients(inputs, grad)
    torch.cuda.synchronize()
    torch.cuda._sleep(500_000_000)
    run_with_gradients(inputs, grad)
    assert not torch.cuda.current_stream().query()
    torch.cuda.synchronize()


def call_parts(batch, length):
    q, k, v = tensors(batch, length, 2, 1, 16, 48)[:3]
    blocks = {"block": 8, "stride": 4}
    kc, vc = nt.compress(k, **blocks), nt.compress(v, **blocks)
    o, lse = nt.compressed_attention(q, kc, vc, **blocks)
    indices = nt.select(q, kc, lse, **blocks, select_block=16, count=3)
    total = o + nt.selected_attention(q, k, v, indices, select_block=16)[0] + nt.window_attention(q, k, v, window=7)
    total.sum().backward()


def call_whole(batch, length):
    nt.attention(*tensors(batch, length, 2, 1, 16, 48), **SIZES).sum().backward()


@pytest.mark.skipif(DEVICE != "cpu", reason="a program for each shape")
@pytest.mark.parametrize("call", [call_parts, call_whole])
def test_every_length_has_one_program(call):
    call(1, 5)
    before = len(_kernels._modules)
    for length in (1, 2, 100, 517):
        call(2, length)
    assert len(_kernels._modules) == before


# Misuse


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
    (lambda i: i.long(), "indices are torch.int64, expected torch.int32"),
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


# The layer


def small_layer(**options):
    sizes = {"block": 8, "stride": 4, "select_block": 16, "count": 3, "window": 12}
    return nt.NativeSparseAttention(32, 4, 2, 16, **sizes, **options).to(DEVICE)


@pytest.mark.parametrize("options", [{}, {"phi": "linear", "positions": True, "value_dim": 32},
                                     {"phi": "mlp", "gate": "softmax"}])
def test_layer_names_are_those_of_checkpoints(options):
    layer = small_layer(**options)
    names = {"query.weight", "gate.weight", "gate.bias", "output.weight",
             *[f"{branch}.{kind}.weight" for branch in ("compressed", "selected", "window")
               for kind in ("key", "value")]}
    phi = {"linear": ["weight", "positions"], "mlp": ["weight", "output_weight"]}.get(options.get("phi"), [])
    names |= {f"compressed.{kind}_compression.{name}" for kind in ("key", "value") for name in phi}
    assert set(layer.state_dict()) == names
    x = torch.randn(2, 37, 32, device=DEVICE)
    y = layer(x)
    y.square().sum().backward()
    assert y.shape == x.shape and all(parameter.grad.isfinite().all() for parameter in layer.parameters())


def test_layer_future_tokens_change_nothing_before():
    layer = small_layer()
    x = torch.randn(1, 50, 32, device=DEVICE)
    other = torch.cat([x[:, :30], torch.randn(1, 20, 32, device=DEVICE)], 1)
    assert torch.equal(layer(x)[:, :30], layer(other)[:, :30])


def test_layer_bfloat16_copies_and_inference_work():
    layer = small_layer().bfloat16()
    x = torch.randn(1, 40, 32, device=DEVICE).bfloat16()
    with torch.inference_mode():
        want = layer(x)
    y = copy.deepcopy(layer)(x)
    assert torch.equal(y, want)
    y.sum().backward()
    assert layer(torch.cat([x, x], 1)).shape == (1, 80, 32)


def test_layer_compile_fullgraph_is_the_same():
    layer = small_layer()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for length in (40, 33, 57):
        x = torch.randn(1, length, 32, device=DEVICE)
        torch.testing.assert_close(compiled(x), layer(x))


@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")
def test_layer_compile_by_inductor_is_the_same():
    layer = small_layer()
    x = torch.randn(1, 57, 32, device=DEVICE, requires_grad=True)
    want, got = layer(x), torch.compile(layer, fullgraph=True)(x)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    grads = [torch.autograd.grad(y.square().sum(), [x, *layer.parameters()]) for y in (want, got)]
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("options,message", [
    ({"heads": 3}, "heads is 3, expected a multiple of kv_heads, 2"),
    ({"gate": "tanh"}, "gate is 'tanh', expected one of sigmoid, softmax"),
    ({"phi": "max"}, "phi is 'max', expected one of mean, linear, mlp"),
    ({"positions": True}, "positions are given, which phi 'mean' does not take"),
    ({"value_dim": 0}, "value_dim is 0, expected at least 1"),
    ({"window": 0}, "window is 0, expected at least 1"),
    ({"head_dim": 15}, "head_dim is 15, expected a multiple of 2 for rotary embedding"),
])
def test_layer_misuse_is_named(options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        nt.NativeSparseAttention(**{"dim": 32, "heads": 4, "kv_heads": 2, "head_dim": 16, **options})


CONFIG = """model: {dim: 32, n_layers: 2, n_heads: 4, n_kv_groups: 2, d_k: 16, d_v: 16, init_std: 0.3}
nsa: {l: 8, d: 4, l_sel: 16, n_sel: 3, w: 12, phi: linear, phi_pos: true}
train: {steps: 1, lr: 0.0, seq_len: 48, batch_size: 1, micro_batch: 1, warmup_steps: 0, final_eval_batches: 1,
        sample_bytes: 0}
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return train_on_ids(folder, CONFIG)


class Decoder(torch.nn.Module):
    """nsa-train's model around the layer, from a checkpoint."""

    def __init__(self, model):
        super().__init__()
        self.weights = {name: torch.from_numpy(value.copy()).requires_grad_()
                        for name, value in model.parameters.items()}
        self.layers = torch.nn.ModuleList(small_layer(phi="linear", positions=True) for _ in range(2))

    def named(self):
        """Its parameters, by their names in nsa-train."""
        named = dict(self.weights)
        for i, layer in enumerate(self.layers):
            named.update({f"layers.{i}.attention.{name}": value for name, value in layer.named_parameters()})
        return named

    def forward(self, ids):
        def norm(x, name):
            return torch.nn.functional.rms_norm(x, x.shape[-1:], self.weights[name + ".weight"], 1e-5)

        x = self.weights["embedding.weight"][ids]
        for i, layer in enumerate(self.layers):
            x = x + layer(norm(x, f"layers.{i}.attention.norm"))
            hidden = norm(x, f"layers.{i}.mlp.norm") @ self.weights[f"layers.{i}.mlp.up.weight"].T
            hidden = torch.nn.functional.silu(hidden)
            x = x + hidden @ self.weights[f"layers.{i}.mlp.down.weight"].T
        return norm(x, "norm") @ self.weights["head.weight"].T


@pytest.mark.skipif(DEVICE != "cpu", reason="needs the tools of a build")
def test_checkpoint_gives_the_logits_of_nsa_train(checkpoint):
    model = nsa.Model(checkpoint)
    decoder = Decoder(model)
    for i, layer in enumerate(decoder.layers):
        nt.load_checkpoint(layer, checkpoint, layer=i)
    ids = torch.randint(0, 16, (2, 48))
    with torch.no_grad():
        logits = decoder(ids)
    torch.testing.assert_close(logits, torch.from_numpy(model.logits(ids.numpy())), rtol=0, atol=2e-4)


@pytest.mark.skipif(DEVICE != "cpu", reason="needs the tools of a build")
def test_saved_parameters_give_the_same_loss_in_nsa_train(checkpoint, tmp_path):
    decoder = Decoder(nsa.Model(checkpoint))
    ids = torch.randint(0, 16, (2, 49))

    def loss():
        return torch.nn.functional.cross_entropy(decoder(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    before = loss()
    named = decoder.named()
    gradients = torch.autograd.grad(before, named.values(), allow_unused=True)
    with torch.no_grad():
        for value, gradient in zip(named.values(), gradients):
            if gradient is not None:
                value -= 0.5 * gradient
    nt.save_parameters(named, tmp_path / "weights.safetensors")
    subprocess.run([BIN / "nsa-train", checkpoint.parent.parent / "small.yaml", "--data",
                    checkpoint.parent.parent / "data", "--out-dir", tmp_path, "--run-name", "next", "--init-from",
                    tmp_path / "weights.safetensors"], check=True, capture_output=True)
    with torch.no_grad():
        after = loss()
    assert after < before - 0.01
    assert abs(nsa.Model(tmp_path / "next").loss(ids) - after.item()) < 1e-5


def test_save_parameters_of_no_use_is_an_error(tmp_path):
    path = tmp_path / "weights.safetensors"
    for value, message in ((torch.tensor([1, 2]), "'a' is torch.int64"), (torch.tensor([math.nan]), "not finite")):
        with pytest.raises(InputError, match=message):
            nt.save_parameters({"a": value}, path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(DEVICE != "cpu", reason="needs the tools of a build")
@pytest.mark.parametrize("options,layer,message", [
    ({"phi": "linear", "positions": True}, 2, "has no parameters layers.2.attention.*"),
    ({}, 0, "the module has no parameter for layers.0.attention.{compressed.key_compression.positions"),
    ({"phi": "mlp", "positions": True}, 0, "has no layers.0.attention.{compressed.key_compression.output_weight"),
    ({"phi": "linear", "positions": True, "value_dim": 8}, 0, "has shape (32, 32), expected (16, 32)"),
    ({"phi": "linear", "positions": True, "rope_base": 500}, 0, "is 10000.0, the module has 500.0"),
    ({"phi": "linear", "positions": True, "gate": "softmax"}, 0, "is sigmoid, the module has softmax"),
])
def test_checkpoint_of_another_layer_is_an_error(checkpoint, options, layer, message):
    with pytest.raises(InputError, match=re.escape(message)):
        nt.load_checkpoint(small_layer(**options), checkpoint, layer=layer)


# Documentation


def test_page_examples_run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "torch.md").read_text(), re.M | re.S)
    assert blocks
    scope = {"math": math}
    for block in blocks:
        exec(compile(block, "docs/torch.md", "exec"), scope)
