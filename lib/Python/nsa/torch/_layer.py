"""The layer of nsa-train's models as a module of PyTorch, and parameters from checkpoints and for them."""

import json
import math

import torch
from torch import nn

from nsa import _safetensors
from nsa._arguments import instance, optional, path, real, shown, takes, text, truth, whole
from nsa._runtime import InputError, open_weights
from nsa.torch._checks import check_at_least, check_phi, check_sizes, check_tensors
from nsa.torch._functions import attention, make_rotary_table
from nsa.torch._transforms import is_plain


class _KeyValue(nn.Module):
    """Projections to the keys and values of a branch."""

    def __init__(self, dim, key_width, value_width):
        super().__init__()
        self.key = nn.Linear(dim, key_width, bias=False)
        self.value = nn.Linear(dim, value_width, bias=False)


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
    their own, gates from x, and rotary embedding of base `rope_base` (0: none). Neither a
    norm nor the residual is in it. `phi`: "mean", "linear" or "mlp", with learned `positions`
    in a block if wanted; `gate`: "sigmoid" or "softmax". `value_dim` is head_dim if it is not given.
    Parameters have the names of nsa-train's checkpoints (docs/parameter-names.md), without
    `layers.N.attention.`, and its initial distributions but for the depth of the model,
    which `output_std` is for.
    """

    @takes(positions=truth, gate=text, rope_base=real("0 or more", lambda value: value >= 0),
           init_std=real("0 or more", lambda value: value >= 0),
           output_std=optional(real("0 or more", lambda value: value >= 0)))
    def __init__(self, dim, heads, kv_heads, head_dim, *, block=32, stride=16, select_block=64, count=16, window=512,
                 value_dim=None, phi="mean", positions=False, gate="sigmoid", initial=1, local=2, rope_base=10000.0,
                 init_std=0.02, output_std=None):
        super().__init__()
        value_dim = head_dim if value_dim is None else value_dim
        check_sizes(block, stride, select_block)
        for name, value in (("dim", dim), ("heads", heads), ("kv_heads", kv_heads), ("head_dim", head_dim),
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
        self.query = nn.Linear(dim, heads * head_dim, bias=False)
        for name in ("compressed", "selected", "window"):
            setattr(self, name, _KeyValue(dim, kv_heads * head_dim, kv_heads * value_dim))
        if phi != "mean":
            self.compressed.key_compression = _Phi(phi, positions, kv_heads, block, head_dim, init_std)
            self.compressed.value_compression = _Phi(phi, positions, kv_heads, block, value_dim, init_std)
        self.gate = nn.Linear(dim, 3 * heads)
        self.output = nn.Linear(heads * value_dim, dim, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=init_std)
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
        table = self._table
        if table is None or table.shape[0] < length or table.device != device:
            with torch.inference_mode(False), torch.no_grad():
                table = make_rotary_table(length, self.head_dim, self.rope_base, device)
            if torch.compiler.is_compiling() or is_plain([table]):
                self._table = table
        return table[:length]

    def forward(self, x, cu_seqlens=None):
        """x [B, T, dim]; `cu_seqlens`, as attention takes it, says where sequences end that share a row."""
        weight = self.query.weight
        check_tensors(["x"], [x])
        if x.dim() != 3 or x.shape[2] != weight.shape[1]:
            raise InputError(f"x has shape {tuple(x.shape)}, expected [B, T, {weight.shape[1]}]")
        if x.device != weight.device:
            raise InputError(f"x lies on {x.device}, expected {weight.device}, as the layer does")
        if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise InputError(f"x is {x.dtype}, expected {weight.dtype}, as the layer is")

        def split(projection, width):
            return projection(x).unflatten(-1, (-1, width))

        logits = self.gate(x).float().unflatten(-1, (self.heads, 3))
        gates = torch.sigmoid(logits) if self.gate_activation == "sigmoid" else torch.softmax(logits, -1)
        pairs = [split(projection, width) for branch in (self.compressed, self.selected, self.window)
                 for projection, width in ((branch.key, self.head_dim), (branch.value, self.value_dim))]
        weights = {} if self.phi == "mean" else {
            "key_parameters": list(self.compressed.key_compression.parameters()),
            "value_parameters": list(self.compressed.value_compression.parameters())}
        o = attention(split(self.query, self.head_dim), *pairs, gates, **self.sizes, phi=self.phi, **weights,
                      rotary=self._rotary(x.shape[1], x.device), cu_seqlens=cu_seqlens)
        return self.output(o.flatten(2))

    def __getstate__(self):
        return {**self.__dict__, "_table": None}

    def _configuration(self):
        """{key of a configuration: what it is for this layer}"""
        sizes = self.sizes
        return {"nsa.l": sizes["block"], "nsa.d": sizes["stride"], "nsa.l_sel": sizes["select_block"],
                "nsa.n_sel": sizes["count"], "nsa.n_initial": sizes["initial"], "nsa.n_local": sizes["local"],
                "nsa.w": sizes["window"], "nsa.phi": self.phi, "nsa.gate": self.gate_activation,
                "model.rope_base": self.rope_base, "model.rope_dim": 0, "model.rope_scaling": "none",
                "model.attention_scale": 0.0, "model.attention_softcap": 0.0}


@takes(module=instance(NativeSparseAttention), path=path, layer=whole())
def load_checkpoint(module, path, *, layer):
    """Copy the attention of layer `layer` of a checkpoint of nsa-train to a NativeSparseAttention.

    `path` is the checkpoint, or a run directory (its newest good one); its hashes are
    verified. InputError if the parameters of the layer are others, have other shapes, or belong to a
    configuration with other blocks, window, gates or rotary embedding. The layer's norms are not part
    of the module. Nothing is changed if something does not fit.
    """
    weights = open_weights(path)
    prefix = f"layers.{layer}.attention."
    found = {name[len(prefix):]: shape for name, (_, shape) in weights.tensors.items() if name.startswith(prefix)}
    if not found:
        raise InputError(f"'{weights.path}' has no parameters {prefix}*")
    for norm in ("norm.weight", "output_norm.weight"):
        found.pop(norm, None)
    state = module.state_dict()
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
