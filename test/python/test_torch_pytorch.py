"""Operators of nsa.torch in what PyTorch does with operators."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", minversion="2.9")

import nsa.torch as nt  # noqa: E402
from nsa.torch import _kernels  # noqa: E402
from torch import library  # noqa: E402
import torch._dynamo.testing  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch_support import DEVICE, SIZES, VECTOR, WIDE, check_attention, phi_parameters, seed, tensors  # noqa: E402, F401


@pytest.mark.parametrize("name", ["window", "selected", "compress", "attention", "replayed", "inference", "rotary"])
def test_opcheck(name):
    inputs = tensors(*VECTOR)
    indices = torch.zeros(2, 2, 33, 3, dtype=torch.int32, device=DEVICE)
    sizes = [8, 4, 16, 4, 1, 2, 20]
    blocks = torch.tensor([0, -1, -1, -1], dtype=torch.int32, device=DEVICE).repeat(2, 2, 33, 1)
    weights = [phi_parameters("mlp", 2, width, torch.float32) for width in (16, WIDE)]
    operator, arguments = {
        "window": ("attend", (*inputs[:3], None, None, "#nsa.window<8>", None)),
        "selected": ("attend", (*inputs[:3], indices, None, "#nsa.selected<block = 16>", 0.3)),
        "compress": ("compress", (inputs[1], weights[0], None, "mlp", 8, 4)),
        "attention": ("attention", (*inputs, *weights, None, None, None, sizes, "mlp", None)),
        "replayed": ("attention", (*inputs, [], [], None, None, blocks, sizes, "mean", None)),
        "inference": ("attention_inference", (*[x.detach() for x in inputs], [], [], None, None, None, sizes, "mean", None)),
        "rotary": ("attention", (*inputs, [], [], nt.rotary_table(33, 16, device=DEVICE), None, None, sizes, "mean", None)),
    }[name]
    library.opcheck(getattr(torch.ops.nsa, operator).default, arguments)


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


def test_compile_does_not_trace_kernels_where_it_has_given_up():
    inputs = [x.detach() for x in tensors(*VECTOR)[:3]]
    counter = torch._dynamo.testing.CompileCounter()

    @torch._dynamo.disable(recursive=False)
    def call():
        return torch.ops.nsa.attend(*inputs, None, None, "#nsa.window<8>", None)[0]

    got = torch.compile(lambda: call(), backend=counter)()
    assert torch.equal(got, nt.window_attention(*inputs, window=8))
    assert counter.frame_count == 0


def test_dynamic_shapes_compile_once(monkeypatch):
    compiled = []
    compile = _kernels.compile
    monkeypatch.setattr(_kernels, "compile", lambda text, **options: compiled.append(text) or compile(text, **options))
    monkeypatch.setattr(_kernels, "_has_dynamic_shapes", False)
    nt.set_dynamic_shapes(True)
    for length in (1, 45, 130):
        check_attention(tensors(1, length, 6, 2, 16, 16, torch.bfloat16), SIZES)
    assert compiled and len(set(compiled)) == len(compiled) and all("x?x" in text for text in compiled)


def test_repeated_calls_are_equal_bit_for_bit():
    inputs = tensors(2, 90, 8, 2, 16, 16)
    grad = torch.randn(2, 90, 8, 16, device=DEVICE)
    first, *others = [(o := nt.attention(*inputs, **SIZES), *torch.autograd.grad(o, inputs, grad)) for _ in range(3)]
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other))


def test_dispatch_mode_sees_operators_with_the_same_bits():
    names = []

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(str(function))
            return function(*args, **(kwargs or {}))

    inputs = tensors(*VECTOR)
    grad = torch.randn(2, 33, 4, WIDE, device=DEVICE)
    want = run_with_gradients(inputs, grad)
    with Names():
        got = run_with_gradients(inputs, grad)
    assert {"nsa.attention.default", "nsa.attention_backward.default"} <= set(names)
    assert all(torch.equal(a, b) for a, b in zip(got, want))


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


@pytest.mark.device("cuda")
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


@pytest.mark.device("cuda")
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


def call_rotated(batch, length):
    table = nt.rotary_table(length, 16, device=DEVICE)
    nt.attention(*tensors(batch, length, 2, 1, 16, 48), **SIZES, rotary=table).sum().backward()


@pytest.mark.parametrize("is_installed", [False, True])
def test_ptxas_of_triton_is_taken_where_there_is_no_other(is_installed, monkeypatch, tmp_path):
    path = tmp_path / "backends" / "nvidia" / "bin" / "ptxas"
    path.parent.mkdir(parents=True)
    path.touch(0o755)
    triton = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(_kernels, "has_ptxas", lambda: is_installed)
    monkeypatch.setattr(_kernels.importlib.util, "find_spec", lambda name: triton)
    options = _kernels._compiler_options.__wrapped__("sm_90a")
    assert options.get("ptxas") == (None if is_installed else str(path))
    assert "ptxas" not in _kernels._compiler_options.__wrapped__("cpu")


@pytest.mark.device("cpu")
@pytest.mark.parametrize("call", [call_parts, call_whole, call_rotated])
def test_every_length_has_one_program(call):
    call(1, 5)
    before = len(_kernels._modules)
    for length in (1, 2, 100, 517):
        call(2, length)
    assert len(_kernels._modules) == before
