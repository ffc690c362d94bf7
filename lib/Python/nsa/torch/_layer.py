"""The layer of nsa-train's models as a module of PyTorch, and parameters from checkpoints and for them."""

import functools
import json
import math

import torch
from torch import nn

from nsa import _safetensors
from nsa._arguments import instance, optional, path, real, shown, takes, text, truth, whole
from nsa._runtime import InputError, open_weights
from nsa.torch._checks import check_at_least, check_phi, check_scaling, check_sizes, check_tensors
from nsa.torch._functions import attention, make_rotary_table
from nsa.torch._transforms import is_plain


def _add_key_value(module, dim, heads, head_dim, value_dim, bias, norm):
    """Projections to the keys and values of a branch, or of all of them."""
    module.key = nn.Linear(dim, heads * head_dim, bias=bias)
    module.value = nn.Linear(dim, heads * value_dim, bias=bias)
    if norm:
        module.key_norm = norm()


class _Phi(nn.Module):
    """Parameters of compression, in the order that `compress` takes them."""

    def __init__(self, phi, positions, heads, block, width, std):
        super().__init__()

        def add(name, rows, std):
            setattr(self, name, nn.Parameter(torch.randn(heads, rows, width) * std))

        # Random projections that keep the scale of a token; SiLU halves small values.
        if phi != "mean":
            add("weight", block * width, (block * width)**-0.5)
        if phi == "mlp":
            add("output_weight", width, 2 * width**-0.5)
        if positions:
            add("positions", block, std)


