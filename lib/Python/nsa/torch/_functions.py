"""The functions of nsa.torch."""

import math

import torch

from nsa._arguments import real, shown, takes, truth, whole
from nsa._runtime import InputError
from nsa.torch import _autograd
from nsa.torch import _operators  # registers torch.ops.nsa
from nsa.torch._checks import (check_at_least, check_counts, check_phi, check_rotary, check_scale, check_scaling, check_sizes,
                               check_tensors)
from nsa.torch._packed import starts_of
from nsa.torch._transforms import is_plain

_INPUTS = ("q", "k_cmp", "v_cmp", "k_slc", "v_slc", "k_win", "v_win")


def _cast(names, *tensors):
    """Tensors in autocast's type, where that is on; other types are an error of the operator."""
    check_tensors(names, tensors)
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(tensor.to(dtype) for tensor in tensors)


def _cast_all(name, q, parameters):
    """The parameters of phi, as _cast has them."""
    if not isinstance(parameters, (list, tuple)):
        raise InputError(f"{name} is {shown(parameters)}, expected a list of tensors")
    return parameters and list(_cast(["q", *[f"{name}[{i}]" for i in range(len(parameters))]], q, *parameters)[1:])


def _attend(q, k, v, indices, visibility, scale, cu_seqlens):
    q, k, v = _cast("qkv", q, k, v)
    check_scale(scale)
    start = None if cu_seqlens is None else starts_of(cu_seqlens, q)
    attend = _autograd.attend if is_plain((q, k, v, indices, start)) else torch.ops.nsa.attend
    return attend(q, k, v, indices, start, visibility, scale)


def compress(x, *, block, stride, phi="mean", parameters=(), cu_seqlens=None):
    """One row for each block of `block` tokens, `stride` apart: phi of the paper (Eq. 7).

    x [B, T, Hkv, D] -> [B, N, Hkv, D] with N = max((T - block) // stride + 1, 0). No block is
    partial or padded. `parameters`, of x's type: none for phi "mean"; for "linear" the
    weight [Hkv, block * D, D]; for "mlp" that and the second weight [Hkv, D, D], with SiLU
    between them; for both, positions [Hkv, block, D] after them if wanted.

    With `cu_seqlens`, as attention takes it, there are T // stride rows: block i of a sequence that begins at
    token o is row o // stride + i, and rows that are no block are 0.
    """
    check_sizes(block, stride)
    check_phi(phi)
    [x], weights = _cast("x", x), _cast_all("parameters", x, parameters)
    start = None if cu_seqlens is None else starts_of(cu_seqlens, x)
    operators = _autograd if is_plain((x, *weights, start)) else torch.ops.nsa
    return operators.compress(x, weights, start, phi, block, stride)


def compressed_attention(q, k, v, *, block, stride, scale=None, cu_seqlens=None):
    """Attention to compressed keys and values [B, N, Hkv, D], which compress makes: (output, lse).

    Query t sees block i if all of its tokens are at t or before: i * stride + block - 1 <= t. A
    query that sees none has output 0 and lse -inf.
    """
    check_sizes(block, stride)
    return _attend(q, k, v, None, f"#nsa.compressed<block = {block}, stride = {stride}>", scale, cu_seqlens)


def select(q, k, lse, *, block, stride, select_block, count, initial=1, local=2, scale=None, cu_seqlens=None):
    """The blocks of `select_block` tokens that each query attends to: int32 [B, Hkv, T, count].

    `k` are compressed keys, `lse` is that of compressed_attention. With the visible compressed blocks i of query t,
    the heads h of a group and the tokens of a block [i] = [i stride, i stride + block), those of a selection block
    <j> = [j select_block, (j + 1) select_block) (Eqs. 9, 10):

        p[t, i] = sum over h of exp(scale q[t, h] . k[i] - lse[h, t])
        score[t, j] = sum over i of p[t, i] (number of tokens in both [i] and <j>) / stride

    The first `initial` blocks and the last `local` ones, that of the query included, are taken, then those of the
    highest score, ties to the lower j, until there are min(count, t // select_block + 1). Ascending, -1
    past the last; with `cu_seqlens` they count from the beginning of a query's sequence. There is no gradient.
    """
    check_tensors(("q", "k", "lse"), (q, k, lse))
    check_at_least("select_block", select_block, 1)
    check_sizes(block, stride, select_block)
    check_counts(count, initial, local)
    check_scale(scale)
    q, k = _cast("qk", q.detach(), k.detach())
    start = None if cu_seqlens is None else starts_of(cu_seqlens, q)
    select = _operators.select if is_plain((q, k, lse, start)) else torch.ops.nsa.select
    return select(q, k, lse.detach(), start, block, stride, select_block, count, initial, local, scale)


def selected_attention(q, k, v, indices, *, select_block, scale=None, cu_seqlens=None):
    """Attention to the tokens of blocks that `indices` name, up to the query's own: (output, lse).

    indices: int32 [B, Hkv, T, n], ascending, -1 past the last; of select, or any selector.
    Each query must have a block that it may see.
    """
    check_at_least("select_block", select_block, 1)
    check_tensors(["indices"], [indices])
    return _attend(q, k, v, indices, f"#nsa.selected<block = {select_block}>", scale, cu_seqlens)


def window_attention(q, k, v, *, window, scale=None, cu_seqlens=None):
    """Attention to the last `window` tokens, the query's own included."""
    check_at_least("window", window, 1)
    return _attend(q, k, v, None, f"#nsa.window<{window}>", scale, cu_seqlens)[0]


def causal_attention(q, k, v, *, scale=None, cu_seqlens=None):
    """Attention to all tokens up to the query's own."""
    return _attend(q, k, v, None, "#nsa.causal", scale, cu_seqlens)[0]


