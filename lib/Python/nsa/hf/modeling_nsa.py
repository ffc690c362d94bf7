"""A model of nsa-train for transformers: AutoModelForCausalLM.from_pretrained(FOLDER, trust_remote_code=True).

nsa-export writes this file beside the weights. Attention to whole sequences is that of nsa.torch, for
tensors on the CPU and on NVIDIA GPUs; everything else is PyTorch, also attention of single tokens to an
NSACache.
"""

import math

import nsa.torch as sparse
import torch
from torch import nn
from torch.nn import functional
from transformers import Cache, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast


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
        kwargs.update(tie_word_embeddings=False)
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


class NSACache(Cache):
    """Keys and values of the tokens so far, and compressed ones, of each layer.

    Each sequence of the batch has its own length: padding is not part of it. `get_seq_length` is the number
    of columns of input_ids that were seen, with padding. Beam search and `crop` (of assisted generation) move rows
    and lengths; what is behind a length is written again before it is read.
    """

    def __init__(self):
        super().__init__(layers=[])
        self.columns, self.lengths = 0, None
        #: {(layer, name): rows [B, capacity, heads, width]}
        self.rows = {}

    def get_seq_length(self, layer_idx=0):
        return self.columns

    def fill(self, key, rows):
        """Begins with the rows of a whole sequence, and room for as many again."""
        self.rows[key] = torch.cat([rows, rows.new_zeros(rows.shape[0], rows.shape[1] + 16, *rows.shape[2:])], 1)
        return rows

    def append(self, key, new, at, mask=None):
        """The rows with `new` [B, 1, heads, width] at index `at` [B], where `mask` [B] says so."""
        rows = self.rows[key]
        if int(at.max()) >= rows.shape[1]:
            self.rows[key] = rows = torch.cat([rows, torch.zeros_like(rows)], 1)
        batch = torch.arange(len(at), device=at.device)
        if mask is not None:
            batch, at = batch[mask], at[mask]
        rows[batch, at] = new[batch, 0]
        return rows

    def _each(self, function):
        self.rows = {key: function(rows) for key, rows in self.rows.items()}
        if self.lengths is not None:
            self.lengths = function(self.lengths)

    def reorder_cache(self, beam_idx):
        self._each(lambda x: x.index_select(0, beam_idx.to(x.device)))

    batch_select_indices = reorder_cache

    def batch_repeat_interleave(self, repeats):
        self._each(lambda x: x.repeat_interleave(repeats, 0))

    def crop(self, max_length):
        removed = -max_length if max_length < 0 else max(self.columns - max_length, 0)
        if self.lengths is not None and removed:
            if removed > int(self.lengths.min()):
                raise ValueError(f"cannot remove {removed} tokens of a sequence of {int(self.lengths.min())}")
            self.columns, self.lengths = self.columns - removed, self.lengths - removed

    def reset(self):
        self.columns, self.lengths, self.rows = 0, None, {}


def _rotate(x, table):
    """Rotary embedding of x [B, T, heads, D] by angles [1 or B, T, D/2, 2]: channels i and i + D/2 are a pair."""
    if table is None:
        return x
    cos, sin = table[:, :, None].unbind(-1)
    first, second = x.float().chunk(2, -1)
    return torch.cat([cos * first - sin * second, cos * second + sin * first], -1).to(x.dtype)


def _attend(query, key, value, visible):
    """Attention of one token: query [B, 1, H, D] to rows [B, S, G, D] that are `visible`, [B, 1 or G, S].

    Returns the output [B, 1, H, Dv] and the probabilities [B, G, H / G, S]; both are 0 where nothing is visible.
    """
    query = query[:, 0].unflatten(1, (key.shape[2], -1)).float()
    scores = torch.einsum("bghd,bsgd->bghs", query, key.float()) * query.shape[-1]**-0.5
    visible = visible[:, :, None]
    weights = torch.where(visible, scores, -torch.inf).softmax(-1)
    weights = torch.where(visible.any(-1, keepdim=True), weights, 0)
    output = torch.einsum("bghs,bsgd->bghd", weights.to(value.dtype).float(), value.float()).to(value.dtype)
    return output.flatten(1, 2)[:, None], weights


def _take(rows, index):
    """Rows [B, S, G, D] at `index` [B, 1 or G, M]; those below 0 are any."""
    index = index.clamp(min=0).expand(-1, rows.shape[2], -1).transpose(1, 2)
    return rows.gather(1, index[..., None].expand(-1, -1, -1, rows.shape[3]))


def _attend_window(query, key, value, t, window):
    index = t[:, None, None] - torch.arange(window, device=t.device)
    return _attend(query, _take(key, index), _take(value, index), index >= 0)[0]


