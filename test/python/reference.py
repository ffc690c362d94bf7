"""The operations in NumPy, written from their definitions alone.

Everything is computed in float64 on dense masks. `rounded` is the storage type
of activations: with "bf16" the probabilities and the results are rounded to it
where a kernel that accumulates in fp32 may round too, which tells how large an
error is no mistake.
"""

import numpy as np


def to_bf16(x):
    """The nearest bfloat16 values, ties to even, as float32."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32).reshape(np.shape(x))


def rounder(kind):
    if kind == "bf16":
        return lambda x: to_bf16(x).astype(np.float64)
    return lambda x: x


# --- Masks: [S, N], true where the query sees the key ------------------------


def window_mask(length, window):
    t, u = np.arange(length)[:, None], np.arange(length)[None, :]
    return (u <= t) & (u > t - window)


def compressed_rows(length, block, stride):
    return (length - block) // stride + 1 if length >= block else 0


def compressed_mask(length, block, stride):
    rows = compressed_rows(length, block, stride)
    t, i = np.arange(length)[:, None], np.arange(rows)[None, :]
    return i * stride + block - 1 <= t


def selected_mask(indices, length, select_block):
    """[B, Hkv, S, S] from indices [B, Hkv, S, n]."""
    blocks = np.arange(length) // select_block
    chosen = (indices[..., None] == blocks).any(axis=3)
    t, u = np.arange(length)[:, None], np.arange(length)[None, :]
    return chosen & (u <= t)


# --- Attention ---------------------------------------------------------------


def group(x, heads):
    """Repeats the heads of k or v, [B, N, Hkv, D] -> [B, Hq, N, D]."""
    return np.repeat(x, heads // x.shape[2], axis=2).transpose(0, 2, 1, 3)


def ungroup(x, kv_heads):
    """Sums over the heads of a group, [B, Hq, N, D] -> [B, N, Hkv, D]."""
    b, hq, n, d = x.shape
    return x.reshape(b, kv_heads, hq // kv_heads, n, d).sum(2).transpose(0, 2, 1, 3)


def broadcast_mask(mask, batch, heads):
    if mask.ndim == 2:
        return np.broadcast_to(mask, (batch, heads) + mask.shape)
    return np.repeat(mask, heads // mask.shape[1], axis=1)


def scores(q, k, scale):
    return np.einsum("bhtd,bhud->bhtu", q.transpose(0, 2, 1, 3), group(k, q.shape[2])) * scale


def log_sum_exp(s, mask):
    if s.shape[-1] == 0:
        return np.full(s.shape[:-1], -np.inf)
    masked = np.where(mask, s, -np.inf)
    top = masked.max(-1)
    safe = np.where(np.isfinite(top), top, 0.0)
    total = np.where(mask, np.exp(masked - safe[..., None]), 0.0).sum(-1)
    with np.errstate(divide="ignore"):
        return safe + np.log(total)


def probabilities(q, k, mask, scale, lse=None):
    heads = q.shape[2]
    mask = broadcast_mask(mask, q.shape[0], heads)
    s = scores(q, k, scale)
    if lse is None:
        lse = log_sum_exp(s, mask)
    finite = np.where(np.isfinite(lse), lse, 0.0)
    return np.where(mask, np.exp(np.where(mask, s - finite[..., None], 0.0)), 0.0), lse


def attention(q, k, v, mask, scale=None, kind="f32", late=False):
    """`late`: P is rounded before it is divided by its sum, as online softmax
    does, not after."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    scale = 1 / np.sqrt(q.shape[3]) if scale is None else scale
    p, lse = probabilities(q, k, mask, scale)
    r = rounder(kind)
    top = p.max(-1, keepdims=True) if late and p.size else np.ones(p.shape[:-1] + (1,))
    top = np.where(top > 0, top, 1)
    o = np.einsum("bhtu,bhud->bthd", r(p / top) * top, group(v, q.shape[2]))
    return r(o), lse


def attention_backward(do, q, k, v, o, lse, mask, scale=None, kind="f32", late=False, gate=None):
    """`late`: the gradient of the scores is rounded after it is scaled. With `gate` [B, S, H], `do` is
    the gradient of its product with the output, and the product of gate and probability is rounded."""
    do, q, k, v, o, lse = (np.asarray(x, np.float64) for x in (do, q, k, v, o, lse))
    scale = 1 / np.sqrt(q.shape[3]) if scale is None else scale
    heads, kv_heads = q.shape[2], k.shape[2]
    r = rounder(kind)
    p, _ = probabilities(q, k, mask, scale, lse)
    do_h, q_h = do.transpose(0, 2, 1, 3), q.transpose(0, 2, 1, 3)
    dp = np.einsum("bhtd,bhud->bhtu", do_h, group(v, heads))
    delta = (do * o).sum(-1).transpose(0, 2, 1)
    y = np.ones_like(delta) if gate is None else np.asarray(gate, np.float64).transpose(0, 2, 1)
    ds = p * y[..., None] * (dp - delta[..., None])
    ds = r(ds * scale) if late else scale * r(ds)
    dq = np.einsum("bhtu,bhud->bthd", ds, group(k, heads))
    dk = ungroup(np.einsum("bhtu,bhtd->bhud", ds, q_h), kv_heads)
    dv = ungroup(np.einsum("bhtu,bhtd->bhud", r(p * y[..., None]), do_h), kv_heads)
    return r(dq), r(dk), r(dv)


