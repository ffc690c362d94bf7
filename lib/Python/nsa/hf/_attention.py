"""Dense attention of models of transformers by the kernels of nsa.torch."""

from typing import NamedTuple

from nsa._optional import require
from nsa._runtime import InputError

# Keywords of attention functions of transformers that change what is computed.
_CHANGES = ("softcap", "s_aux", "indices", "block_indices", "position_bias", "head_mask")


class _Mask(NamedTuple):
    """What stands for a layer's mask: the last tokens that it sees, or None for all; whether it is causal but for that."""

    window: int | None
    is_plain: bool


def _refuse(what):
    raise InputError(f'attn_implementation="nsa" does not support {what}; "eager" does')


def _make_mask(q_length, kv_length, attention_mask=None, local_size=None, allow_is_causal_skip=True, use_vmap=False, **_):
    if attention_mask is not None and not attention_mask.all():
        _refuse("padding (attention_mask leaves tokens out)")
    if use_vmap:
        _refuse("masks that a function adds to")
    if not allow_is_causal_skip and q_length != kv_length:
        _refuse("a static cache")
    return _Mask(local_size, allow_is_causal_skip)


def _attend(module, query, key, value, attention_mask, dropout=0.0, scaling=None, sliding_window=None, is_causal=None,
            cu_seq_lens_q=None, output_attentions=False, **options):
    """Of [B, H, T, D], as transformers calls it; [B, T, H, D] and no weights."""
    import nsa.torch
    import torch

    if not isinstance(attention_mask, _Mask):
        _refuse("a mask of the model's or user's own")
    for name in _CHANGES:
        if options.get(name) is not None:
            _refuse(name)
    if dropout:
        _refuse(f"dropout ({dropout})")
    if output_attentions:
        _refuse("output_attentions")
    if not (getattr(module, "is_causal", True) if is_causal is None else is_causal):
        _refuse("attention that is not causal")
    window = attention_mask.window
    if window != sliding_window:
        _refuse(f"a mask of {window} tokens in a layer with sliding_window {sliding_window}")
    if not attention_mask.is_plain and cu_seq_lens_q is None:
        _refuse("several sequences in a row without cu_seq_lens_q "
                "(DataCollatorWithFlattening(return_flash_attn_kwargs=True))")
    tokens, keys = query.shape[2], key.shape[2]
    if tokens == 1 < keys:
        # A token that is generated sees what the cache holds; a program would be compiled for each length.
        key, value = (each[:, :, -(window or keys):] for each in (key, value))
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(query, key, value, scale=scaling, enable_gqa=True).transpose(1, 2), None
    if tokens != keys:
        _refuse(f"{tokens} tokens at once for a cache of {keys - tokens}")
    settings = {"scale": scaling, "cu_seqlens": cu_seq_lens_q}
    query, key, value = (each.transpose(1, 2) for each in (query, key, value))
    if window is None:
        return nsa.torch.causal_attention(query, key, value, **settings), None
    return nsa.torch.window_attention(query, key, value, window=window, **settings), None


def register_attention():
    """Makes `attn_implementation="nsa"` known to transformers: causal attention and sliding windows by nsa.torch.

    See docs/hugging-face.md. Masks, dropout and what else kernels have not are an InputError of the call.
    """
    library = require("transformers", "register_attention")
    library.AttentionInterface.register("nsa", _attend)
    library.AttentionMaskInterface.register("nsa", _make_mask)
