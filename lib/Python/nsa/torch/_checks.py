"""Checks of the tensors of a call: one sentence with both numbers."""

import re

import torch

from nsa._arguments import shown
from nsa._runtime import InputError
from nsa.torch._sources import ELEMENTS, compressed_rows

#: Sizes are integers of 32 bits in programs.
_MOST = (1 << 31) - 1

#: Widths of heads that a GPU's kernels are made for.
GPU_WIDTHS = (16, *range(32, 257, 8))


def _shape(tensor):
    return tuple(tensor.shape)


def check_tensors(names, tensors):
    for name, tensor in zip(names, tensors):
        if not isinstance(tensor, torch.Tensor):
            raise InputError(f"{name} is a {type(tensor).__name__}, expected a tensor")
        if tensor.layout != torch.strided:
            raise InputError(f"{name} has the layout {tensor.layout}, expected a dense tensor")
        if tensor.device.type not in ("cpu", "cuda"):
            raise InputError(f"{name} lies on {tensor.device}, expected the CPU or a CUDA GPU")


def check_scale(scale):
    is_number = isinstance(scale, (int, float)) and not isinstance(scale, bool) and abs(scale) < 1e300
    if scale is not None and not is_number:
        raise InputError(f"scale is {shown(scale)}, expected a finite number or None")


def _check_shape(name, tensor, expected):
    if _shape(tensor) != tuple(expected):
        raise InputError(f"{name} has shape {_shape(tensor)}, expected {tuple(expected)}")


def _check_like(name, tensor, q):
    if tensor.dtype != q.dtype:
        raise InputError(f"{name} is {tensor.dtype}, expected {q.dtype}, as q is")
    if tensor.device != q.device:
        raise InputError(f"{name} lies on {tensor.device}, expected {q.device}, as q does")


def _check_rank(name, tensor, form):
    if tensor.dim() != form.count(",") + 1:
        raise InputError(f"{name} has shape {_shape(tensor)}, expected {form}")


def _check_width(name, tensor):
    width = tensor.shape[-1]
    if tensor.device.type == "cuda" and width not in GPU_WIDTHS:
        known = ", ".join(map(str, GPU_WIDTHS))
        raise InputError(f"the heads of {name} have width {width}, which is not supported on GPUs; these are: {known}")
    if width < 1:
        raise InputError(f"the heads of {name} have width 0, expected at least 1")


def _check_query(q):
    _check_rank("q", q, "[B, T, Hq, Dk]")
    if q.dtype not in ELEMENTS:
        raise InputError(f"q is {q.dtype}, expected one of {', '.join(map(str, ELEMENTS))}")
    _check_width("q", q)


def _check_heads(q, k, v, rows, suffix=""):
    """Keys and values for queries; `rows` of each sequence."""
    names = "k" + suffix, "v" + suffix
    for name, tensor, form in ((names[0], k, "[B, T, Hkv, Dk]"), (names[1], v, "[B, T, Hkv, Dv]")):
        _check_rank(name, tensor, form)
        _check_like(name, tensor, q)
    groups = k.shape[2]
    _check_shape(names[0], k, (q.shape[0], rows, groups, q.shape[3]))
    _check_shape(names[1], v, (q.shape[0], rows, groups, v.shape[3]))
    _check_width(names[1], v)
    if groups < 1 or q.shape[2] % groups:
        raise InputError(f"q has {q.shape[2]} heads, expected a multiple of the {groups} of {names[0]}")
    if q.shape[2] // groups > 32:
        raise InputError(f"q has {q.shape[2]} heads and {names[0]} has {groups}, which makes groups of "
                         f"{q.shape[2] // groups}; expected at most 32")


def check_sizes(block, stride, select_block=None):
    """The divisibility of the paper: stride | block, stride | select_block, block <= select_block."""
    for name, value in (("block", block), ("stride", stride)):
        check_at_least(name, value, 1)
    if block % stride:
        raise InputError(f"block is {block}, expected a multiple of stride, {stride}")
    if select_block is None:
        return
    check_at_least("select_block", select_block, 1)
    if select_block % stride or select_block < block:
        raise InputError(f"select_block is {select_block}, expected a multiple of stride, {stride}, that is at least "
                         f"block, {block}")


def check_phi(phi):
    if not isinstance(phi, str) or phi not in ("mean", "linear", "mlp"):
        raise InputError(f"phi is {shown(phi)}, expected one of mean, linear, mlp")


def check_rotary(rotary):
    if rotary is None:
        return
    check_tensors(["rotary"], [rotary])
    if rotary.requires_grad:
        raise InputError("rotary requires a gradient, which it does not have")


_SCALINGS = ("none", "linear", "ntk", "yarn", "llama3", "longrope")


def check_scaling(rope_dim=0, rope_scaling="none", rope_factor=1.0, rope_length=0, rope_divisors=""):
    """Of a rotary embedding, as in a configuration of nsa-train."""
    check_at_least("rope_dim", rope_dim, 0)
    check_at_least("rope_length", rope_length, 0)
    if rope_scaling not in _SCALINGS:
        raise InputError(f"rope_scaling is {shown(rope_scaling)}, expected one of {', '.join(_SCALINGS)}")
    if isinstance(rope_factor, bool) or not isinstance(rope_factor, (int, float)) or not rope_factor >= 1:
        raise InputError(f"rope_factor is {shown(rope_factor)}, expected a number of at least 1")
    if rope_scaling in ("yarn", "llama3", "longrope") and rope_length < 2:
        raise InputError(f"rope_length is {rope_length}, expected the tokens of a sequence of training, for {rope_scaling}")
    if rope_scaling == "longrope" and not rope_divisors:
        raise InputError("rope_divisors is empty, expected a number for each pair of channels, for longrope")