def _select(weights, t, nsa):
    """The selected blocks [B, G, n] of tokens at t [B], -1 where there are fewer, by their compressed attention."""
    block, device = nsa["l_sel"], t.device
    weights = weights.sum(2)
    first = torch.arange(weights.shape[-1], device=device)[:, None] * nsa["d"]
    begin = torch.arange(int(t.max()) // block + 1, device=device) * block
    overlap = (torch.minimum(first + nsa["l"], begin + block) - torch.maximum(first, begin)).clamp(min=0) / nsa["d"]
    own, j = (t // block)[:, None, None], torch.arange(len(begin), device=device)
    score = torch.where(j <= own, weights @ overlap, -torch.inf)
    # What is always taken comes first: the block of the token itself, the initial ones, then those before it.
    initial, back = nsa["n_initial"], own - j
    score = torch.where((j <= own) & (back < nsa["n_local"]), 2e30 - back * 1e24, score)
    score = torch.where((j <= own) & (j < initial), 4e30 - j * 1e24, score)
    if nsa["n_local"]:
        score = torch.where(back == 0, 6e30, score)
    best, chosen = score.sort(dim=-1, descending=True, stable=True)
    return torch.where(best > -torch.inf, chosen, -1)[..., :nsa["n_sel"]]


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

    def forward(self, x, table, cache=None, layer=0):
        """x [B, T, dim]. A cache takes the tokens; one that has some already, one token of each sequence."""
        x = self.norm(x)
        query = self.query_norm(self.query(x).unflatten(-1, (self.heads, -1)))
        t = None if cache is None else cache.lengths
        if self.kind == "nsa":
            o = self._sparse(x, query, table, cache, layer)
        else:
            key, value = (self.window if self.has_branches else self).project(x)
            angles = _angles(table, t, x.shape[1])
            query, key = _rotate(query, angles), _rotate(key, angles)
            if t is None:
                if cache is not None:
                    cache.fill((layer, "key"), key), cache.fill((layer, "value"), value)
                o = (sparse.causal_attention(query, key, value) if self.kind == "dense" else sparse.window_attention(
                    query, key, value, window=self.width))
            else:
                key, value = cache.append((layer, "key"), key, t), cache.append((layer, "value"), value, t)
                o = _attend_window(query, key, value, t, min(self.width, int(t.max()) + 1) if self.kind == "window" else
                                   int(t.max()) + 1)
        return self.output(o.flatten(2))

    def _sparse(self, x, query, table, cache, layer):
        nsa = self.nsa
        if self.has_branches:
            pairs = [tensor for branch in (self.compressed, self.selected, self.window) for tensor in branch.project(x)]
        else:
            pairs = [*self.project(x)] * 3
        logits = self.gate(x).float().unflatten(-1, (self.heads, 3))
        gates = torch.sigmoid(logits) if nsa["gate"] == "sigmoid" else torch.softmax(logits, -1)
        weights = [[], []] if nsa["phi"] == "mean" else [
            list(part.parameters()) for part in (self.compressed.key_compression, self.compressed.value_compression)]
        if cache is not None and cache.lengths is not None:
            return self._step(query, pairs, gates, weights, table, cache, layer)
        if cache is not None:
            self._fill(pairs, weights, table, cache, layer)
        return sparse.attention(query, *pairs, gates, block=nsa["l"], stride=nsa["d"], select_block=nsa["l_sel"],
                                count=nsa["n_sel"], initial=nsa["n_initial"], local=nsa["n_local"], window=nsa["w"],
                                phi=nsa["phi"], rotary=table, key_parameters=weights[0], value_parameters=weights[1])

    def _compress(self, x, parameters):
        return sparse.compress(x, block=self.nsa["l"], stride=self.nsa["d"], phi=self.nsa["phi"], parameters=parameters)

    def _fill(self, pairs, weights, table, cache, layer):
        angles = None if table is None else table[None]
        for i, rows in enumerate(pairs):
            # Compressed keys are rotated, the tokens they are made of are not.
            cache.fill((layer, i), _rotate(rows, angles) if i in (2, 4) else rows)
        key, value = self._compress(pairs[0], weights[0]), self._compress(pairs[1], weights[1])
        if angles is not None:
            key = _rotate(key, angles[:, ::self.nsa["d"]][:, :key.shape[1]])
        cache.fill((layer, "key"), key), cache.fill((layer, "value"), value)

    def _step(self, query, pairs, gates, weights, table, cache, layer):
        """One token of each sequence, at its length."""
        nsa, t = self.nsa, cache.lengths
        angles = _angles(table, t, 1)
        query = _rotate(query, angles)
        rows = [cache.append((layer, i), _rotate(new, angles) if i in (2, 4) else new, t) for i, new in enumerate(pairs)]
        # The block that this token completes, if it does.
        last = (t + 1 - nsa["l"]) // nsa["d"]
        is_complete = (t + 1 >= nsa["l"]) & ((t + 1 - nsa["l"]) % nsa["d"] == 0)
        index = t[:, None, None] - torch.arange(nsa["l"] - 1, -1, -1, device=t.device)
        key, value = (self._compress(_take(part, index), own) for part, own in zip(rows, weights))
        key = _rotate(key, None if table is None else table[last.clamp(min=0) * nsa["d"]][:, None])
        key, value = (cache.append((layer, name), new, last.clamp(min=0), is_complete)
                      for name, new in (("key", key), ("value", value)))
        count = max((int(t.max()) + 1 - nsa["l"]) // nsa["d"] + 1, 0)
        visible = torch.arange(count, device=t.device) <= last[:, None, None]
        compressed, weights = _attend(query, key[:, :count], value[:, :count], visible)
        chosen = _select(weights, t, nsa)
        index = (chosen[..., None] * nsa["l_sel"] + torch.arange(nsa["l_sel"], device=t.device)).flatten(2)
        key, value = (_take(part, index.clamp(max=part.shape[1] - 1)) for part in rows[2:4])
        selected, _ = _attend(query, key, value, (index >= 0) & (index <= t[:, None, None]))
        window = _attend_window(query, *rows[4:], t, min(nsa["w"], int(t.max()) + 1))
        branches = (part.float() * gate[..., None] for part, gate in zip((compressed, selected, window), gates.unbind(-1)))
        return sum(branches).to(query.dtype)


def _angles(table, t, length):
    """Of tokens 0, 1, ..., or of one at t [B]."""
    if table is None:
        return None
    return table[None, :length] if t is None else table[t][:, None]


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

    def forward(self, x, table, cache, layer):
        x = x + self.attention(x, table, cache, layer)
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

    @classmethod
    def _supports_default_dynamic_cache(cls):
        return False

    def forward(self, input_ids, attention_mask=None, past_key_values=None, use_cache=None, labels=None, logits_to_keep=0,
                **kwargs):
        """Logits [B, T, vocab]; tokens with 0 in `attention_mask`, to the left or to the right, are left out.

        With `use_cache` or an NSACache, the cache takes the tokens and is part of the result. Tokens
        after a cache's are computed one at a time.
        """
        cache, length = past_key_values, input_ids.shape[1]
        if cache is None and use_cache and labels is None:
            cache = NSACache()
        if cache is not None and not isinstance(cache, NSACache):
            raise ValueError(f"past_key_values is a {type(cache).__name__}, expected an NSACache")
        mask = attention_mask
        if mask is not None and (mask.dim() != 2 or mask.shape[1] < length):
            raise ValueError(f"attention_mask has shape {tuple(mask.shape)}, expected one number for each of {length} tokens")
        mask = None if mask is None else mask[:, -length:].bool()
        if cache is not None and cache.lengths is not None:
            x = self._append(input_ids, mask, cache)
        else:
            x = self._whole(input_ids, mask, cache)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        head = self.embedding if self.config.model["tied_embeddings"] else self.head
        logits = functional.linear(self.norm(x)[:, kept], head.weight)
        cap = self.config.model["logit_softcap"]
        if cap:
            logits = cap * torch.tanh(logits / cap)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cache)

    def _whole(self, input_ids, mask, cache):
        order, (batch, length) = None, input_ids.shape
        if mask is not None and not mask.all():
            # The tokens of each row come first, in their order: positions count from there.
            order = (~mask).to(torch.int8).argsort(dim=1, stable=True)
            input_ids = input_ids.gather(1, order)
        x = self.embedding(input_ids)
        table = self._rotary(length, x.device)
        for number, layer in enumerate(self.layers):
            x = layer(x, table, cache, number)
        if cache is not None:
            cache.columns = length
            cache.lengths = torch.full((batch, ), length, device=x.device) if mask is None else mask.sum(1)
        return x if order is None else torch.empty_like(x).scatter(1, order[..., None].expand_as(x), x)

    def _append(self, input_ids, mask, cache):
        if mask is not None and not mask.all():
            raise ValueError("attention_mask leaves out a token behind those of the cache: padding is for the first call")
        if len(input_ids) != len(cache.lengths):
            raise ValueError(f"{len(input_ids)} sequences, but the cache has {len(cache.lengths)}")
        rows = []
        for token in input_ids.split(1, 1):
            x = self.embedding(token)
            # More angles than tokens, so that they are not made for each.
            table = self._rotary(-(-int(cache.lengths.max() + 1) // 256) * 256, x.device)
            for number, layer in enumerate(self.layers):
                x = layer(x, table, cache, number)
            cache.columns, cache.lengths = cache.columns + 1, cache.lengths + 1
            rows.append(x)
        return torch.cat(rows, 1)

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, past_key_values=None, use_cache=None, **kwargs):
        if past_key_values is not None:
            input_ids = input_ids[:, past_key_values.get_seq_length():]
        return {"input_ids": input_ids, "attention_mask": attention_mask, "past_key_values": past_key_values,
                "use_cache": use_cache}
