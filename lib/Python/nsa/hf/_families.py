"""Dense models of transformers: their configuration and their weights as those of nsa-train."""

import math

import numpy

from nsa._runtime import InputError
from nsa.hf._keys import Keys, is_number
from nsa.hf._parameters import layer_kinds

# Sequences of training unless told otherwise.
_SEQ_LEN = 4096

# Keys that say nothing of what a model computes when it does not train.
_IGNORED = {
    "architectures", "attention_dropout", "auto_map", "bos_token_id", "cache_implementation",
    "chunk_size_feed_forward", "embd_pdrop", "eos_token_id", "finetuning_task", "id2label", "is_decoder",
    "is_encoder_decoder", "is_llama_config", "label2id", "model_type", "output_attentions", "output_hidden_states",
    "pad_token_id", "prefix", "pretraining_tp", "problem_type", "resid_pdrop", "return_dict", "sep_token_id",
    "task_specific_params", "tokenizer_class", "torchscript", "transformers.js_config", "transformers_version",
    "use_cache"
}

_OUTER = {"embed_tokens": "embedding", "norm": "norm"}
_MLP = {"mlp.gate_proj": "mlp.gate", "mlp.up_proj": "mlp.up", "mlp.down_proj": "mlp.down"}
_LAYER = {
    "input_layernorm": "attention.norm",
    "self_attn.q_proj": "attention.query",
    "self_attn.k_proj": "attention.key",
    "self_attn.v_proj": "attention.value",
    "self_attn.o_proj": "attention.output",
    "post_attention_layernorm": "mlp.norm",
    **_MLP
}
_HEAD_NORMS = {"self_attn.q_norm": "attention.query_norm", "self_attn.k_norm": "attention.key_norm"}
_JOINED = {
    "input_layernorm": "attention.norm",
    "self_attn.qkv_proj": ["attention.query", "attention.key", "attention.value"],
    "self_attn.o_proj": "attention.output",
    "post_attention_layernorm": "mlp.norm",
    "mlp.gate_up_proj": ["mlp.gate", "mlp.up"],
    "mlp.down_proj": "mlp.down"
}
_NORMS_AFTER = {"post_attention_layernorm": "attention.output_norm", "post_feedforward_layernorm": "mlp.output_norm"}


# Names of one thing.
_LONG = ("longrope", "su", "yarn")


class Family:
    """What models of one model_type have.

    `names` are those of a layer: that of transformers, and the own one, or several that are joined there, row by row.
    `read` reads what others do not have, given Keys and the number of layers, and returns settings of the section
    `model`, with `windows`, the width of the window of each layer or None, and `rotated`, whether it is.
    """

    def __init__(self, read, names=_LAYER, theta=10000.0, eps=1e-6, is_tied=False, rope=("default", "linear", "llama3"),
                 activation="silu", is_partial=False, has_window_rope=False):
        self.read, self.names, self.theta, self.eps, self.is_tied = read, names, theta, eps, is_tied
        #: Types of the rotary embedding, and whether it may be of a part of the channels.
        self.rope, self.is_partial = rope, is_partial
        #: Whether layers with windows have one of their own.
        self.has_window_rope = has_window_rope
        self.activation = activation


def _window(keys, default=None):
    """The width of windows; null is none, whatever the default is."""
    return keys.whole("sliding_window", 1, 2**31 - 1, None if "sliding_window" in keys else default, or_null=True)


def _layer_types(keys, count):
    """Whether each layer has a window, as layer_types says; None if it does not."""
    known = ("full_attention", "sliding_attention")
    types = keys.list_of("layer_types", count, lambda value: isinstance(value, str) and value in known, " or ".join(known),
                         None)
    return None if types is None else [value == known[1] for value in types]


def _windows(keys, window, count, has_window):
    """The width of each layer's window. `has_window` says which layers have one where layer_types does not."""
    given = _layer_types(keys, count)
    chosen = has_window if given is None else given
    if window is None and given is not None and any(given):
        keys.refuse("layer_types", "no sliding_attention where sliding_window is null or not used")
    return [window if is_chosen else None for is_chosen in chosen]


def _no_biases(keys, *names):
    for name in names:
        keys.one_of(name, (False, None), False)


def _read_llama(keys, count):
    _no_biases(keys, "attention_bias", "mlp_bias")
    return {}


def _read_mistral(keys, count):
    return {"windows": [_window(keys, 4096)] * count}


