"""Native Sparse Attention as operators of PyTorch.

    import torch, nsa.torch as nsa

    layer = nsa.NativeSparseAttention(dim=768, heads=12, kv_heads=2).cuda().bfloat16()
    y = layer(x)                                            # x [B, T, dim]
    o = nsa.attention(q, k_cmp, v_cmp, k_slc, v_slc, k_win, v_win, gates,
                      block=32, stride=16, select_block=64, count=16, window=512)

Tensors are on the CPU or a CUDA GPU. Operators are differentiable, may be traced by
torch.compile and recorded in CUDA graphs, take memory from PyTorch's allocator and run on
its current stream. They are compiled at the first call of a signature and kept in the cache
of nsa.compile. Errors are those of nsa: a wrong argument is an InputError, a ValueError.
"""

import torch as _torch

if tuple(int(part) for part in _torch.__version__.split(".")[:2]) < (2, 9):
    raise ImportError(f"nsa.torch needs PyTorch 2.9 or newer, found {_torch.__version__}")

from nsa.torch import _flops  # noqa: E402, F401  for torch.utils.flop_counter
from nsa.torch._functions import (attention, causal_attention, compress, compressed_attention,  # noqa: E402
                                  rotary_table, select, selected_attention, window_attention)
from nsa.torch._kernels import set_dynamic_shapes  # noqa: E402
from nsa.torch._layer import NativeSparseAttention, load_checkpoint, save_parameters  # noqa: E402

__all__ = ["NativeSparseAttention", "attention", "causal_attention", "compress", "compressed_attention",
           "load_checkpoint", "rotary_table", "save_parameters", "select", "selected_attention", "set_dynamic_shapes",
           "window_attention"]
