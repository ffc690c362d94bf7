#!/usr/bin/env python3
"""Trains a small decoder in PyTorch with NativeSparseAttention and with causal attention, on bytes of files.

    test/bench/torch_model.py FOLDER [--steps 500] [--layers 12] [--tokens 8192] [--batch 2]

The text is what *.py files below FOLDER hold. Prints the loss at some steps and tokens per second.
"""

import argparse
import pathlib
import time

import torch
from torch import nn
from torch.nn import functional

import nsa.torch as nsa


class Dense(nn.Module):
    """Causal attention with rotary embedding and grouped keys, by PyTorch."""

    def __init__(self, dim, heads, kv_heads, width):
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv_heads, width
        self.qkv = nn.Linear(dim, (heads + 2 * kv_heads) * width, bias=False)
        self.output = nn.Linear(heads * width, dim, bias=False)
        self.table = None

    def forward(self, x):
        if self.table is None:
            self.table = nsa.rotary_table(x.shape[1], self.width, device=x.device).to(x.dtype)
        c, s = (part[None, :, None] for part in self.table.unbind(-1))
        q, k, v = self.qkv(x).unflatten(-1, (-1, self.width)).split([self.heads, self.kv_heads, self.kv_heads], 2)
        q, k = (torch.cat([c * a - s * b, c * b + s * a], -1) for a, b in (y.chunk(2, -1) for y in (q, k)))
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        o = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.output(o.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, attention, dim):
        super().__init__()
        self.attention = attention
        self.norm, self.mlp_norm = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim, bias=False), nn.SiLU(), nn.Linear(4 * dim, dim, bias=False))

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.mlp(self.mlp_norm(x))


def make_model(kind, layers, dim=768, heads=12, kv_heads=2, width=64):
    attention = nsa.NativeSparseAttention if kind == "nsa" else Dense
    blocks = [Block(attention(dim, heads, kv_heads, width), dim) for _ in range(layers)]
    model = nn.Sequential(nn.Embedding(256, dim), *blocks, nn.RMSNorm(dim), nn.Linear(dim, 256, bias=False))
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
    return model.cuda()


def train(kind, text, args):
    torch.manual_seed(1)
    model = make_model(kind, args.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    generator = torch.Generator().manual_seed(2)
    losses, start = [], None
    for step in range(args.steps):
        if step == 20:
            torch.cuda.synchronize()
            start = time.perf_counter()
        first = torch.randint(len(text) - args.tokens - 1, (args.batch,), generator=generator)
        batch = torch.stack([text[i:i + args.tokens + 1] for i in first]).cuda().long()
        for group in optimizer.param_groups:
            group["lr"] = 3e-4 * min(1, (step + 1) / 50)
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(batch[:, :-1]).flatten(0, 1)
            loss = functional.cross_entropy(logits.float(), batch[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    losses = torch.stack(losses).cpu()
    speed = (args.steps - 20) * args.batch * args.tokens / (time.perf_counter() - start)
    means = [f"{losses[max(0, i - 20):i].mean():.3f}" for i in range(100, args.steps + 1, 100)]
    memory = torch.cuda.max_memory_allocated() / 2**30
    print(f"| {kind} | {' | '.join(means)} | {speed:.0f} | {memory:.1f} |", flush=True)
    torch.cuda.reset_peak_memory_stats()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    for name, value in (("steps", 500), ("layers", 12), ("tokens", 8192), ("batch", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    data = b"".join(path.read_bytes() for path in sorted(args.folder.rglob("*.py"))[:4000])
    text = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    print(f"{torch.cuda.get_device_name()}: {len(text)} bytes of text, {args.batch} x {args.tokens} tokens in a step")
    steps = " | ".join(f"loss at {i}" for i in range(100, args.steps + 1, 100))
    print(f"| attention | {steps} | tokens/s | GiB |\n|" + "---|" * (args.steps // 100 + 3))
    for kind in ("nsa", "causal"):
        train(kind, text, args)


if __name__ == "__main__":
    main()
