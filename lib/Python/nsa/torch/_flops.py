"""Floating-point operations of the operators, for torch.utils.flop_counter: dots of pairs of query and key that are visible,
2 for a product and its sum. Documents of a packed row count as one sequence: tensors' shapes do not say where they end.
"""

import re

import torch
from torch.utils.flop_counter import register_flop_formula

from nsa.torch import _operators  # noqa: F401  registers torch.ops.nsa

_ops = torch.ops.nsa


def _pairs(visibility, length, count):
    """Visible pairs of a head of one sequence; of the selected branch, where `count` blocks are selected."""
    kind, sizes = re.match(r"#nsa\.(\w+)", visibility)[1], [int(size) for size in re.findall(r"\d+", visibility)]
    if kind == "compressed":
        rows = max((length - sizes[0]) // sizes[1] + 1, 0)
        return rows * (length - sizes[0] + 1) - sizes[1] * rows * (rows - 1) // 2
    if kind == "selected":
        blocks = [min(sizes[0], length - begin) for begin in range(0, length, sizes[0])]
        return sum(rows * (min(count, i + 1) - 1) * sizes[0] + rows * (rows + 1) // 2 for i, rows in enumerate(blocks))
    window = min(sizes[0], length) if kind == "window" else length
    return window * (window + 1) // 2 + (length - window) * window


def _attend(q, v, visibility, count, of_keys, of_values):
    """`of_keys` dots of the width of keys and `of_values` of that of values for each pair."""
    batch, length, heads, width = q
    return 2 * batch * heads * _pairs(visibility, length, count) * (of_keys * width + of_values * v[3])


@register_flop_formula(_ops.attend)
def attend(q, k, v, indices, start, visibility, scale, out_shape=None):
    return _attend(q, v, visibility, indices and indices[3], 1, 1)


@register_flop_formula(_ops.attend_backward)
def attend_backward(grad, q, k, v, o, lse, indices, start, visibility, scale, out_shape=None):
    return _attend(q, v, visibility, indices and indices[3], 3, 2)


@register_flop_formula(_ops.compress)
def compress(x, weights, start, phi, block, stride, out_shape=None):
    batch, length, heads, width = x
    rows = max((length - block) // stride + 1, 0)
    inner = {"mean": 0, "linear": block * width, "mlp": (block + 1) * width}[phi]
    return 2 * batch * rows * heads * inner * width


@register_flop_formula(_ops.compress_backward)
def compress_backward(grad, *inputs, out_shape=None):
    return 2 * compress(*inputs)


@register_flop_formula(_ops.select)
def select(q, k, lse, start, block, stride, select_block, count, initial, local, scale, out_shape=None):
    return _attend(q, k, f"#nsa.compressed<block = {block}, stride = {stride}>", 0, 1, 0)


def _branches(inputs, of_keys, of_values):
    q, k, v, *_, keys, values, _, start, _, sizes, phi, _ = inputs
    block, stride, select_block, count, _, _, window = sizes
    visibilities = (f"#nsa.compressed<{block}, {stride}>", f"#nsa.selected<{select_block}>", f"#nsa.window<{window}>")
    return (sum(_attend(q, v, each, count, of_keys, of_values) for each in visibilities),
            sum(compress(x, None, start, phi, block, stride) for x in (k, v)))


@register_flop_formula([_ops.attention, _ops.attention_inference])
def attention(*inputs, out_shape=None):
    q, k, sizes = inputs[0], inputs[1], inputs[-3]
    is_given = inputs[-4] is not None
    return sum(_branches(inputs, 1, 1)) + (0 if is_given else select(q, k, None, None, *sizes[:6], None))


@register_flop_formula(_ops.attention_backward)
def attention_backward(grad, *inputs, out_shape=None):
    branches, compressions = _branches((*inputs[:13], *inputs[-3:]), 3, 2)
    return branches + 2 * compressions
