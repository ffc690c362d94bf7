"""A model of nsa-train for transformers: AutoModelForCausalLM.from_pretrained(FOLDER, trust_remote_code=True).

nsa-export writes this file beside the weights. Attention is that of nsa.torch, for tensors on the
CPU and on NVIDIA GPUs; everything else is PyTorch. There is no cache of keys and values: generate
computes all tokens for each new one.
"""

import math

import nsa.torch as sparse
import torch
from torch import nn
from torch.nn import functional
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class NSAConfig(PretrainedConfig):
    """`model` and `nsa` are sections of the configuration of nsa-train, `layer_kinds` what each layer attends to.

    `checkpoint` is where the weights come from: {"config": YAML, "step": number}.
    """

    model_type = "nsa"

    def __init__(self, model=None, nsa=None, layer_kinds=None, checkpoint=None, **kwargs):
        self.model, self.nsa, self.layer_kinds, self.checkpoint = model or {}, nsa or {}, layer_kinds or [], checkpoint
        for name, key in (("vocab_size", "vocab_size"), ("hidden_size", "dim"), ("num_hidden_layers", "n_layers"),
                          ("num_attention_heads", "n_heads"), ("num_key_value_heads", "n_kv_groups"), ("head_dim",
                                                                                                       "d_k")):
            kwargs[name] = self.model.get(key)
        # The head of a model with one table for both is computed from it, and is no parameter.
        kwargs.update(tie_word_embeddings=False, use_cache=False)
        super().__init__(**kwargs)


class _Norm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return (y * self.weight.float()).to(x.dtype)


class _Weights(nn.Module):
    """Parameters of a compression, in the order that nsa.torch takes them."""

    def __init__(self, model, nsa, width):
        super().__init__()
        groups, block = model["n_kv_groups"], nsa["l"]
        self.weight = nn.Parameter(torch.randn(groups, block * width, width) * (block * width)**-0.5)
        if nsa["phi"] == "mlp":
            self.output_weight = nn.Parameter(torch.randn(groups, width, width) * 2 * width**-0.5)
        if nsa["phi_pos"]:
            self.positions = nn.Parameter(torch.randn(groups, block, width) * model["init_std"])


class _KeyValue(nn.Module):
    """Projections to keys and values of a branch, or of all of them."""

    def __init__(self, model):
        super().__init__()
        self.widths = model["d_k"], model["d_v"]
        self.key = nn.Linear(model["dim"], model["n_kv_groups"] * model["d_k"], bias=False)
        self.value = nn.Linear(model["dim"], model["n_kv_groups"] * model["d_v"], bias=False)
        self.key_norm = _Norm(model["d_k"], model["norm_eps"]) if model["qk_norm"] else nn.Identity()

    def project(self, x):
        key, value = (part(x).unflatten(-1, (-1, width)) for part, width in zip((self.key, self.value), self.widths))
        return self.key_norm(key), value


def _rotate(x, table):
    """Rotary embedding of rows at positions 0, 1, ...: channels i and i + D/2 are a pair."""
    if table is None:
        return x
    cos, sin = table[None, :, None].unbind(-1)
    first, second = x.float().chunk(2, -1)
    return torch.cat([cos * first - sin * second, cos * second + sin * first], -1).to(x.dtype)


class _Attention(_KeyValue):
    """The attention of a layer, with its norm. Keys and values that no branch has for itself are its own."""

    def __init__(self, model, nsa, kind, width):
        super().__init__(model)
        self.kind, self.heads, self.width, self.nsa = kind, model["n_heads"], width, nsa
        self.norm = _Norm(model["dim"], model["norm_eps"])
        self.query = nn.Linear(model["dim"], model["n_heads"] * model["d_k"], bias=False)
        self.query_norm = _Norm(model["d_k"], model["norm_eps"]) if model["qk_norm"] else nn.Identity()
        self.output = nn.Linear(model["n_heads"] * model["d_v"], model["dim"], bias=False)
        self.has_branches = kind == "window" or (kind == "nsa" and not nsa["shared_kv"])
        if self.has_branches:
            del self.key, self.value, self.key_norm
            for branch in ("compressed", "selected", "window") if kind == "nsa" else ("window",):
                self.add_module(branch, _KeyValue(model))
        if kind == "nsa":
            self.gate = nn.Linear(model["dim"], 3 * model["n_heads"])
            if nsa["phi"] != "mean":
                if not self.has_branches:
                    self.compressed = nn.Module()
                self.compressed.key_compression = _Weights(model, nsa, model["d_k"])
                self.compressed.value_compression = _Weights(model, nsa, model["d_v"])

    def forward(self, x, table):
        x = self.norm(x)
        query = self.query_norm(self.query(x).unflatten(-1, (self.heads, -1)))
        if self.kind == "nsa":
            o = self._sparse(x, query, table)
        else:
            key, value = (self.window if self.has_branches else self).project(x)
            query, key = _rotate(query, table), _rotate(key, table)
            if self.kind == "dense":
                o = sparse.causal_attention(query, key, value)
            else:
                o = sparse.window_attention(query, key, value, window=self.width)
        return self.output(o.flatten(2))

    def _sparse(self, x, query, table):
        nsa = self.nsa
        if self.has_branches:
            pairs = [tensor for branch in (self.compressed, self.selected, self.window) for tensor in branch.project(x)]
        else:
            pairs = [*self.project(x)] * 3
        logits = self.gate(x).float().unflatten(-1, (self.heads, 3))
        gates = torch.sigmoid(logits) if nsa["gate"] == "sigmoid" else torch.softmax(logits, -1)
        weights = {} if nsa["phi"] == "mean" else {
            "key_parameters": list(self.compressed.key_compression.parameters()),
            "value_parameters": list(self.compressed.value_compression.parameters())}
        return sparse.attention(query, *pairs, gates, block=nsa["l"], stride=nsa["d"], select_block=nsa["l_sel"],
                                count=nsa["n_sel"], initial=nsa["n_initial"], local=nsa["n_local"], window=nsa["w"],
                                phi=nsa["phi"], rotary=table, **weights)