class NativeSparseAttention(nn.Module):
    """Self-attention of a decoder: x [B, T, dim] -> [B, T, dim], causal.

    The three branches of Native Sparse Attention (arXiv 2502.11089) with keys and values of
    their own, or with `shared_kv` of all three, gates from x, and rotary embedding of base `rope_base` (0: none), scaled
    by `rope`, keywords of rotary_table. Neither the layer's norm nor the residual is in it. `kv_heads` is `heads` and
    head_dim is dim / heads if they are not given; groups of 4 to 16 heads for a key head are fastest. `qk_norm`: RMS
    norms of query and key heads, of epsilon `norm_eps`; `qkv_bias`: biases of queries, keys and values. `phi`: "mean", "linear" or "mlp", with learned `positions`
    in a block if wanted; `gate`: "sigmoid" or "softmax". `value_dim` is head_dim if it is not given.
    Parameters have the names of nsa-train's checkpoints (docs/parameter-names.md), without
    `layers.N.attention.`, and its initial distributions but for the depth of the model,
    which `output_std` is for.
    """

    @takes(positions=truth, gate=text, rope_base=real("0 or more", lambda value: value >= 0),
           init_std=real("0 or more", lambda value: value >= 0),
           shared_kv=truth, qk_norm=truth, qkv_bias=truth, norm_eps=real("a positive number", lambda value: value > 0),
           output_std=optional(real("0 or more", lambda value: value >= 0)))
    def __init__(self, dim, heads, kv_heads=None, head_dim=None, *, block=32, stride=16, select_block=64, count=16, window=512,
                 value_dim=None, phi="mean", positions=False, gate="sigmoid", initial=1, local=2, rope_base=10000.0,
                 init_std=0.02, output_std=None, shared_kv=False, qk_norm=False, qkv_bias=False, norm_eps=1e-5, **rope):
        super().__init__()
        check_at_least("dim", dim, 1)
        check_at_least("heads", heads, 1)
        kv_heads = heads if kv_heads is None else kv_heads
        if head_dim is None:
            if dim % heads:
                raise InputError(f"dim is {dim}, expected a multiple of heads, {heads}, where head_dim is not given")
            head_dim = dim // heads
        check_scaling(**rope)
        value_dim = head_dim if value_dim is None else value_dim
        check_sizes(block, stride, select_block)
        for name, value in (("kv_heads", kv_heads), ("head_dim", head_dim),
                            ("value_dim", value_dim), ("count", count), ("window", window)):
            check_at_least(name, value, 1)
        for name, value in (("initial", initial), ("local", local)):
            check_at_least(name, value, 0)
        if heads % kv_heads:
            raise InputError(f"heads is {heads}, expected a multiple of kv_heads, {kv_heads}")
        if gate not in ("sigmoid", "softmax"):
            raise InputError(f"gate is '{gate}', expected one of sigmoid, softmax")
        check_phi(phi)
        if positions and phi == "mean":
            raise InputError("positions are given, which phi 'mean' does not take; expected phi linear or mlp")
        if rope_base and head_dim % 2:
            raise InputError(f"head_dim is {head_dim}, expected a multiple of 2 for rotary embedding")
        self.heads, self.kv_heads, self.head_dim, self.value_dim = heads, kv_heads, head_dim, value_dim
        self.sizes = {"block": block, "stride": stride, "select_block": select_block, "count": count, "window": window,
                      "initial": initial, "local": local}
        self.phi, self.gate_activation, self.rope_base = phi, gate, float(rope_base)
        self.shared_kv, self.qk_norm, self.qkv_bias, self.norm_eps, self.rope = shared_kv, qk_norm, qkv_bias, norm_eps, rope
        norm = functools.partial(nn.RMSNorm, head_dim, norm_eps) if qk_norm else None
        self.query = nn.Linear(dim, heads * head_dim, bias=qkv_bias)
        if qk_norm:
            self.query_norm = norm()
        for name in ("compressed", "selected", "window"):
            if not shared_kv or name == "compressed" and phi != "mean":
                self.add_module(name, nn.Module())
        for module in [self] if shared_kv else [self.compressed, self.selected, self.window]:
            _add_key_value(module, dim, kv_heads, head_dim, value_dim, qkv_bias, norm)
        if phi != "mean":
            self.compressed.key_compression = _Phi(phi, positions, kv_heads, block, head_dim, init_std)
            self.compressed.value_compression = _Phi(phi, positions, kv_heads, block, value_dim, init_std)
        self.gate = nn.Linear(dim, 3 * heads)
        self.output = nn.Linear(heads * value_dim, dim, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=init_std)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.output.weight, std=init_std if output_std is None else output_std)
        # The gates of a token sum to about 1 at the start.
        nn.init.constant_(self.gate.bias, -math.log(2.0) if gate == "sigmoid" else 0.0)
        self._table = None

    def extra_repr(self):
        sizes = ", ".join(f"{name}={value}" for name, value in self.sizes.items())
        return f"heads={self.heads}, kv_heads={self.kv_heads}, head_dim={self.head_dim}, {sizes}, phi={self.phi!r}"

    def _rotary(self, length, device):
        """The angles of `length` positions, kept for the longest so far; fp32, whatever the layer's type."""
        if not self.rope_base:
            return None
        # A table that is kept would be compiled for its length.
        if torch.compiler.is_compiling():
            return make_rotary_table(length, self.head_dim, self.rope_base, device, **self.rope)
        table = self._table
        if table is None or table.shape[0] < length or table.device != device:
            with torch.inference_mode(False), torch.no_grad():
                table = make_rotary_table(length, self.head_dim, self.rope_base, device, **self.rope)
            if is_plain([table]):
                self._table = table
        return table[:length]

    def forward(self, x, cu_seqlens=None, selection=None, return_selection=False):
        """x [B, T, dim]; `cu_seqlens`, as attention takes it, says where sequences end that share a row; so are `selection`
        and `return_selection`, with which the result is (y, blocks)."""
        weight = self.query.weight
        check_tensors(["x"], [x])
        if x.dim() != 3 or x.shape[2] != weight.shape[1]:
            raise InputError(f"x has shape {tuple(x.shape)}, expected [B, T, {weight.shape[1]}]")
        if x.device != weight.device:
            raise InputError(f"x lies on {x.device}, expected {weight.device}, as the layer does")
        if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise InputError(f"x is {x.dtype}, expected {weight.dtype}, as the layer is")

        def split(module, name, width):
            y = getattr(module, name)(x).unflatten(-1, (-1, width))
            return getattr(module, name + "_norm")(y) if self.qk_norm and name != "value" else y

        logits = self.gate(x).float().unflatten(-1, (self.heads, 3))
        gates = torch.sigmoid(logits) if self.gate_activation == "sigmoid" else torch.softmax(logits, -1)
        pairs = [split(branch, name, width)
                 for branch in ([self] if self.shared_kv else [self.compressed, self.selected, self.window])
                 for name, width in (("key", self.head_dim), ("value", self.value_dim))] * (3 if self.shared_kv else 1)
        weights = {} if self.phi == "mean" else {
            "key_parameters": list(self.compressed.key_compression.parameters()),
            "value_parameters": list(self.compressed.value_compression.parameters())}
        o = attention(split(self, "query", self.head_dim), *pairs, gates, **self.sizes, phi=self.phi, **weights,
                      rotary=self._rotary(x.shape[1], x.device), cu_seqlens=cu_seqlens, selection=selection,
                      return_selection=return_selection)
        if return_selection:
            return self.output(o[0].flatten(2)), o[1]
        return self.output(o.flatten(2))

    def __getstate__(self):
        return {**self.__dict__, "_table": None}

    def _configuration(self):
        """{key of a configuration: what it is for this layer}"""
        sizes = self.sizes
        return {"nsa.l": sizes["block"], "nsa.d": sizes["stride"], "nsa.l_sel": sizes["select_block"],
                "nsa.n_sel": sizes["count"], "nsa.n_initial": sizes["initial"], "nsa.n_local": sizes["local"],
                "nsa.w": sizes["window"], "nsa.phi": self.phi, "nsa.gate": self.gate_activation,
                "nsa.shared_kv": self.shared_kv, "model.qk_norm": self.qk_norm, "model.qkv_bias": self.qkv_bias,
                **({"model.norm_eps": self.norm_eps, "model.norm_plus_one": False, "model.qk_norm_joint": False}
                   if self.qk_norm else {}),
                "model.rope_base": self.rope_base, "model.rope_dim": 0, "model.rope_scaling": "none",
                **{f"model.{key}": value for key, value in self.rope.items()},
                "model.attention_scale": 0.0, "model.attention_softcap": 0.0}


