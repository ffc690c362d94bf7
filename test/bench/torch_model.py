#!/usr/bin/env python3
"""Trains a small decoder in PyTorch with NativeSparseAttention and with causal attention, on bytes of files.

    test/bench/torch_model.py FOLDER [--steps 500] [--layers 12] [--tokens 8192] [--batch 2] [--check]

The text is what *.py files below FOLDER hold. Prints the loss at some steps and tokens per second. --check gives
the weights to nsa-train, which must be on the PATH, and compares the loss of its model with that of PyTorch, both in
fp32.
"""

import argparse
import pathlib
import subprocess
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional

import nsa
import nsa.torch as nt

CONFIG = """model: {{dim: 768, n_layers: {layers}, n_heads: 12, n_kv_groups: 2, d_k: 64, d_v: 64, mlp: silu}}
nsa: {{l: 32, d: 16, l_sel: 64, n_sel: 16, w: 512, phi: mean}}
runtime: {{device: cuda, precision: fp32}}
train: {{steps: 1, lr: 0.0, seq_len: 2048, batch_size: 1, micro_batch: 1, warmup_steps: 0, final_eval_batches: 1,
        sample_bytes: 0}}
"""


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
            self.table = nt.rotary_table(x.shape[1], self.width, device=x.device).to(x.dtype)
        c, s = (part[None, :, None] for part in self.table.unbind(-1))
        q, k, v = self.qkv(x).unflatten(-1, (-1, self.width)).split([self.heads, self.kv_heads, self.kv_heads], 2)
        q, k = (torch.cat([c * a - s * b, c * b + s * a], -1) for a, b in (y.chunk(2, -1) for y in (q, k)))
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        o = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.output(o.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.RMSNorm(dim, eps=1e-5)
        self.up, self.down = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        return self.down(functional.silu(self.up(self.norm(x))))


class Block(nn.Module):
    def __init__(self, attention, dim):
        super().__init__()
        self.attention = attention
        self.attention.norm = nn.RMSNorm(dim, eps=1e-5)
        self.mlp = MLP(dim)

    def forward(self, x):
        x = x + self.attention(self.attention.norm(x))
        return x + self.mlp(x)


class Decoder(nn.Module):
    """With the names of nsa-train's parameters."""

    def __init__(self, kind, layers, dim=768, heads=12, kv_heads=2, width=64):
        super().__init__()
        attention = nt.NativeSparseAttention if kind == "nsa" else Dense
        self.embedding = nn.Embedding(256, dim)
        self.layers = nn.ModuleList(Block(attention(dim, heads, kv_heads, width), dim) for _ in range(layers))
        self.norm = nn.RMSNorm(dim, eps=1e-5)
        self.head = nn.Linear(dim, 256, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def check(model, text, layers):
    """The loss of nsa-train's model with the weights of `model`, and that of `model`."""
    ids = text[-2049:].long()[None]
    with torch.no_grad():
        logits = model(ids[:, :-1].cuda()).flatten(0, 1)
    loss = functional.cross_entropy(logits, ids[:, 1:].flatten().cuda()).item()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "model.yaml").write_text(CONFIG.format(layers=layers))
        nt.save_parameters(model.state_dict(), folder / "weights.safetensors")
        for command in (["nsa-data", "synth", "--vocab", "256", "--tokens", "200k", "-o", "data"],
                        ["nsa-train", "model.yaml", "--data", "data", "--out-dir", "runs", "--run-name", "run",
                         "--init-from", "weights.safetensors"]):
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
        other = nsa.Model(folder / "runs" / "run", target="sm_90a").loss(ids.numpy())
    print(f"the loss of {ids.shape[1] - 1} bytes is {loss:.6f} in PyTorch and {other:.6f} in nsa-train's model")


def train(kind, text, args):
    torch.manual_seed(1)
    model = Decoder(kind, args.layers).cuda()
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
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    for name, value in (("steps", 500), ("layers", 12), ("tokens", 8192), ("batch", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    data = b"".join(path.read_bytes() for path in sorted(args.folder.rglob("*.py"))[:4000])
    text = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    print(f"{torch.cuda.get_device_name()}: {len(text)} bytes of text, {args.batch} x {args.tokens} tokens in a step")
    steps = " | ".join(f"loss at {i}" for i in range(100, args.steps + 1, 100))
    print(f"| attention | {steps} | tokens/s | GiB |\n|" + "---|" * (args.steps // 100 + 3))
    model = train("nsa", text, args)
    train("causal", text, args)
    if args.check:
        check(model, text, args.layers)


if __name__ == "__main__":
    main()