# --- Compression -------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def blocks(x, block, stride, positions=None):
    """Each block's rows, concatenated: [B, Nc, H, block * D]."""
    b, length, h, d = x.shape
    rows = compressed_rows(length, block, stride)
    parts = [x[:, i * stride : i * stride + block].transpose(0, 2, 1, 3) for i in range(rows)]
    u = np.stack(parts, 1) if rows else np.zeros((b, 0, h, block, d))
    if positions is not None:
        u = u + positions
    return u.reshape(b, rows, h, block * d)


def compress(x, block, stride, weight=None, output_weight=None, positions=None, kind="f32"):
    x, r = np.asarray(x, np.float64), rounder(kind)
    u = blocks(x, block, stride, positions)
    if weight is None:
        return r(u.reshape(*u.shape[:3], block, x.shape[3]).mean(3))
    z = np.einsum("bihr,hre->bihe", u, weight)
    if output_weight is None:
        return r(z)
    return r(np.einsum("bihc,hce->bihe", r(z * sigmoid(z)), output_weight))


def compress_backward(dy, x, block, stride, weight=None, output_weight=None, positions=None, kind="f32"):
    """The gradients of x and of the parameters that are given, in their order."""
    dy, x, r = np.asarray(dy, np.float64), np.asarray(x, np.float64), rounder(kind)
    b, length, h, d = x.shape
    gradients = []
    u = blocks(x, block, stride, positions)
    if weight is None:
        du = np.repeat(dy[:, :, :, None] / block, block, axis=3)
    else:
        dz = dy
        if output_weight is not None:
            z = np.einsum("bihr,hre->bihe", u, weight)
            s = sigmoid(z)
            gradients.append(np.einsum("bihc,bihe->hce", r(z * s), dy))
            dz = r(np.einsum("bihe,hce->bihc", dy, output_weight) * s * (1 + z * (1 - s)))
        gradients.insert(0, np.einsum("bihr,bihe->hre", u, dz))
        du = np.einsum("bihe,hre->bihr", dz, weight).reshape(b, dy.shape[1], h, block, d)
        if positions is not None:
            gradients.append(du.sum((0, 1)))
    dx = np.zeros_like(x)
    for i in range(dy.shape[1]):
        dx[:, i * stride : i * stride + block] += du[:, i].transpose(0, 2, 1, 3)
    return (r(dx), *gradients)


# --- Selection ---------------------------------------------------------------


def overlap(i, j, block, stride, select_block):
    low = max(i * stride, j * select_block)
    high = min(i * stride + block, (j + 1) * select_block)
    return max(0, high - low) / stride


def block_scores(q, k, lse, block, stride, select_block, scale=None):
    """score[b, group, t, j], -inf where j is no candidate of t."""
    q, k, lse = (np.asarray(x, np.float64) for x in (q, k, lse))
    scale = 1 / np.sqrt(q.shape[3]) if scale is None else scale
    b, length, hq, _ = q.shape
    hkv = k.shape[2]
    p, _ = probabilities(q, k, compressed_mask(length, block, stride), scale, lse)
    p = p.reshape(b, hkv, hq // hkv, length, -1).sum(2)
    count = -(-length // select_block)
    weights = np.array([[overlap(i, j, block, stride, select_block) for j in range(count)]
                        for i in range(k.shape[1])]).reshape(k.shape[1], count)
    score = p @ weights
    t, j = np.arange(length)[:, None], np.arange(count)[None, :]
    return np.where(j <= t // select_block, score, -np.inf)


def forced_blocks(last, count, initial, local):
    """The blocks taken in any case, at most `count`, in order of entry."""
    order = [last] + list(range(initial)) + [last - n for n in range(1, local)]
    forced = []
    for j in order:
        if 0 <= j <= last and j not in forced and len(forced) < count:
            forced.append(j)
    return forced


def select(score, select_block, count, initial=1, local=2):
    """The indices, and for each row how far the choice is from a tie."""
    b, h, length, _ = score.shape
    indices = np.full((b, h, length, count), -1, np.int32)
    gap = np.full((b, h, length), np.inf)
    for place in np.ndindex(b, h, length):
        last = place[2] // select_block
        chosen = forced_blocks(last, count, initial, local)
        rest = [j for j in range(last + 1) if j not in chosen]
        rest.sort(key=lambda j: (-score[place][j], j))
        free = count - len(chosen)
        if 0 < free < len(rest):
            gap[place] = score[place][rest[free - 1]] - score[place][rest[free]]
        chosen = sorted(chosen + rest[:free])
        indices[place][: len(chosen)] = chosen
    return indices, gap
