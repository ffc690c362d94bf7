"""A model of nsa-train for transformers: AutoModelForCausalLM.from_pretrained(FOLDER, trust_remote_code=True).

nsa-export writes this file beside the weights. Attention to whole sequences is that of nsa.torch, for
tensors on the CPU and on NVIDIA GPUs; everything else is PyTorch, also attention of single tokens to an
NSACache.
"""

import dataclasses
import re

import nsa.torch as sparse
import torch
from torch import nn
from torch.nn import functional
from transformers import Cache, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils import can_return_tuple


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

    def resize(self, vocab_size):
        self.vocab_size, self.model = vocab_size, {**self.model, "vocab_size": vocab_size}
        if self.checkpoint:
            text = re.sub(r"(?m)^  vocab_size: \d+$", f"  vocab_size: {vocab_size}", self.checkpoint["config"])
            self.checkpoint = {**self.checkpoint, "config": text}


class _Norm(nn.Module):
    def __init__(self, width, model):
        super().__init__()
        self.eps, self.added = model["norm_eps"], 1.0 if model.get("norm_plus_one") else 0.0
        self.weight = nn.Parameter(torch.full((width, ), 1.0 - self.added))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return (y * (self.weight.float() + self.added)).to(x.dtype)


def _head_norm(model, heads):
    """Of heads [..., heads, d_k], each alone or all at once."""
    if not model["qk_norm"]:
        return nn.Identity()
    return _JointNorm(heads * model["d_k"], model) if model.get("qk_norm_joint") else _Norm(model["d_k"], model)


class _JointNorm(_Norm):
    def forward(self, x):
        return super().forward(x.flatten(-2)).view_as(x)


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
        self.widths, has_bias = (model["d_k"], model["d_v"]), model.get("qkv_bias", False)
        self.key = nn.Linear(model["dim"], model["n_kv_groups"] * model["d_k"], bias=has_bias)
        self.value = nn.Linear(model["dim"], model["n_kv_groups"] * model["d_v"], bias=has_bias)
        self.key_norm = _head_norm(model, model["n_kv_groups"])

    def project(self, x):
        key, value = (part(x).unflatten(-1, (-1, width)) for part, width in zip((self.key, self.value), self.widths))
        return self.key_norm(key), value