def float_gates(gates):
    """As kernels take them."""
    if not gates.is_floating_point():
        raise InputError(f"gates are {gates.dtype}, expected a floating-point type")
    return gates if gates.dtype == torch.float32 else gates.float()


def check_at_least(name, value, least):
    if not isinstance(value, (int, torch.SymInt)) or isinstance(value, bool):
        raise InputError(f"{name} is {shown(value)}, expected an integer")
    if value < least:
        raise InputError(f"{name} is {value}, expected at least {least}")
    if isinstance(value, int) and value > _MOST:
        raise InputError(f"{name} is {value}, expected at most {_MOST}")


def check_counts(count, initial, local):
    """Blocks that a query selects."""
    for name, value, least in (("count", count, 1), ("initial", initial, 0), ("local", local, 0)):
        check_at_least(name, value, least)


def _rows(visibility, length, is_packed):
    """Keys of a row of this length."""
    blocks = re.match(r"#nsa\.compressed<block = (\d+), stride = (\d+)>", visibility)
    return compressed_rows(length, *map(int, blocks.groups()), is_packed) if blocks else length


def _check_start(start, x):
    if start is not None:
        _check_shape("start", start, x.shape[:2])


def check_attend(q, k, v, indices, start, visibility):
    _check_query(q)
    _check_heads(q, k, v, _rows(visibility, q.shape[1], start is not None))
    _check_start(start, q)
    if indices is not None:
        _check_indices(indices, q, k.shape[2])


def _check_indices(indices, q, groups, name="indices"):
    _check_rank(name, indices, "[B, Hkv, T, n]")
    if indices.dtype != torch.int32:
        raise InputError(f"{name} has the type {indices.dtype}, expected torch.int32")
    if indices.device != q.device:
        raise InputError(f"{name} has the device {indices.device}, expected {q.device}, as q has")
    _check_shape(name, indices, (q.shape[0], groups, q.shape[1], indices.shape[3]))
    check_at_least("the number of indices of a query", indices.shape[3], 1)


def check_select(q, k, lse, start, block, stride, select_block, count, initial, local):
    _check_query(q)
    check_sizes(block, stride, select_block)
    check_counts(count, initial, local)
    _check_start(start, q)
    _check_heads(q, k, k, compressed_rows(q.shape[1], block, stride, start is not None))
    _check_shape("lse", lse, (q.shape[0], q.shape[2], q.shape[1]))
    if lse.dtype != torch.float32:
        raise InputError(f"lse is {lse.dtype}, expected torch.float32")


def check_compress(x, parameters, phi, block, stride, start=None, name="x"):
    _check_rank(name, x, "[B, T, Hkv, D]")
    _check_start(start, x)
    if x.dtype not in ELEMENTS:
        raise InputError(f"{name} is {x.dtype}, expected one of {', '.join(map(str, ELEMENTS))}")
    _check_width(name, x)
    check_sizes(block, stride)
    check_phi(phi)
    heads, width = x.shape[2:]
    shapes = {"mean": [], "linear": [(heads, block * width, width)],
              "mlp": [(heads, block * width, width), (heads, width, width)]}
    wanted = shapes[phi] + ([(heads, block, width)] if shapes[phi] else [])
    # Positions may be left out.
    if not len(shapes[phi]) <= len(parameters) <= len(wanted):
        forms = ", ".join(map(str, wanted)) or "none"
        raise InputError(f"phi '{phi}' of {name} has {len(parameters)} parameters, expected these, the last one "
                         f"if wanted: {forms}" if wanted else
                         f"phi 'mean' of {name} has {len(parameters)} parameters, expected none")
    for i, (parameter, shape) in enumerate(zip(parameters, wanted)):
        _check_shape(f"parameter {i} of phi of {name}", parameter, shape)
        if parameter.dtype != x.dtype or parameter.device != x.device:
            raise InputError(f"parameter {i} of phi of {name} is {parameter.dtype} on {parameter.device}, expected "
                             f"{x.dtype} on {x.device}")


def check_attention(tensors, key_parameters, value_parameters, rotary, start, selection, sizes, phi):
    q, kc, vc, ks, vs, kw, vw, gates = tensors
    block, stride, select_block, count, initial, local, window = sizes
    _check_query(q)
    check_sizes(block, stride, select_block)
    check_counts(count, initial, local)
    check_at_least("window", window, 1)
    _check_start(start, q)
    for suffix, k, v in (("_cmp", kc, vc), ("_slc", ks, vs), ("_win", kw, vw)):
        _check_heads(q, k, v, q.shape[1], suffix)
        _check_shape("v" + suffix, v, vc.shape)
        _check_shape("k" + suffix, k, kc.shape)
    _check_shape("gates", gates, (*q.shape[:3], 3))
    float_gates(gates)
    if gates.device != q.device:
        raise InputError(f"gates lie on {gates.device}, expected {q.device}, as q does")
    check_compress(kc, key_parameters, phi, block, stride, name="k_cmp")
    check_compress(vc, value_parameters, phi, block, stride, name="v_cmp")
    if selection is not None:
        _check_indices(selection, q, kc.shape[2], "selection")
        _check_shape("selection", selection, (q.shape[0], kc.shape[2], q.shape[1], count))
    if rotary is not None:
        _check_shape("rotary", rotary, (q.shape[1], q.shape[3] // 2, 2))
        if q.shape[3] % 2:
            raise InputError(f"the heads of q have width {q.shape[3]}, expected a multiple of 2 for rotary embedding")
        if rotary.dtype != torch.float32:
            raise InputError(f"rotary is {rotary.dtype}, expected torch.float32")