def _read_phi3(keys, count):
    _no_biases(keys, "attention_bias")
    keys.whole("original_max_position_embeddings", 2, 2**31 - 1, None)
    return {"windows": [_window(keys)] * count}


def _qwen_windows(keys, count):
    is_used, window = keys.flag("use_sliding_window", False), _window(keys, 4096)
    first = keys.whole("max_window_layers", 0, 2**31 - 1, 28, or_null=True)
    window = window if is_used else None
    return _windows(keys, window, count, [window is not None and layer >= first for layer in range(count)])


def _read_qwen2(keys, count):
    return {"qkv_bias": True, "windows": _qwen_windows(keys, count)}


def _read_qwen3(keys, count):
    _no_biases(keys, "attention_bias")
    return {"qk_norm": True, "windows": _qwen_windows(keys, count)}


def _read_smollm3(keys, count):
    _no_biases(keys, "attention_bias", "mlp_bias")
    keys.whole("max_window_layers", 0, 2**31 - 1, None, or_null=True)
    interval = keys.whole("no_rope_layer_interval", 1, 2**31 - 1, 4)
    rotated = keys.list_of("no_rope_layers", count, lambda value: type(value) is int and value in (0, 1), "0 or 1", None)
    rotated = [(layer + 1) % interval != 0 for layer in range(count)] if rotated is None else list(map(bool, rotated))
    is_used, window = keys.flag("use_sliding_window", False), _window(keys)
    window = window if is_used else None
    return {"rotated": rotated, "windows": _windows(keys, window, count, [not each for each in rotated])}


def _read_olmo2(keys, count):
    _no_biases(keys, "attention_bias")
    return {"norms": "after", "qk_norm": True, "qk_norm_joint": True}


def _read_gemma(keys, count, period, softcap):
    """Every `period`-th layer attends to all tokens; `softcap` is that of logits where there is none."""
    _no_biases(keys, "attention_bias", "use_bidirectional_attention")
    return {
        "norms": "both",
        "norm_plus_one": True,
        "attention_scale": keys.real("query_pre_attn_scalar", 1e-6, 1e6, 256.0)**-0.5,
        "logit_softcap": _real_or_null(keys, "final_logit_softcapping", softcap),
        "windows": _windows(keys, _window(keys, 4096), count, [(layer + 1) % period != 0 for layer in range(count)])
    }


def _read_gemma2(keys, count):
    return {**_read_gemma(keys, count, 2, 30.0), "attention_softcap": _real_or_null(keys, "attn_logit_softcapping", 50.0)}


def _read_gemma3(keys, count):
    keys.one_of("attn_logit_softcapping", (None, ), None)
    return {**_read_gemma(keys, count, keys.whole("sliding_window_pattern", 1, 2**31 - 1, 6), 0.0), "qk_norm": True}


def _real_or_null(keys, key, default):
    """A number, 0 where it is null."""
    if key in keys and keys.get(key, lambda value: True, "") is None:
        return 0.0
    return keys.real(key, 1e-6, 1e6, default)


FAMILIES = {
    "llama": Family(_read_llama),
    "mistral": Family(_read_mistral),
    "qwen2": Family(_read_qwen2),
    "qwen3": Family(_read_qwen3, {**_LAYER, **_HEAD_NORMS}),
    "smollm3": Family(_read_smollm3, theta=2000000.0, is_tied=True),
    "olmo2": Family(_read_olmo2, {**{name: own for name, own in _LAYER.items() if not own.endswith(".norm")}, **_HEAD_NORMS,
                                  **_NORMS_AFTER}, eps=1e-5),
    "phi3": Family(_read_phi3, _JOINED, eps=1e-5, rope=("default", *_LONG), is_partial=True),
    "gemma2": Family(_read_gemma2, {**_LAYER, **_NORMS_AFTER, "pre_feedforward_layernorm": "mlp.norm"}, is_tied=True,
                     activation="gelu_pytorch_tanh"),
    "gemma3_text": Family(_read_gemma3, {**_LAYER, **_HEAD_NORMS, **_NORMS_AFTER, "pre_feedforward_layernorm": "mlp.norm"},
                          theta=1000000.0, is_tied=True, rope=("default", "linear"), activation="gelu_pytorch_tanh",
                          has_window_rope=True)
}

# Gates of a sparse model that begins as a dense one: nothing but its own window and blocks where those are all tokens.
_COMPRESSED_BIAS = -4.0

