"""Names and shapes of the parameters of a model: the table of docs/parameter-names.md."""

from nsa._runtime import InputError


def layer_kinds(config):
    """[kind, width of the window, whether it is rotated] of each layer, from 'dense/nope, nsa*10, window:256'."""
    model, width = config["model"], config["nsa"]["w"]
    if not model["layers"].strip():
        return [[model["attention"], width, True]] * model["n_layers"]
    kinds = []
    for part in model["layers"].split(","):
        kind, _, count = part.partition("*")
        kind, slash, _ = kind.partition("/")
        name, _, own = kind.partition(":")
        kinds += [[name.strip(), int(own or width), not slash]] * int(count or 1)
    return kinds


def _projection(model, name, heads, width):
    """To heads, with their norm where it has one."""
    shapes = {name + ".weight": (heads * width, model["dim"])}
    if model["qkv_bias"]:
        shapes[name + ".bias"] = (heads * width, )
    if model["qk_norm"] and not name.endswith("value"):
        shapes[name + "_norm.weight"] = (heads * width if model["qk_norm_joint"] else width, )
    return shapes


def _norms(model):
    """Of a part of a layer."""
    return {name: (model["dim"], ) for name, place in (("norm.weight", "before"), ("output_norm.weight", "after"))
            if model["norms"] in (place, "both")}


def _compression(model, nsa, prefix, width):
    groups, block, shapes = model["n_kv_groups"], nsa["l"], {}
    if nsa["phi"] != "mean":
        shapes[prefix + "weight"] = (groups, block * width, width)
    if nsa["phi"] == "mlp":
        shapes[prefix + "output_weight"] = (groups, width, width)
    if nsa["phi_pos"]:
        shapes[prefix + "positions"] = (groups, block, width)
    return shapes


def _attention(model, nsa, kind):
    dim, heads, groups = model["dim"], model["n_heads"], model["n_kv_groups"]
    shapes = {**_norms(model), **_projection(model, "query", heads, model["d_k"]),
              "output.weight": (dim, heads * model["d_v"])}
    branches = {"dense": [""], "window": ["window."], "nsa": ["compressed.", "selected.", "window."]}[kind]
    for branch in [""] if kind == "nsa" and nsa["shared_kv"] else branches:
        shapes |= _projection(model, branch + "key", groups, model["d_k"])
        shapes |= _projection(model, branch + "value", groups, model["d_v"])
    if kind == "nsa":
        shapes |= {"gate.weight": (3 * heads, dim), "gate.bias": (3 * heads, )}
        for part, width in (("key", model["d_k"]), ("value", model["d_v"])):
            shapes |= _compression(model, nsa, f"compressed.{part}_compression.", width)
    return shapes


def parameter_shapes(config):
    """{name: shape} of the model that the sections `model` and `nsa` describe."""
    model, nsa = config["model"], config["nsa"]
    dim, hidden = model["dim"], model["mlp_dim"] or 4 * model["dim"]
    shapes = {"embedding.weight": (model["vocab_size"], dim), "norm.weight": (dim, )}
    if not model["tied_embeddings"]:
        shapes["head.weight"] = (model["vocab_size"], dim)
    feed_forward = {**_norms(model), "up.weight": (hidden, dim), "down.weight": (dim, hidden)}
    if model["mlp"] in ("swiglu", "geglu"):
        feed_forward["gate.weight"] = (hidden, dim)
    for layer, (kind, *_) in enumerate(layer_kinds(config)):
        for part, own in (("attention", _attention(model, nsa, kind)), ("mlp", feed_forward)):
            shapes |= {f"layers.{layer}.{part}.{name}": shape for name, shape in own.items()}
    return shapes


def compare_shapes(found, expected, path):
    """Refuses parameters {name: shape} in `path` that are not those expected."""
    for name, shape in expected.items():
        if name not in found:
            raise InputError(f"'{path}' lacks the parameter '{name}', of shape {shape}, which config.json asks for")
        if tuple(found[name]) != shape:
            raise InputError(f"'{path}' has '{name}' of shape {tuple(found[name])}, but config.json asks for {shape}")
    for name in found:
        if name not in expected:
            raise InputError(f"'{path}' has the parameter '{name}', which the model of config.json has not")
