#!/usr/bin/env python3
"""Times what others have, on a GPU; needs PyTorch, and nothing of this project.

  test/bench/peers.py [--attention SHAPE...] [--steps BATCHxTOKENS...] [--sf FOLDER]

SHAPE is batch,tokens,heads,key heads,width. For each, causal attention by cuDNN, forward, and forward
and backward, and with --sf the same of HFNSACore of Scalable-Flash-Native-Sparse-Attention
(github.com/mdy666), whose checkout the folder is: blocks of 32 at a stride of 16, 16 selected of 64, a
window of 512. --steps trains m7c_125m's shape with dense attention, compiled, AdamW, bf16. Random
inputs, medians in milliseconds; and the rate of a copy of 1 GiB.
"""
import argparse
import importlib.machinery
import statistics
import sys
import types

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel


def milliseconds(function, runs=20, warm_up=5):
    times = []
    for i in range(warm_up + runs):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        function()
        end.record()
        end.synchronize()
        times += [begin.elapsed_time(end)] if i >= warm_up else []
    return statistics.median(times)


def normal(*size):
    return torch.randn(*size, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def report(name, forward, inputs):
    """Milliseconds forward, and forward and backward; or why there are none."""
    try:
        gradient = torch.randn_like(forward())
        with torch.no_grad():
            one = milliseconds(forward)
        both = milliseconds(lambda: torch.autograd.grad(forward(), inputs, gradient))
        print(f"{name:36} {one:11.3f} {both:11.3f}", end="", flush=True)
        return one, both
    except (RuntimeError, NotImplementedError) as error:
        # cuDNN has no gradients for heads of 256.
        print(f"{name:36} {str(error).splitlines()[0]}", end="", flush=True)
        return None


def cudnn(batch, length, heads, groups, width):
    q, k, v = (normal(batch, h, length, width) for h in (heads, groups, groups))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        times = report(f"cuDNN {heads}x{groups}x{width}-{batch}x{length}",
                       lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), (q, k, v))
    flops = 2 * batch * heads * length * (length + 1) * width
    print(f"   {flops / times[0] / 1e9:.0f} / {2.5 * flops / (times[1] - times[0]) / 1e9:.0f} TFLOP/s" if times else "", flush=True)


class Window(torch.autograd.Function):
    """flash_attn's attention of sequences in a row, by the kernels that PyTorch has of it."""

    @staticmethod
    def forward(ctx, q, k, v, scale, window, *bounds):
        o, lse, seed, offset, _ = torch.ops.aten._flash_attention_forward(
            q, k, v, *bounds, 0.0, True, False, scale=scale, window_size_left=window, window_size_right=0)
        ctx.save_for_backward(q, k, v, o, lse, seed, offset, *bounds[:2])
        ctx.rest = scale, window, bounds[2:]
        return o

    @staticmethod
    def backward(ctx, gradient):
        q, k, v, o, lse, seed, offset, *starts = ctx.saved_tensors
        scale, window, lengths = ctx.rest
        return *torch.ops.aten._flash_attention_backward(
            gradient, q, k, v, o, lse, *starts, *lengths, 0.0, True, seed, offset, scale=scale,
            window_size_left=window, window_size_right=0), *[None] * 6


def flash(q, k, v, *bounds, softmax_scale=None, causal=True, window_size=(-1, -1), **others):
    assert causal, "the window of a causal model"
    names = "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"
    bounds = [*bounds, *(others[name] for name in names[len(bounds):])]
    return Window.apply(q, k, v, softmax_scale, window_size[0], *bounds)


def open_sf(folder):
    """Its package, where what it imports and PyTorch lacks are modules of these names."""
    def module(name, **members):
        made = sys.modules[name] = types.ModuleType(name)
        made.__path__, made.__spec__ = [], importlib.machinery.ModuleSpec(name, None)
        made.__dict__.update(members)
        return made
    of_others = module("flash_attn.flash_attn_interface", _wrapped_flash_attn_varlen_backward=None)
    module("flash_attn", flash_attn_varlen_func=flash, flash_attn_interface=of_others)
    module("flash_attn_2_cuda", varlen_fwd=None)
    module("pkg_resources", parse_version=lambda text: tuple(int(part) for part in text.split("+")[0].split(".") if part.isdigit()))
    module("pandas")
    sys.path.insert(0, folder)
    import flash_nsa
    return flash_nsa