# Keys of the configuration that do not follow from the weights.
_OPEN = {"model.rope_base", "model.rope_divisors", "model.rope_factor", "model.rope_length", "model.rope_scaling"}
_FIXED = {"nsa.phi", "nsa.phi_pos", "nsa.shared_kv"}


def check_settings(settings):
    """Refuses settings of other parameters than there are."""
    for setting in settings:
        key = setting.partition("=")[0].strip()
        if key in _FIXED or (key.startswith("model.") and key not in _OPEN):
            raise InputError(f"{key} follows from the weights and cannot be set; model keys that can are "
                             f"{', '.join(sorted(_OPEN))}")


def family_of(config, path):
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        Keys(path, config).refuse("model_type", f"nsa, {', '.join(FAMILIES)}")
    return FAMILIES[kind]


def _find_rope(keys):
    """The object that describes the rotary embedding."""
    outer = [keys.inner(key) for key in ("rope_parameters", "rope_scaling")]
    if None not in outer:
        keys.refuse("rope_scaling", "no such key beside rope_parameters, or null")
    return outer[0] or outer[1] or Keys(keys.path, {}, "rope_parameters.")


def _read_ropes(keys, family, width, longest, seq_len):
    """Settings of the rotary embeddings: of windows another one than of the other layers, where there is a family's."""
    rope = _find_rope(keys)
    if not family.has_window_rope:
        return _read_rope(keys, rope, family, width, longest, seq_len)
    # An object for each kind of layer, or the global one with the base of windows beside it.
    if "full_attention" in rope or "sliding_attention" in rope:
        kinds = [rope.inner(key) or Keys(keys.path, {}, key + ".") for key in ("full_attention", "sliding_attention")]
        rope.one_of("rope_type", ("default", ), "default")
        rope.finish()
        window = _read_rope(kinds[1], kinds[1], Family(None, theta=10000.0, rope=("default", )), width)["rope_base"]
        return {**_read_rope(keys, kinds[0], family, width), "window_rope_base": window}
    return {**_read_rope(keys, rope, family, width), "window_rope_base": keys.real("rope_local_base_freq", 1, 1e12, 10000.0)}


