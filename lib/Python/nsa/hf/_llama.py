"""Dense models of the Llama type: their configuration and their weights as those of nsa-train."""

import re

import numpy

from nsa._runtime import InputError

# What these compute is what a dense model of nsa-train does.
_TYPES = ("llama", "mistral", "qwen3")

# Sequences of training unless told otherwise.
_SEQ_LEN = 4096

_NAMES = {
    "model.embed_tokens.weight": "embedding.weight",
    "model.norm.weight": "norm.weight",
    "lm_head.weight": "head.weight",
}
_LAYER_NAMES = {
    "input_layernorm.weight": "attention.norm.weight",
    "self_attn.q_proj.weight": "attention.query.weight",
    "self_attn.k_proj.weight": "attention.key.weight",
    "self_attn.v_proj.weight": "attention.value.weight",
    "self_attn.o_proj.weight": "attention.output.weight",
    "self_attn.q_norm.weight": "attention.query_norm.weight",
    "self_attn.k_norm.weight": "attention.key_norm.weight",
    "post_attention_layernorm.weight": "mlp.norm.weight",
    "mlp.gate_proj.weight": "mlp.gate.weight",
    "mlp.up_proj.weight": "mlp.up.weight",
    "mlp.down_proj.weight": "mlp.down.weight",
}

# Gates of a sparse model that begins as a dense one: nothing but its own window and blocks where those are all tokens.
_COMPRESSED_BIAS = -4.0


# Keys of the configuration that follow from the weights.
_OPEN = {"model.rope_base", "model.rope_scaling", "model.rope_factor", "model.rope_length"}
_FIXED = {"nsa.phi", "nsa.phi_pos", "nsa.shared_kv"}


def check_settings(settings):
    """Refuses settings of other parameters than there are."""
    for setting in settings:
        key = setting.partition("=")[0].strip()
        if key in _FIXED or (key.startswith("model.") and key not in _OPEN):
            raise InputError(f"{key} follows from the weights and cannot be set; model keys that can are "
                             f"{', '.join(sorted(_OPEN))}")


def _need(config, path, key, expected, default):
    found = config.get(key, default)
    if found not in expected:
        wanted = " or ".join(str(value) for value in expected)
        raise InputError(f"{key} in '{path}' is {found}, which this project's models have not; expected {wanted}")


def _number(config, path, key, default=None):
    found = config.get(key)
    found = default if found is None else found
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise InputError(f"{key} in '{path}' is {found}, expected a number")
    return found


def _rope(config, path):
    """(base, settings of the scaling)"""
    given = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    kind = given.get("rope_type", given.get("type", "default"))
    base = given.get("rope_theta", config.get("rope_theta", 10000.0))
    if kind == "default":
        return float(base), {}
    if kind == "linear":
        return float(base), {"rope_scaling": "linear", "rope_factor": float(_number(given, path, "factor"))}
    raise InputError(
        f"rope_type in '{path}' is {kind}, which this project's models have not; expected default or linear")


def _heads(config, path):
    """(query heads, key and value heads, width of a head)"""
    heads = _number(config, path, "num_attention_heads")
    return (heads, _number(config, path, "num_key_value_heads", heads),
            _number(config, path, "head_dim", _number(config, path, "hidden_size") // heads))


def read_config(config, path, attention, seq_len):
    """The configuration of nsa-train, as {section: {key: value}}."""
    kind = config.get("model_type")
    if kind not in _TYPES:
        raise InputError(f"model_type in '{path}' is {kind}, expected nsa, {', '.join(_TYPES)}")
    for key, expected, default in (("hidden_act", ("silu",), "silu"), ("attention_bias", (False, None), False),
                                   ("mlp_bias", (False, None), False), ("partial_rotary_factor", (1, None), 1)):
        _need(config, path, key, expected, default)
    if kind != "qwen3" or config.get("use_sliding_window"):
        _need(config, path, "sliding_window", (None,), None)
    heads, groups, width = _heads(config, path)
    base, scaling = _rope(config, path)
    half = str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch.") in ("bfloat16", "float16")
    longest = _number(config, path, "max_position_embeddings", _SEQ_LEN)
    return {
        "model": {
            "dim": _number(config, path, "hidden_size"),
            "n_layers": _number(config, path, "num_hidden_layers"),
            "n_heads": heads,
            "n_kv_groups": groups,
            "d_k": width,
            "d_v": width,
            "mlp": "swiglu",
            "mlp_dim": _number(config, path, "intermediate_size"),
            "vocab_size": _number(config, path, "vocab_size"),
            "rope_base": base,
            **scaling, "norm_eps": _number(config, path, "rms_norm_eps", 1e-6),
            "init_std": _number(config, path, "initializer_range", 0.02),
            "attention": attention,
            "tied_embeddings": bool(config.get("tie_word_embeddings", False)),
            "qk_norm": kind == "qwen3"
        },
        "nsa": {
            "shared_kv": True
        },
        "data": {
            "tokenizer": "shards"
        },
        "runtime": {
            "precision": "bf16" if half else "fp32"
        },
        "train": {
            "seq_len": seq_len or min(longest, _SEQ_LEN),
            "batch_size": 1,
            "micro_batch": 1
        },
    }


def _rename(name, path):
    layer = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", name)
    if layer and layer[2] in _LAYER_NAMES:
        return f"layers.{layer[1]}.{_LAYER_NAMES[layer[2]]}"
    if name in _NAMES:
        return _NAMES[name]
    raise InputError(f"'{path}' has the parameter '{name}', which this project's models have not")


def _halve(weight, width):
    """Rows of heads whose pairs are channels 2 i and 2 i + 1, as those whose pairs are i and i + width / 2."""
    heads = weight.reshape(-1, width // 2, 2, *weight.shape[1:])
    return numpy.ascontiguousarray(heads.swapaxes(1, 2)).reshape(weight.shape)


def read_weights(config, path, files, rotary):
    """{name: array} in the names of nsa-train."""
    _, _, width = _heads(config, path)
    tensors = {}
    for name, file in files.items():
        if name.endswith("rotary_emb.inv_freq") or (name == "lm_head.weight" and config.get("tie_word_embeddings")):
            continue
        own = _rename(name, file.path)
        tensors[own] = file.read(name)
        if rotary == "pairs" and own.endswith(("query.weight", "key.weight", "query_norm.weight", "key_norm.weight")):
            tensors[own] = _halve(tensors[own], width)
    return tensors


def add_gates(tensors, config, random):
    """Gates of the three branches for each layer.

    Those of the selected branch and of the window are one half at first, that of the compressed
    branch is small: up to as many tokens as the window and the selected blocks have, the model is
    nearly the dense one.
    """
    heads = config["num_attention_heads"]
    bias = numpy.tile(numpy.array([_COMPRESSED_BIAS, 0, 0], numpy.float32), heads)
    std = config.get("initializer_range", 0.02)
    for layer in range(config["num_hidden_layers"]):
        weight = random.standard_normal((3 * heads, config["hidden_size"]), numpy.float32) * numpy.float32(std)
        tensors[f"layers.{layer}.attention.gate.weight"] = weight
        tensors[f"layers.{layer}.attention.gate.bias"] = bias
