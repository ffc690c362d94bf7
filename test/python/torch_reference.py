"""Native Sparse Attention in PyTorch, dense and with autograd, written from the paper: the measure of nsa.torch.

Tensors of any type; sums are in `inner`, which is fp64 for the truth, and fp32 for what a
kernel may round at most twice as much as.
"""

import torch
from torch.utils.checkpoint import checkpoint

#: Queries of which scores are held at once.
CHUNK = 1024


def _positions(length, t):
    return torch.arange(length)[:, None] if t is None else t[:, None]


def compressed_mask(length, block, stride, t=None):
    """[T, rows], or of the queries t alone."""
    t = _positions(length, t)
    rows = max((length - block) // stride + 1, 0)
    return torch.arange(rows, device=t.device)[None] * stride + block - 1 <= t


def window_mask(length, window, t=None):
    t = _positions(length, t)
    u = torch.arange(length, device=t.device)[None]
    return (u <= t) & (u > t - window)


def selected_mask(indices, length, block, t=None):
    """[B, Hkv, T, T]"""
    own = indices if t is None else indices[:, :, t]
    chosen = (own[..., None].long() == torch.arange(length, device=indices.device) // block).any(-2)
    return chosen & window_mask(length, length, t).to(indices.device)


def _scores(q, k, mask, scale):
    """Scores of visible pairs, -inf elsewhere, and their lse, which a row that sees nothing has at -inf."""
    s = torch.einsum("bthd,bshd->bhts", q, k) * scale
    s = s.masked_fill(~mask, -torch.inf)
    return s, s.logsumexp(-1) if s.shape[-1] else s.new_full(s.shape[:-1], -torch.inf)


def _probabilities(s, lse, mask):
    return torch.where(mask, (s - torch.where(lse.isinf(), 0, lse)[..., None]).exp(), 0)


def _expand(mask, group):
    return mask.repeat_interleave(group, 1) if mask.dim() == 4 else mask


class _Rounded(torch.autograd.Function):
    """Attention with fp32 sums whose operands are rounded to the tensors' type: P, dS and what is kept, o."""

    @staticmethod
    def forward(ctx, q, k, v, mask, scale):
        ctx.save_for_backward(q, k, v)
        ctx.mask, ctx.scale, ctx.kept = mask, scale, []
        outputs = []
        for t in torch.arange(q.shape[1], device=q.device).split(CHUNK):
            visible = mask(t)
            s, lse = _scores(q[:, t].float(), k.float(), visible, scale)
            p = _probabilities(s, lse, visible)
            outputs.append(torch.einsum("bhts,bshd->bthd", p.to(q.dtype).float(), v.float()).to(q.dtype))
            ctx.kept.append((t, lse, outputs[-1]))
        return torch.cat(outputs, 1)

    @staticmethod
    def backward(ctx, grad):
        q, k, v = ctx.saved_tensors
        dq = torch.zeros_like(q)
        dk, dv = (torch.zeros_like(x, dtype=torch.float32) for x in (k, v))
        for t, lse, o in ctx.kept:
            visible, grad32 = ctx.mask(t), grad[:, t].float()
            p = _probabilities(_scores(q[:, t].float(), k.float(), visible, ctx.scale)[0], lse, visible)
            dp = torch.einsum("bthd,bshd->bhts", grad32, v.float())
            # In another order than dp: where a query sees one key both are equal, and kernels need not add alike.
            ds = p * (dp - torch.einsum("bthd,bthd->bht", grad32.flip(-1), o.float().flip(-1))[..., None])
            ds, p = ds.to(q.dtype).float(), p.to(q.dtype).float()
            dq[:, t] = (torch.einsum("bhts,bshd->bthd", ds, k.float()) * ctx.scale).to(q.dtype)
            dk += torch.einsum("bhts,bthd->bshd", ds, q[:, t].float()) * ctx.scale
            dv += torch.einsum("bhts,bthd->bshd", p, grad32)
        return dq, dk.to(q.dtype), dv.to(q.dtype), None, None


def _exact(q, k, v, mask, scale, t):
    visible = mask(t)
    s, lse = _scores(q[:, t].double(), k.double(), visible, scale)
    return torch.einsum("bhts,bshd->bthd", _probabilities(s, lse, visible), v.double()), lse


def attention(q, k, v, mask, scale=None, inner=torch.float64):
    """(output, lse). `mask` is [T, S] or [B, Hkv, T, S], or what gives that for some queries."""
    group = q.shape[2] // k.shape[2]
    scale = q.shape[3]**-0.5 if scale is None else scale
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    given = mask if callable(mask) else lambda t: mask.to(q.device)[..., t, :]

    def visible(t):
        return _expand(given(t), group)

    if inner != torch.float64:
        return _Rounded.apply(q, k, v, visible, scale), None
    parts = [checkpoint(_exact, q, k, v, visible, scale, t, use_reentrant=False, preserve_rng_state=False)
             for t in torch.arange(q.shape[1], device=q.device).split(CHUNK)]
    return torch.cat([o for o, _ in parts], 1), torch.cat([lse for _, lse in parts], -1)


def compress(x, block, stride, phi="mean", parameters=(), inner=torch.float64):
    rows = max((x.shape[1] - block) // stride + 1, 0)
    y = x.to(inner)
    windows = [y[:, i * stride:i * stride + block] for i in range(rows)]
    u = torch.stack(windows, 1) if rows else y.new_zeros((x.shape[0], 0, block, *x.shape[2:]))
    if phi == "mean":
        return _rounded(u.mean(2), x, inner)
    weights = [p.to(inner) for p in parameters]
    positions = weights[{"linear": 1, "mlp": 2}[phi]:]
    if positions:
        u = u + positions[0].transpose(0, 1)
    u = u.transpose(2, 3).flatten(3)
    z = torch.einsum("bnhr,hre->bnhe", u, weights[0])
    if phi == "mlp":
        z = torch.einsum("bnhc,hce->bnhe", _rounded(torch.nn.functional.silu(z), x, inner).to(inner), weights[1])
    return _rounded(z, x, inner)


def _rounded(y, x, inner):
    return y if inner == torch.float64 else y.to(x.dtype)


def rotate(x, table, stride=1, inner=torch.float64):
    c, s = table[:x.shape[1] * stride:stride].to(inner).unbind(-1)
    c, s = c[None, :, None], s[None, :, None]
    a, b = x.to(inner).chunk(2, -1)
    return _rounded(torch.cat([c * a - s * b, c * b + s * a], -1), x, inner)


def native_sparse_attention(q, k_cmp, v_cmp, k_slc, v_slc, k_win, v_win, gates, indices, *, block, stride, select_block,
                            window, phi="mean", scale=None, key_parameters=(), value_parameters=(), rotary=None,
                            inner=torch.float64, queries=None):
    """The sum of the branches, for these indices. q and gates may be those of some `queries` alone."""
    length = k_slc.shape[1]

    def at(t):
        return t if queries is None else queries[t]

    k_cmp = compress(k_cmp, block, stride, phi, key_parameters, inner)
    v_cmp = compress(v_cmp, block, stride, phi, value_parameters, inner)
    if rotary is not None:
        q, k_slc, k_win = (rotate(x, rotary, inner=inner) for x in (q, k_slc, k_win))
        k_cmp = rotate(k_cmp, rotary, stride, inner)
    masks = [lambda t: compressed_mask(length, block, stride, at(t)),
             lambda t: selected_mask(indices, length, select_block, at(t)),
             lambda t: window_mask(length, window, at(t))]
    keys, values = (k_cmp, k_slc, k_win), (v_cmp, v_slc, v_win)
    branches = [attention(q, k, v, mask, scale, inner)[0] for k, v, mask in zip(keys, values, masks)]
    total = sum(g[..., None] * o.to(inner) for g, o in zip(gates.to(inner).unbind(-1), branches))
    return _rounded(total, q, inner)


def block_scores(q, k, lse, block, stride, select_block, scale=None):
    """[B, Hkv, T, blocks] in fp64, of compressed keys."""
    group, length = q.shape[2] // k.shape[2], q.shape[1]
    s = torch.einsum("bthd,bshd->bhts", q.double(), k.double().repeat_interleave(group, 2))
    s = s * (q.shape[3]**-0.5 if scale is None else scale)
    visible = compressed_mask(length, block, stride)
    p = torch.where(visible, (s - torch.where(lse.isinf(), 0, lse.double())[..., None]).exp(), 0)
    p = p.unflatten(1, (k.shape[2], group)).sum(2)
    i = torch.arange(k.shape[1])[:, None] * stride
    j = torch.arange(-(-length // select_block))[None] * select_block
    overlap = (torch.minimum(i + block, j + select_block) - torch.maximum(i, j)).clamp(min=0) / stride
    return p @ overlap.double()