def _read_long_rope(keys, rope, rotated, longest, seq_len):
    """The angles for sequences of training: those for short ones up to the original length, for long ones beyond."""
    holder = rope if "original_max_position_embeddings" in rope else keys
    length = holder.whole("original_max_position_embeddings", 2, 2**31 - 1)
    factor = rope.real("factor", 1, 1e6) if "factor" in rope else max(longest / length, 1.0)
    amplitude = math.sqrt(1 + math.log(factor) / math.log(length))
    rope.get("attention_factor", lambda value: value is None or (is_number(value) and abs(value - amplitude) < 1e-6),
             f"null or {amplitude:.6f}, which follows from factor and length", None)
    lists = [rope.list_of(key, rotated // 2, lambda value: is_number(value) and value > 0, "a number above 0")
             for key in ("short_factor", "long_factor")]
    divisors = lists[seq_len > length]
    return {"rope_scaling": "longrope", "rope_factor": factor, "rope_length": length,
            "rope_divisors": ", ".join(map(repr, map(float, divisors)))}


def _read_rope(keys, rope, family, width, longest=0, seq_len=0):
    """Settings of a rotary embedding. It is described in the object `rope`, partly beside it in older files."""
    for key in ("rope_theta", "partial_rotary_factor"):
        if rope is not keys and key in rope and key in keys:
            keys.refuse(key, "no such key beside that of the same name in rope_parameters or rope_scaling")
    name = "type" if "rope_type" not in rope and "type" in rope else "rope_type"
    kind = rope.one_of(name, family.rope, "default")
    if "type" in rope:
        rope.one_of("type", (kind, ))
    base = (rope if "rope_theta" in rope else keys).real("rope_theta", 1, 1e12, family.theta)
    holder = rope if "partial_rotary_factor" in rope else keys
    rotated = int(width * holder.real("partial_rotary_factor", 1e-6, 1, 1.0))
    if rotated < 2 or rotated % 2 or (rotated != width and not family.is_partial):
        holder.refuse("partial_rotary_factor", f"an even part of {width} channels" if family.is_partial else "1")
    settings = {"rope_base": base}
    if kind == "llama3":
        for key, number in (("low_freq_factor", 1), ("high_freq_factor", 4)):
            rope.one_of(key, (number, float(number)))
        settings["rope_length"] = rope.whole("original_max_position_embeddings", 1, 2**31 - 1)
    if kind in _LONG:
        settings |= _read_long_rope(keys, rope, rotated, longest, seq_len)
    elif kind != "default":
        settings |= {"rope_scaling": kind, "rope_factor": rope.real("factor", 1, 1e6)}
    if rotated != width:
        settings["rope_dim"] = rotated
    rope.finish()
    return settings


def _read_heads(keys, dim):
    heads = keys.whole("num_attention_heads", 1, 1024)
    groups = keys.whole("num_key_value_heads", 1, heads, heads, or_null=True)
    if heads % groups:
        keys.refuse("num_key_value_heads", f"a divisor of num_attention_heads, {heads}")
    width = keys.whole("head_dim", 2, 512, 0, or_null=True)
    if not width and dim % heads:
        keys.refuse("num_attention_heads", f"a divisor of hidden_size, {dim}, where there is no head_dim")
    width = width or dim // heads
    if width % 2 or width > 512:
        keys.refuse("head_dim" if "head_dim" in keys else "hidden_size", f"heads of an even width up to 512, not {width}")
    return {"n_heads": heads, "n_kv_groups": groups, "d_k": width, "d_v": width}


def _read_precision(keys):
    kinds = [prefix + kind for prefix in ("", "torch.") for kind in ("float32", "bfloat16", "float16", "float64")]
    given = [keys.one_of(key, (*kinds, None), None) for key in ("dtype", "torch_dtype")]
    return "bf16" if str(given[0] or given[1]).endswith("float16") else "fp32"


def _list_layers(windows, rotated, attention):
    """model.layers of layers with these windows, or None for all tokens."""
    kinds = []
    for window, is_rotated in zip(windows, rotated):
        kind = (attention if window is None else f"window:{window}") + ("" if is_rotated else "/nope")
        if kinds and kinds[-1][0] == kind:
            kinds[-1][1] += 1
        else:
            kinds.append([kind, 1])
    return ", ".join(kind if count == 1 else f"{kind}*{count}" for kind, count in kinds)


def _read_layers(keys, family, count, attention):
    """Settings of what layers of a family are."""
    settings = family.read(keys, count)
    windows, rotated = settings.pop("windows", [None] * count), settings.pop("rotated", [True] * count)
    if attention == "nsa" and None not in windows:
        keys.refuse("sliding_window", "null for --attention=nsa: no layer attends to all tokens, which could become sparse")
    if windows != [None] * count or rotated != [True] * count:
        settings["layers"] = _list_layers(windows, rotated, attention)
    return settings


def read_config(config, path, attention, seq_len):
    """The configuration of nsa-train, as {section: {key: value}}."""
    family, keys = family_of(config, path), Keys(path, config)
    for key in ("hidden_act", "hidden_activation"):
        keys.one_of(key, (family.activation, ), family.activation)
    dim, count = keys.whole("hidden_size", 1, 65536), keys.whole("num_hidden_layers", 1, 1000)
    heads = _read_heads(keys, dim)
    longest = keys.whole("max_position_embeddings", 1, 2**31 - 1, _SEQ_LEN)
    seq_len = min(longest, _SEQ_LEN) if seq_len is None else seq_len
    has_gelu = family.activation != "silu"
    model = {
        "dim": dim,
        "n_layers": count,
        **heads,
        "mlp": "geglu" if has_gelu else "swiglu",
        "mlp_dim": keys.whole("intermediate_size", 1, 1 << 20),
        "vocab_size": keys.whole("vocab_size", 2, 1 << 20),
        **_read_ropes(keys, family, heads["d_k"], longest, seq_len),
        "norm_eps": keys.real("rms_norm_eps", 1e-12, 1, family.eps),
        "init_std": keys.real("initializer_range", 1e-6, 10, 0.02),
        "attention": attention,
        "tied_embeddings": keys.flag("tie_word_embeddings", family.is_tied),
        "embedding_scale": math.sqrt(dim) if has_gelu else 1.0,
        **_read_layers(keys, family, count, attention)
    }
    precision = _read_precision(keys)
    keys.finish(_IGNORED)
    return {
        "model": model,
        "nsa": {
            "shared_kv": True
        },
        "data": {
            "tokenizer": "shards"
        },
        "runtime": {
            "precision": precision
        },
        "train": {
            "seq_len": seq_len,
            "batch_size": 1,
            "micro_batch": 1
        },
    }


def describe_llama(model, seq_len):
    """config.json of the Llama that has the sizes of a section `model`: what read_config turns back."""
    scaling = {"rope_type": "default"}
    if model["rope_scaling"] != "none":
        scaling = {"rope_type": model["rope_scaling"], "factor": model["rope_factor"]}
    if model["rope_scaling"] == "llama3":
        scaling |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": model["rope_length"]}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": model["dim"],
        "num_hidden_layers": model["n_layers"],
        "num_attention_heads": model["n_heads"],
        "num_key_value_heads": model["n_kv_groups"],
        "head_dim": model["d_k"],
        "hidden_act": "silu",
        "intermediate_size": model["mlp_dim"],
        "vocab_size": model["vocab_size"],
        "rms_norm_eps": model["norm_eps"],
        "initializer_range": model["init_std"],
        "max_position_embeddings": seq_len,
        "rope_parameters": {**scaling, "rope_theta": model["rope_base"]},
        "tie_word_embeddings": model["tied_embeddings"]
    }