class NSACache(Cache):
    """Keys and values of the tokens so far, and compressed ones, of each layer.

    Each sequence of the batch has its own length: padding is not part of it. `get_seq_length` is the number
    of columns of input_ids that were seen, with padding. Beam search and `crop` (of assisted generation) move rows
    and lengths; what is past a length is written again before it is read.
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


def _attend(query, key, value, visible, scale):
    """Attention of one token: query [B, 1, H, D] to rows [B, S, G, D] that are `visible`, [B, 1 or G, S].

    Returns the output [B, 1, H, Dv] and the probabilities [B, G, H / G, S]; both are 0 where nothing is visible.
    """
    query = query[:, 0].unflatten(1, (key.shape[2], -1)).float()
    scores = torch.einsum("bghd,bsgd->bghs", query, key.float()) * scale
    visible = visible[:, :, None]
    weights = torch.where(visible, scores, -torch.inf).softmax(-1)
    weights = torch.where(visible.any(-1, keepdim=True), weights, 0)
    output = torch.einsum("bghs,bsgd->bghd", weights.to(value.dtype).float(), value.float()).to(value.dtype)
    return output.flatten(1, 2)[:, None], weights


def _take(rows, index):
    """Rows [B, S, G, D] at `index` [B, 1 or G, M]; those below 0 are any."""
    index = index.clamp(min=0).expand(-1, rows.shape[2], -1).transpose(1, 2)
    return rows.gather(1, index[..., None].expand(-1, -1, -1, rows.shape[3]))


def _attend_window(query, key, value, t, window, scale):
    index = t[:, None, None] - torch.arange(window, device=t.device)
    return _attend(query, _take(key, index), _take(value, index), index >= 0, scale)[0]


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


def _norms_of_part(model):
    """Of what goes into the attention or the feed-forward layer, and of what comes out."""
    where = model.get("norms", "before")
    return (_Norm(model["dim"], model) if where != "after" else nn.Identity(),
            _Norm(model["dim"], model) if where != "before" else nn.Identity())


class _Attention(_KeyValue):
    """The attention of a layer, with its norm. Keys and values that no branch has for itself are its own."""

    def __init__(self, model, nsa, kind, width):
        super().__init__(model)
        self.kind, self.heads, self.width, self.nsa = kind, model["n_heads"], width, nsa
        self.scale = model.get("attention_scale") or model["d_k"]**-0.5
        self.norm, self.output_norm = _norms_of_part(model)
        self.query = nn.Linear(model["dim"], model["n_heads"] * model["d_k"], bias=model.get("qkv_bias", False))
        self.query_norm = _head_norm(model, model["n_heads"])
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

    def forward(self, x, table, cache=None, layer=0, documents=None, selections=None):
        """x [B, T, dim]. A cache takes the tokens; one that has some already, one token of each sequence.

        `documents` are those of a packed row: their ends, and the position of each token in its own. `selections`, if it
        is given, has the blocks of each layer, or None where the layer is to select and write them down.
        """
        x = self.norm(x)
        query = self.query_norm(self.query(x).unflatten(-1, (self.heads, -1)))
        t = None if cache is None else cache.lengths
        if self.kind == "nsa":
            o = self._sparse(x, query, table, cache, layer, documents, selections)
        else:
            key, value = (self.window if self.has_branches else self).project(x)
            angles = _angles(table, t, x.shape[1]) if documents is None else _angles(table, documents[1], 1)
            query, key = _rotate(query, angles), _rotate(key, angles)
            if t is None:
                if cache is not None:
                    cache.fill((layer, "key"), key), cache.fill((layer, "value"), value)
                ends = {"cu_seqlens": None if documents is None else documents[0], "scale": self.scale}
                o = (sparse.causal_attention(query, key, value, **ends) if self.kind == "dense" else
                     sparse.window_attention(query, key, value, window=self.width, **ends))
            else:
                key, value = cache.append((layer, "key"), key, t), cache.append((layer, "value"), value, t)
                o = _attend_window(query, key, value, t, min(self.width, int(t.max()) + 1) if self.kind == "window" else
                                   int(t.max()) + 1, self.scale)
        return self.output_norm(self.output(o.flatten(2)))

    def _sparse(self, x, query, table, cache, layer, documents, selections):
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
            return self._step(query, pairs, gates, weights, table, cache, layer, selections)
        if cache is not None:
            self._fill(pairs, weights, table, cache, layer)
        result = sparse.attention(query, *pairs, gates, block=nsa["l"], stride=nsa["d"], select_block=nsa["l_sel"],
                                  count=nsa["n_sel"], initial=nsa["n_initial"], local=nsa["n_local"], window=nsa["w"],
                                  phi=nsa["phi"], scale=self.scale, rotary=table, key_parameters=weights[0],
                                  value_parameters=weights[1], cu_seqlens=None if documents is None else documents[0],
                                  selection=selections and selections[layer], return_selection=selections is not None)
        if selections is not None:
            result, selections[layer] = result
        return result

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

    def _step(self, query, pairs, gates, weights, table, cache, layer, selections):
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
        compressed, weights = _attend(query, key[:, :count], value[:, :count], visible, self.scale)
        if selections and selections[layer] is not None:
            chosen = selections[layer][:, :, 0]
        else:
            chosen = _select(weights, t, nsa)
        if selections is not None:
            # Ascending, -1 last.
            ordered = torch.where(chosen < 0, int(t.max()) + 1, chosen).sort(-1)[0].int()
            ordered = torch.where(ordered > t[:, None, None], -1, ordered)
            selections[layer] = functional.pad(ordered, (0, nsa["n_sel"] - ordered.shape[-1]), value=-1)[:, :, None]
        index = (chosen[..., None] * nsa["l_sel"] + torch.arange(nsa["l_sel"], device=t.device)).flatten(2)
        key, value = (_take(part, index.clamp(max=part.shape[1] - 1)) for part in rows[2:4])
        selected, _ = _attend(query, key, value, (index >= 0) & (index <= t[:, None, None]), self.scale)
        window = _attend_window(query, *rows[4:], t, min(nsa["w"], int(t.max()) + 1), self.scale)
        branches = (part.float() * gate[..., None] for part, gate in zip((compressed, selected, window), gates.unbind(-1)))
        return sum(branches).to(query.dtype)


def _angles(table, t, length):
    """Of tokens 0, 1, ..., or of one at t [B], or of those at t [1, T]."""
    if table is None:
        return None
    if t is None:
        return table[None, :length]
    return table[t][:, None] if t.dim() == 1 else table[t]


class _FeedForward(nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden = model["mlp_dim"] or 4 * model["dim"]
        self.kind = model["mlp"]
        self.norm, self.output_norm = _norms_of_part(model)
        if self.kind in ("swiglu", "geglu"):
            self.gate = nn.Linear(model["dim"], hidden, bias=False)
        self.up = nn.Linear(model["dim"], hidden, bias=False)
        self.down = nn.Linear(hidden, model["dim"], bias=False)

    def forward(self, x):
        x = self.norm(x)
        y = self.up(x)
        if self.kind == "swiglu":
            y = functional.silu(self.gate(x)) * y
        elif self.kind == "geglu":
            y = functional.gelu(self.gate(x), approximate="tanh") * y
        elif self.kind == "relu2":
            y = functional.relu(y).square()
        else:
            y = functional.gelu(y, approximate="tanh") if self.kind == "gelu" else functional.silu(y)
        return self.output_norm(self.down(y))


class _Layer(GradientCheckpointingLayer):
    def __init__(self, model, nsa, kind, width, is_rotated=True):
        super().__init__()
        #: The name of its table of angles.
        self.angles = None if not is_rotated else "window" if kind == "window" and model.get("window_rope_base") else "own"
        self.attention = _Attention(model, nsa, kind, width)
        self.mlp = _FeedForward(model)

    def forward(self, x, table, cache=None, layer=0, documents=None, selections=None):
        x = x + self.attention(x, table, cache, layer, documents, selections)
        return x + self.mlp(x)


def _rotary_table(model, length, is_window):
    """Cosines and sines [length, d_k / 2, 2], as nsa-train has them; None without a rotary embedding."""
    if is_window:
        model = {**model, "rope_base": model["window_rope_base"], "rope_scaling": "none", "rope_factor": 1.0}
    if model["rope_base"] == 0:
        return None
    return sparse.rotary_table(length, model["d_k"], model["rope_base"], **{
        key: value for key, value in model.items() if key.startswith("rope_") and key != "rope_base"})


def _need(condition, message):
    if not condition:
        raise ValueError(message)


def _positions(position_ids, ends, longest, shape, device):
    """Positions [B, T] of position_ids or of cu_seq_lens_q and _k, `ends`; None where there are neither."""
    if position_ids is not None:
        _need(position_ids.dim() == 2 and position_ids.shape[0] in (1, shape[0]) and position_ids.shape[1] == shape[1],
              f"position_ids has shape {tuple(position_ids.shape)}, expected {tuple(shape)}")
        position_ids = position_ids.to(device).expand(shape)
    if ends[0] is not None or ends[1] is not None:
        first, second = (None if x is None else torch.as_tensor(x).tolist() for x in ends)
        _need(first == second, "cu_seq_lens_q and cu_seq_lens_k differ, or one is missing: queries are those of the keys")
        _need(shape[0] == 1, f"cu_seq_lens_q is given for {shape[0]} rows, expected one: documents lie one after another")
        lengths = [end - begin for begin, end in zip(first, first[1:])]
        _need(first[:1] == [0] and first[-1] == shape[1] and min(lengths, default=-1) >= 0,
              f"cu_seq_lens_q is {first}, expected 0, then where each document ends, up to the {shape[1]} tokens")
        positions = torch.cat([torch.arange(length) for length in lengths])[None].to(device)
        _need(position_ids is None or torch.equal(position_ids, positions),
              "position_ids and cu_seq_lens_q name different documents")
        position_ids = positions
    for name, length in zip("qk", longest):
        _need(length is None or (position_ids is not None and length > int(position_ids.max())),
              f"max_length_{name} is {length}, less than the longest document, or there are no cu_seq_lens_{name}")
    return position_ids


def _begins(positions, counts):
    """Where documents begin, by positions [B, T] of which `counts` [B] are of tokens, those after them of padding."""
    is_token = torch.arange(positions.shape[1], device=positions.device) < counts[:, None]
    begins = (positions == 0) & is_token
    follows = torch.cat([torch.zeros_like(begins[:, :1]), positions[:, 1:] == positions[:, :-1] + 1], 1)
    wrong = (is_token & ~begins & ~follows).nonzero()
    if len(wrong):
        row, token = wrong[0].tolist()
        raise ValueError(f"position_ids is {int(positions[row, token])} at token {token} of row {row}, expected one more "
                         "than before it, or 0 where a document begins")
    # A row of padding alone begins as well.
    begins[:, 0] = True
    return begins


@dataclasses.dataclass
class NSAOutput(CausalLMOutputWithPast):
    """`selections`: of each layer, None or the blocks that it attended to, int32 [B, Hkv, T, n_sel]."""

    selections: tuple | None = None


class NSAForCausalLM(PreTrainedModel, GenerationMixin):
    """Logits of the next token, from a model of nsa-train. Parameters have the names of its checkpoints."""

    config_class = NSAConfig
    base_model_prefix = ""
    supports_gradient_checkpointing = True
    #: Trainer gives num_items_in_batch.
    accepts_loss_kwargs = True
    _input_embed_layer = "embedding"
    _no_split_modules = ["_Layer"]

    def __init__(self, config):
        super().__init__(config)
        model = config.model
        self.embedding = nn.Embedding(model["vocab_size"], model["dim"])
        self.layers = nn.ModuleList(_Layer(model, config.nsa, *kind) for kind in config.layer_kinds)
        self.norm = _Norm(model["dim"], model)
        if not model["tied_embeddings"]:
            self.head = nn.Linear(model["dim"], model["vocab_size"], bias=False)
        self._tables = {}
        self.post_init()

    def get_output_embeddings(self):
        return None if self.config.model["tied_embeddings"] else self.head

    def set_output_embeddings(self, head):
        _need(not self.config.model["tied_embeddings"], "the head is the embedding's table")
        self.head = head

    def resize_token_embeddings(self, *arguments, **keywords):
        embedding = super().resize_token_embeddings(*arguments, **keywords)
        self.config.resize(embedding.num_embeddings)
        return embedding

    def _rotary(self, layer, length, device):
        """The table of a layer for a length, kept for the longest so far."""
        if layer.angles is None:
            return None
        table = self._tables.get(layer.angles)
        if table is None or table.shape[0] < length or table.device != device:
            table = _rotary_table(self.config.model, length, layer.angles == "window")
            self._tables[layer.angles] = table = table if table is None else table.to(device)
        return table if table is None else table[:length]

    @classmethod
    def _supports_default_dynamic_cache(cls):
        return False

    # What has no name here is a TypeError.
    @can_return_tuple
    def forward(self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, inputs_embeds=None,
                labels=None, use_cache=None, output_attentions=None, output_hidden_states=None, logits_to_keep=0,
                num_items_in_batch=None, cu_seq_lens_q=None, cu_seq_lens_k=None, max_length_q=None, max_length_k=None,
                output_selections=False, selections=None):
        """Logits [B, T, vocab]; tokens with 0 in `attention_mask`, to the left or to the right, are left out.

        Where `position_ids` begin again with 0, or `cu_seq_lens_q` and `cu_seq_lens_k` say so, a document begins. It
        is computed, and has a loss, as if it were alone. With `use_cache` or an NSACache, the cache takes the tokens
        and is part of the result. Tokens after a cache's are computed one at a time.

        With `output_selections` the result has `selections`, of each layer; where these are given, layers attend to them.
        """
        _need(not (self.config.output_attentions if output_attentions is None else output_attentions),
              "output_attentions is not supported: the weights of attention are not kept")
        _need((input_ids is None) != (inputs_embeds is None), "expected one of input_ids and inputs_embeds")
        x = self.embedding(input_ids) if inputs_embeds is None else inputs_embeds
        if self.config.model.get("embedding_scale", 1.0) != 1:
            x = x * self.config.model["embedding_scale"]
        positions = _positions(position_ids, (cu_seq_lens_q, cu_seq_lens_k), (max_length_q, max_length_k), x.shape[:2],
                               x.device)
        cache = self._cache(past_key_values, use_cache)
        mask = self._mask(attention_mask, x, 0 if cache is None else cache.columns)
        keep = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        blocks = None
        if output_selections or selections is not None:
            blocks = [None] * len(self.layers) if selections is None else list(selections)
            _need(len(blocks) == len(self.layers), f"selections are of {len(blocks)} layers, expected {len(self.layers)}")
            _need(mask is None and positions is None, "selections are of rows that are one document without padding: leave out "
                  "attention_mask and position_ids")
        if cache is not None and cache.lengths is not None:
            states, begins = self._append(x, mask, positions, cache, keep, blocks), None
        else:
            states, begins = self._whole(x, mask, positions, cache, keep, blocks)
        states[-1] = self.norm(states[-1])
        loss, logits = None, self._logits(states[-1], logits_to_keep)
        if labels is not None:
            labels = self._targets(labels, logits, mask, begins)
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size,
                                      num_items_in_batch=num_items_in_batch)
        return NSAOutput(loss=loss, logits=logits, past_key_values=cache, hidden_states=tuple(states) if keep else None,
                         selections=blocks and tuple(blocks))

    def _cache(self, cache, use_cache):
        if cache is None and not use_cache:
            return None
        _need(not (self.training and self.is_gradient_checkpointing),
              "use_cache and past_key_values are not supported with gradient checkpointing")
        cache = NSACache() if cache is None else cache
        _need(isinstance(cache, NSACache), f"past_key_values is a {type(cache).__name__}, expected an NSACache")
        return cache

    def _mask(self, mask, x, seen):
        """Of the tokens in x, which come after those `seen`; None where all count."""
        if mask is None:
            return None
        length = x.shape[1]
        _need(isinstance(mask, torch.Tensor) and mask.dim() == 2 and len(mask) == len(x) and
              mask.shape[1] in (length, length + seen),
              f"attention_mask has shape {tuple(getattr(mask, 'shape', ()))}, expected one number for each of "
              f"{length + seen} tokens in {len(x)} rows")
        mask = mask[:, -length:]
        is_token = mask == 1
        _need((is_token | (mask == 0)).all(), "attention_mask has other numbers than 0 and 1; documents of a row are told "
              "by position_ids that begin again with 0")
        return None if is_token.all() else is_token

    def _logits(self, x, kept):
        kept = slice(-kept, None) if isinstance(kept, int) else kept
        head = self.embedding if self.config.model["tied_embeddings"] else self.head
        logits = functional.linear(x[:, kept], head.weight)
        cap = self.config.model["logit_softcap"]
        return cap * torch.tanh(logits / cap) if cap else logits

    def _targets(self, labels, logits, mask, begins):
        """Labels without those of padding and of first tokens, which nothing comes before."""
        _need(labels.shape == logits.shape[:2],
              f"labels has shape {tuple(labels.shape)}, expected {tuple(logits.shape[:2])}, as logits have (logits_to_keep)")
        if mask is not None:
            labels = labels.masked_fill(~mask | ~functional.pad(mask[:, :-1], (1, 0)), -100)
        return labels if begins is None else labels.masked_fill(begins, -100)

    def _run(self, x, length, cache, keep, documents=None, selections=None):
        """What goes into the first layer and comes out of each, or of the last one alone."""
        states = [x]
        for number, layer in enumerate(self.layers):
            x = layer(x, self._rotary(layer, length, x.device), cache, number, documents, selections)
            states = [*states, x] if keep else [x]
        return states

    def _whole(self, x, mask, positions, cache, keep, selections):
        """The states of all tokens, and where documents begin, None if each row is one."""
        order, (batch, length) = None, x.shape[:2]
        counts = torch.full((batch, ), length, device=x.device) if mask is None else mask.sum(1)
        if mask is not None:
            # The tokens of each row come first, in their order: positions count from there.
            order = (~mask).to(torch.int8).argsort(dim=1, stable=True)
            x = x.gather(1, order[..., None].expand_as(x))
            positions = None if positions is None else positions.gather(1, order)
        begins = None if positions is None else _begins(positions, counts)
        if begins is None or not begins[:, 1:].any():
            begins, documents = None, None
        else:
            _need(cache is None, "use_cache with position_ids that begin again: each row of a cache is one document")
            index, first = torch.arange(batch * length, device=x.device), begins.flatten()
            ends = torch.cat([index[first], index.new_tensor([batch * length])]).int()
            documents = ends, (index - torch.where(first, index, 0).cummax(0).values)[None]
            x = x.reshape(1, batch * length, -1)
        states = self._run(x, x.shape[1], cache, keep, documents, selections)
        if cache is not None:
            cache.columns, cache.lengths = length, counts
        states = [state.reshape(batch, length, -1) for state in states]
        if order is not None:
            places = order[..., None].expand_as(states[0])
            states = [torch.empty_like(state).scatter(1, places, state) for state in states]
            begins = None if begins is None else torch.empty_like(begins).scatter(1, order, begins)
        return states, begins

    def _append(self, x, mask, positions, cache, keep, selections):
        _need(mask is None, "attention_mask leaves out a token after those of the cache: padding is for the first call")
        _need(len(x) == len(cache.lengths), f"{len(x)} sequences, but the cache has {len(cache.lengths)}")
        expected = cache.lengths[:, None] + torch.arange(x.shape[1], device=x.device)
        _need(positions is None or torch.equal(positions, expected),
              "position_ids are not those of the tokens after the cache's: each row of a cache is one document")
        rows, found = [], []
        for number, token in enumerate(x.split(1, 1)):
            own = selections and [given if given is None else given[:, :, number:number + 1] for given in selections]
            # More angles than tokens, so that they are not made for each.
            rows.append(self._run(token, -(-int(cache.lengths.max() + 1) // 256) * 256, cache, keep, selections=own))
            found.append(own)
            cache.columns, cache.lengths = cache.columns + 1, cache.lengths + 1
        if selections is not None:
            selections[:] = [None if parts[0] is None else torch.cat(parts, 2) for parts in zip(*found)]
        return [torch.cat(parts, 1) for parts in zip(*rows)]

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, past_key_values=None, inputs_embeds=None,
                                      position_ids=None, use_cache=None, is_first_iteration=False, **kwargs):
        seen = 0 if past_key_values is None else past_key_values.get_seq_length()
        if is_first_iteration and not seen and position_ids is not None:
            # Those of later tokens follow from the cache and the mask.
            mask = torch.ones_like(position_ids) if attention_mask is None else attention_mask[:, -position_ids.shape[1]:]
            _need((position_ids == mask.cumsum(1) - 1)[mask.bool().expand(len(mask), -1)].all(),
                  "position_ids of generate are not 0, 1, ... in each row: a row of a cache is one document")
        count = kwargs.pop("next_sequence_length", None)
        own = {name: value for name, value in kwargs.items() if name != "labels"}
        if inputs_embeds is not None and is_first_iteration:
            own["inputs_embeds"] = inputs_embeds[:, seen:]
        else:
            own["input_ids"] = input_ids[:, seen:] if count is None else input_ids[:, -count:]
        return {**own, "attention_mask": attention_mask, "past_key_values": past_key_values, "use_cache": use_cache}