def attention(q, k_cmp, v_cmp, k_slc, v_slc, k_win, v_win, gates, *, block, stride, select_block, count, window,
              phi="mean", scale=None, key_parameters=(), value_parameters=(), initial=1, local=2, rotary=None,
              cu_seqlens=None, selection=None, return_selection=False):
    """Native Sparse Attention (arXiv 2502.11089, Eqs. 5-12): the gated sum of its three branches.

    q [B, T, Hq, Dk], k_* [B, T, Hkv, Dk], v_* [B, T, Hkv, Dv] of one type: float32, bfloat16 or
    float16; gates [B, T, Hq, 3] of any floating-point type, in the order compressed, selected,
    window. Returns [B, T, Hq, Dv]. k_cmp and v_cmp are raw: phi is applied here, with
    key_parameters and value_parameters as compress takes them. `scale` is 1 / sqrt(Dk) if it is
    not given. `rotary` is a table of cosines and sines, rotary_table(T, Dk): q, k_slc and k_win are then
    rotated by their position, and compressed keys by that of their first token.

    `cu_seqlens`, int32 [sequences + 1], packs sequences that do not see each other, one after another, in a
    batch of 1: 0, then where each ends, T at last. Positions, compressed blocks and selected blocks then count from
    the beginning of a sequence. It lies where q does, or on the CPU. Tokens that a query does not see change no bit of
    its output as long as they are finite.

    `return_selection` makes the result (output, blocks that were selected, int32 [B, Hkv, T, count], as select
    gives them). `selection`, such blocks, makes the queries attend to these, and none are scored: an update of a
    policy then sees what its rollout saw (docs/consistency.md).

    One tensor may be several arguments (k_cmp is k_slc): its gradient is the sum. Results
    repeat bit for bit. A second derivative is an error.
    """
    tensors = _cast(_INPUTS, q, k_cmp, v_cmp, k_slc, v_slc, k_win, v_win)
    check_tensors(["gates"], [gates])
    check_scale(scale)
    check_phi(phi)
    keys, values = _cast_all("key_parameters", q, key_parameters), _cast_all("value_parameters", q, value_parameters)
    check_rotary(rotary.detach() if isinstance(rotary, torch.Tensor) and not torch.is_grad_enabled() else rotary)
    sizes = [block, stride, select_block, count, initial, local, window]
    start = None if cu_seqlens is None else starts_of(cu_seqlens, q)
    if selection is not None:
        check_tensors(["selection"], [selection])
    inputs = [*tensors, gates, keys, values, rotary, start, selection]
    if truth("return_selection", return_selection):
        output, *_, found = torch.ops.nsa.attention(*inputs, sizes, phi, scale)
        return output, found if selection is None else selection
    if is_plain((*tensors, gates, *keys, *values, rotary, start, selection)) and all(type(size) is int for size in sizes):
        return _autograd.attention([*tensors, gates], *inputs[8:], sizes, phi, scale)
    check_at_least("select_block", select_block, 1)
    check_sizes(block, stride, select_block)
    check_counts(count, initial, local)
    check_at_least("window", window, 1)
    return torch.ops.nsa.attention_inference(*inputs, sizes, phi, scale)


@takes(length=whole(0, 1 << 31), width=whole(2, 1 << 20), base=real("a positive number", lambda value: value > 0))
def rotary_table(length, width, base=10000.0, device=None, **scaling):
    """Cosines and sines [length, width / 2, 2] of position * base^(-2 i / width), for attention's `rotary`.

    `scaling`: rope_dim, rope_scaling, rope_factor, rope_length and rope_divisors are those of a configuration of
    nsa-train (docs/configuration.md), and the same angles come of them.
    """
    try:
        device = None if device is None else torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise InputError(f"device is {shown(device)}, expected a device of PyTorch") from error
    check_scaling(**scaling)
    return make_rotary_table(length, width, base, device, **scaling)


def make_rotary_table(length, width, base, device, rope_dim=0, rope_scaling="none", rope_factor=1.0, rope_length=0,
                      rope_divisors=""):
    """rotary_table of arguments that are right. Where PyTorch compiles it, it is computed on the device at every call."""
    where = {"dtype": torch.float64, "device": device if torch.compiler.is_compiling() else "cpu"}
    pairs, rotated = width // 2, rope_dim // 2 or width // 2
    if rope_scaling == "ntk":
        base *= rope_factor ** (rotated / (rotated - 1))
    plain = base ** (-torch.arange(rotated, **where) / rotated)
    kept, amplitude = 1.0, 1.0
    if rope_scaling == "linear":
        kept = 0.0
    elif rope_scaling in ("yarn", "llama3"):
        turns = rope_length * plain / (2 * math.pi)
        kept = ((turns - 1) / (31 if rope_scaling == "yarn" else 3)).clamp(0, 1)
    frequencies = plain * (kept + (1 - kept) / rope_factor)
    if rope_scaling == "yarn":
        amplitude = 1 + 0.1 * math.log(rope_factor)
    elif rope_scaling == "longrope":
        frequencies = plain / torch.tensor([float(number) for number in rope_divisors.split(",")], **where)
        amplitude = math.sqrt(1 + math.log(rope_factor) / math.log(rope_length))
    angles = torch.outer(torch.arange(length, **where), frequencies)
    table = amplitude * torch.stack([angles.cos(), angles.sin()], -1)
    if rotated < pairs:
        rest = torch.tensor([1.0, 0.0], **where).expand(length, pairs - rotated, 2)
        table = torch.cat([table, rest], 1)
    return table.to(torch.float32).to(device)