def find_names(family, config, shapes):
    """{name in transformers: [own names]} of the parameters `shapes` of a model, without gates."""
    names = {f"model.{name}.weight": [f"{own}.weight"] for name, own in _OUTER.items()}
    if not config["model"]["tied_embeddings"]:
        names["lm_head.weight"] = ["head.weight"]
    for layer, (kind, *_) in enumerate(layer_kinds(config)):
        for name, own in family.names.items():
            owns = [own] if isinstance(own, str) else own
            if kind == "window":
                owns = [each.replace(".key", ".window.key").replace(".value", ".window.value") for each in owns]
            for suffix in (".weight", ".bias"):
                if f"layers.{layer}.{owns[0]}{suffix}" in shapes:
                    names[f"model.layers.{layer}.{name}{suffix}"] = [f"layers.{layer}.{each}{suffix}" for each in owns]
    return names


def joined_shape(shapes):
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def _order_channels(model, rotary):
    """Where the channels of a head stand in transformers: pairs are i and i + width / 2 here, of the first ones."""
    width = model["d_k"]
    rotated, channels = model["rope_dim"] or width, numpy.arange(width)
    first, second, rest = channels[:rotated // 2], channels[rotated // 2:rotated], channels[rotated:]
    if rotary == "pairs":
        first, second = channels[:rotated:2], channels[1:rotated:2]
    return numpy.concatenate([first, rest[:len(rest) // 2], second, rest[len(rest) // 2:]])


def _has_channels(own):
    return (".query." in own or ".key." in own or "query_norm." in own or "key_norm." in own)


def _reorder(array, order):
    """The rows of each head in this order."""
    if (order == numpy.arange(len(order))).all():
        return array
    return array.reshape(-1, len(order), *array.shape[1:])[:, order].reshape(array.shape)


def read_weights(names, model, shapes, files, rotary):
    """{own name: array}, of files that were compared with the names and shapes."""
    tensors, order = {}, _order_channels(model, rotary)
    for name, owns in names.items():
        ends = numpy.cumsum([shapes[own][0] for own in owns])[:-1]
        for own, part in zip(owns, numpy.split(files[name].read(name), ends)):
            tensors[own] = numpy.ascontiguousarray(_reorder(part, order) if _has_channels(own) else part)
    return tensors


def write_weight(owns, model, read):
    """The tensor in transformers that is made of these own ones: the way back of read_weights."""
    order = numpy.argsort(_order_channels(model, "halves"))
    return numpy.concatenate([_reorder(read(own), order) if _has_channels(own) else read(own) for own in owns])


def draw_gates(shapes, std, random):
    """Gates of the three branches for each layer.

    Those of the selected branch and of the window are one half at first, that of the compressed
    branch is small: up to as many tokens as the window and the selected blocks have, the model is
    nearly the dense one.
    """
    gates = {}
    for name, shape in shapes.items():
        if name.endswith("gate.bias"):
            gates[name] = numpy.tile(numpy.array([_COMPRESSED_BIAS, 0, 0], numpy.float32), shape[0] // 3)
        elif name.endswith("attention.gate.weight"):
            gates[name] = random.standard_normal(shape, numpy.float32) * numpy.float32(std)
    return gates