class _FeedForward(nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden = model["mlp_dim"] or 4 * model["dim"]
        self.kind = model["mlp"]
        self.norm = _Norm(model["dim"], model["norm_eps"])
        if self.kind == "swiglu":
            self.gate = nn.Linear(model["dim"], hidden, bias=False)
        self.up = nn.Linear(model["dim"], hidden, bias=False)
        self.down = nn.Linear(hidden, model["dim"], bias=False)

    def forward(self, x):
        x = self.norm(x)
        if self.kind == "swiglu":
            return self.down(functional.silu(self.gate(x)) * self.up(x))
        y = self.up(x)
        if self.kind == "relu2":
            return self.down(functional.relu(y).square())
        return self.down(functional.gelu(y) if self.kind == "gelu" else functional.silu(y))


class _Layer(nn.Module):
    def __init__(self, model, nsa, kind, width):
        super().__init__()
        self.attention = _Attention(model, nsa, kind, width)
        self.mlp = _FeedForward(model)

    def forward(self, x, table):
        x = x + self.attention(x, table)
        return x + self.mlp(x)


def _rotary_table(model, length):
    """Cosines and sines [length, d_k / 2, 2], as nsa-train has them; None without a rotary embedding."""
    base, pairs, scaling, factor = model["rope_base"], model["d_k"] // 2, model["rope_scaling"], model["rope_factor"]
    if base == 0:
        return None
    rotated = model["rope_dim"] // 2 or pairs
    if scaling == "ntk":
        base *= factor ** (rotated / (rotated - 1))
    plain = base ** (-torch.arange(rotated, dtype=torch.float64) / rotated)
    kept = torch.ones_like(plain)
    if scaling == "linear":
        kept = torch.zeros_like(plain)
    elif scaling == "yarn":
        kept = ((model["rope_length"] * plain / (2 * math.pi) - 1) / 31).clamp(0, 1)
    frequencies = torch.zeros(pairs, dtype=torch.float64)
    frequencies[:rotated] = plain * (kept + (1 - kept) / factor)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
    amplitude = 1 + 0.1 * math.log(factor) if scaling == "yarn" else 1.0
    return (amplitude * torch.stack([angles.cos(), angles.sin()], -1)).float()


class NSAForCausalLM(PreTrainedModel, GenerationMixin):
    """Logits of the next token, from a model of nsa-train. Parameters have the names of its checkpoints."""

    config_class = NSAConfig
    base_model_prefix = ""
    _no_split_modules = ["_Layer"]

    def __init__(self, config):
        super().__init__(config)
        model = config.model
        self.embedding = nn.Embedding(model["vocab_size"], model["dim"])
        self.layers = nn.ModuleList(_Layer(model, config.nsa, kind, width) for kind, width in config.layer_kinds)
        self.norm = _Norm(model["dim"], model["norm_eps"])
        if not model["tied_embeddings"]:
            self.head = nn.Linear(model["dim"], model["vocab_size"], bias=False)
        self._table = None
        self.post_init()

    def get_input_embeddings(self):
        return self.embedding

    def get_output_embeddings(self):
        return None if self.config.model["tied_embeddings"] else self.head

    def _rotary(self, length, device):
        """The table for a length, kept for the longest so far."""
        if self._table is None or self._table.shape[0] < length or self._table.device != device:
            table = _rotary_table(self.config.model, length)
            self._table = table if table is None else table.to(device)
        return self._table if self._table is None else self._table[:length]

    def forward(self, input_ids, attention_mask=None, labels=None, logits_to_keep=0, **kwargs):
        """Logits [B, T, vocab]; tokens with 0 in `attention_mask`, to the left or to the right, are left out."""
        order = None
        if attention_mask is not None and attention_mask.dim() == 2 and not attention_mask.bool().all():
            # The tokens of each row come first, in their order: positions count from there.
            order = (~attention_mask.bool()).to(torch.int8).argsort(dim=1, stable=True)
            input_ids = input_ids.gather(1, order)
        x = self.embedding(input_ids)
        table = self._rotary(input_ids.shape[1], x.device)
        for layer in self.layers:
            x = layer(x, table)
        x = self.norm(x)
        if order is not None:
            x = torch.empty_like(x).scatter(1, order[..., None].expand_as(x), x)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        head = self.embedding if self.config.model["tied_embeddings"] else self.head
        logits = functional.linear(x[:, kept], head.weight)
        cap = self.config.model["logit_softcap"]
        if cap:
            logits = cap * torch.tanh(logits / cap)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutput(loss=loss, logits=logits)

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **kwargs):
        return {"input_ids": input_ids, "attention_mask": attention_mask}