@takes(module=instance(NativeSparseAttention), path=path, layer=whole())
def load_checkpoint(module, path, *, layer):
    """Copy the attention of layer `layer` of a checkpoint of nsa-train to a NativeSparseAttention.

    `path` is the checkpoint, or a run directory (its newest good one); its hashes are
    verified. InputError if the parameters of the layer are others, have other shapes, or belong to a
    configuration with other blocks, window, gates or rotary embedding. The layer's norms are read where the
    module was given them, as `module.norm`. Nothing is changed if something does not fit.
    """
    weights = open_weights(path)
    prefix = f"layers.{layer}.attention."
    found = {name[len(prefix):]: shape for name, (_, shape) in weights.tensors.items() if name.startswith(prefix)}
    if not found:
        raise InputError(f"'{weights.path}' has no parameters {prefix}*")
    state = module.state_dict()
    for norm in {"norm.weight", "output_norm.weight"} - set(state):
        found.pop(norm, None)
    for missing, where in ((sorted(set(state) - set(found)), f"'{weights.path}' has no {prefix}"),
                           (sorted(set(found) - set(state)), f"the module has no parameter for {prefix}")):
        if missing:
            raise InputError(where + "{" + ", ".join(missing) + "}")
    for name, tensor in state.items():
        if tuple(found[name]) != tuple(tensor.shape):
            raise InputError(f"{prefix}{name} has shape {tuple(found[name])}, expected {tuple(tensor.shape)}")
    configuration = json.loads(weights.model_config)
    for key, value in module._configuration().items():
        section, name = key.split(".")
        if configuration[section][name] != value:
            raise InputError(f"{key} of '{weights.path}' is {configuration[section][name]}, the module has {value}")
    with torch.no_grad():
        for name, tensor in state.items():
            tensor.copy_(torch.from_numpy(weights.read(prefix + name)))


@takes(path=path)
def save_parameters(parameters, path):
    """Write parameters to a safetensors file, for `nsa-train --init-from` and what else reads such files.

    `parameters` is {name: tensor}, a state_dict for example, of tensors on any device with the
    names of the model (docs/parameter-names.md); they are saved as float32, as nsa-train
    keeps them. nsa-train says which are missing, unknown, or of another shape. InputError for a tensor that is not
    of a floating-point type or not finite; then, and if writing fails, what `path` was before stays.
    """
    if not isinstance(parameters, dict):
        raise InputError(f"parameters is {shown(parameters)}, expected a dict of tensors by name")
    for name, tensor in parameters.items():
        check_tensors([f"the parameter '{text('the name of a parameter', name)}'"], [tensor])
        if not tensor.is_floating_point():
            raise InputError(f"the parameter '{name}' is {tensor.dtype}, expected a floating-point type")
        if not tensor.isfinite().all():
            raise InputError(f"the parameter '{name}' has a value that is not finite")
    _safetensors.write(path, {name: tensor.shape for name, tensor in parameters.items()},
                       lambda name: parameters[name].detach().to("cpu", torch.float32).numpy())