def sf(package, batch, length, heads, groups, width):
    config = package.NSAConfig(hidden_size=heads * width, head_dim=width, num_heads=heads, num_kv_heads=groups, kernel_size=32, stride=16,
                               cmp_k_method="mean", cmp_v_method="mean", block_size=64, top_n=16, num_init_blocks=1, num_local_blocks=2,
                               window_size=512)
    core, rows = package.HFNSACore(config), batch * length
    inputs = normal(rows, heads, width), normal(rows, groups, width), normal(rows, groups, width), normal(rows, heads, 3)
    starts = torch.arange(0, rows + 1, length, device="cuda", dtype=torch.int32)
    report(f"SF {heads}x{groups}x{width}-{batch}x{length}", lambda: core(*inputs, starts), inputs)
    print(flush=True)


class Norm(nn.RMSNorm):
    def forward(self, x):
        return functional.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), 1e-6)


class Layer(nn.Module):
    def __init__(self, dim, heads, groups, width, hidden):
        super().__init__()
        self.sizes = heads, groups, groups
        self.norms = nn.ModuleList(Norm(dim) for _ in range(2))
        self.qkv, self.output = nn.Linear(dim, sum(self.sizes) * width, bias=False), nn.Linear(heads * width, dim, bias=False)
        self.up, self.down = nn.Linear(dim, hidden, bias=False), nn.Linear(hidden, dim, bias=False)

    def forward(self, x, cosine, sine):
        def rotated(y):
            a, b = y.chunk(2, -1)
            return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (sum(self.sizes), -1)).transpose(1, 2).split(self.sizes, 1)
        o = functional.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
        x = x + self.output(o.transpose(1, 2).flatten(2))
        return x + self.down(functional.silu(self.up(self.norms[1](x))))


class Model(nn.Module):
    def __init__(self, words=256, dim=768, width=64):
        super().__init__()
        self.embedding, self.head = nn.Embedding(words, dim), nn.Linear(dim, words, bias=False)
        self.layers = nn.ModuleList(Layer(dim, 12, 2, width, 4 * dim) for _ in range(12))
        self.norm = Norm(dim)

    def forward(self, ids, cosine, sine):
        x = self.embedding(ids[:, :-1]).bfloat16()
        for layer in self.layers:
            x = layer(x, cosine, sine)
        return functional.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), ids[:, 1:].flatten())


def step(batch, length):
    torch._dynamo.reset()
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    angles = torch.arange(length, device="cuda")[:, None] * 1e4 ** (-torch.arange(0, 64, 2, device="cuda") / 64)
    cosine, sine = angles.cos().bfloat16(), angles.sin().bfloat16()
    ids = torch.randint(256, (batch, length + 1), device="cuda")
    compiled = torch.compile(model)

    def run():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(ids, cosine, sine)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]):
        time = milliseconds(run)
    print(f"dense, compiled, {batch}x{length}".ljust(36), f"{time:11.3f}   {batch * length / time * 1e3:.0f} tokens/s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attention", nargs="*", default=[], metavar="SHAPE")
    parser.add_argument("--steps", nargs="*", default=[], metavar="BATCHxTOKENS")
    parser.add_argument("--sf", metavar="FOLDER")
    args = parser.parse_args()
    source = torch.randint(255, (2**30,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, copy {2 * 2**30 / milliseconds(lambda: target.copy_(source)) / 1e6:.0f} GB/s")
    shapes = [tuple(map(int, shape.split(","))) for shape in args.attention]
    for shape in shapes:
        cudnn(*shape)
    if args.sf:
        package = open_sf(args.sf)
        for shape in shapes:
            sf(package, *shape)
    for size in args.steps:
        step(*map(int, size.split("x")))


main()
