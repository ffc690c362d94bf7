"""Wrong configurations: every key of the schema with every kind of wrong value, and
files that are wrong as a whole. The schema comes from the tool under test."""

import json
import re


def schema(model_text):
    """(section, key, default) of every key, from the configuration that nsa-model
    stores in a model."""
    text = re.search(r" config (\{.*?\}\}) \{", model_text, re.DOTALL)[1]
    text = re.sub(r"(\w+) = ", r'"\1": ', text)
    return [
        (section, key, value)
        for section, keys in json.loads(text).items()
        for key, value in keys.items()
    ]


def wrong_values(section, key, default):
    """(what, value as YAML, column of the complaint, expected message)"""
    path = f"{section}.{key}"
    at = len(key) + 5
    if isinstance(default, str):
        if key in ("sample_prompt", "out_dir"):
            return [("a list", "[a]", 3, f"{path} must be a single value")]
        if key == "layers":
            return [
                ("an unknown word", "bogus", 3, f"{path}: unknown kind 'bogus' of a layer"),
                ("another case", "NSA*4", 3, f"{path}: unknown kind 'NSA' of a layer"),
                ("too many layers", "nsa*999", 3, f"{path}: kinds of 999 layers, but n_layers is 4"),
                ("a width of a dense layer", "dense:8", 3, f"{path}: unknown kind 'dense:8' of a layer"),
                ("a list", "[a]", 3, f"{path} must be a single value"),
                ("nothing", "", 3, f"{path} has no value"),
            ]
        if key == "rope_divisors":
            return [
                ("an unknown word", "bogus", 3, f"{path}: 'bogus' must begin with a number above 0"),
                ("numbers without a scaling", "1, 2", 3, "rope_divisors has 2 numbers"),
                ("a list", "[a]", 3, f"{path} must be a single value"),
                ("nothing", "", 3, f"{path} has no value"),
            ]
        return [
            ("an unknown word", "bogus", at, f"{path} must be one of"),
            ("another case", default.upper(), at, f"{path} must be one of"),
            ("a list", "[a]", 3, f"{path} must be a single value"),
            ("nothing", "", 3, f"{path} has no value"),
        ]
    if isinstance(default, bool):
        return [
            ("a word", "yes", at, f"{path} must be true or false, not 'yes'"),
            ("a number", "1", at, f"{path} must be true or false, not '1'"),
            ("a quoted word", '"true"', at, f"{path} must be true or false, not the string 'true'"),
            ("a list", "[true]", 3, f"{path} must be a single value"),
            ("nothing", "", 3, f"{path} has no value"),
        ]
    kind = "an integer" if isinstance(default, int) else "a number"
    cases = [
        ("a word", "many", at, f"{path} must be {kind}, not 'many'"),
        ("a quoted number", '"64"', at, f"{path} must be a number, not the string '64'"),
        ("too much", "1000000000000000000", at, f"{path} (1000000000000000000) must be at most"),
        ("too little", "-5", at, f"{path} (-5) must be at least"),
        ("a list", "[1, 2]", 3, f"{path} must be a single value"),
        ("a mapping", "{a: 1}", 3, f"{path} must be a single value"),
        ("nothing", "", 3, f"{path} has no value"),
        ("a number and a word", "64k", at, f"{path} must be {kind}, not '64k'"),
        ("a hexadecimal number", "0x10", at, f"{path} must be {kind}, not '0x10'"),
    ]
    if isinstance(default, int):
        cases.append(("a fraction", "1.5", at, f"{path} must be an integer, not '1.5'"))
        cases.append(("an exponent", "1e3", at, f"{path} must be an integer, not '1e3'"))
    else:
        cases.append(("what is no number", ".nan", at, path))
        cases.append(("infinity", "inf", at, f"{path} must be finite, not 'inf'"))
        cases[2] = ("too much", "1e300", at, f"{path} (1e300) must be at most")
    return cases


def key_mutations(keys):
    """(name, YAML text, line, column, expected message)"""
    for section, key, default in keys:
        for what, value, column, expected in wrong_values(section, key, default):
            yield (f"{section}.{key} is {what}", f"{section}:\n  {key}: {value}\n", 2, column, expected)
        yield (
            f"{section}.{key} twice",
            f"{section}:\n  {key}: {json.dumps(default)}\n  {key}: {json.dumps(default)}\n",
            3,
            3,
            f"duplicate key '{section}.{key}'",
        )
        yield (
            f"{section}.{key} misspelt",
            f"{section}:\n  {key}z: 1\n",
            2,
            3,
            f"unknown key '{key}z' in '{section}'; did you mean '",
        )


# (name, YAML text, line, column, expected message)
FILES = [
    ("a list", "- model\n", 1, 1, "a configuration is a mapping of sections"),
    ("a word", "model\n", 1, 1, "a configuration is a mapping of sections"),
    ("a section twice", "nsa:\n  l: 8\nnsa:\n  d: 4\n", 3, 1, "duplicate section 'nsa'"),
    ("a section without keys", "model:\n", 1, 1, "section 'model' must be a mapping"),
    ("a section that is a list", "model: [1]\n", 1, 1, "section 'model' must be a mapping"),
    ("a key at the top", "dim: 64\n", 1, 1, "unknown section 'dim'"),
    ("an open quote", 'train:\n  out_dir: "runs\n', 2, None, ""),
    ("a tab", "model:\n\tdim: 64\n", 2, None, ""),
    ("an open brace", "model: {dim: 64\n", None, None, ""),
    ("a list as a key", "model:\n  [a]: 1\n", 1, 1, "a key must be a plain word"),
    ("an alias of nothing", "model:\n  dim: *x\n", 2, None, ""),
    ("d does not divide l_sel", "nsa:\n  l: 16\n  d: 16\n  l_sel: 40\n", 3, 3, "d (16) must divide l_sel (40)"),
    ("l above l_sel", "nsa:\n  l: 64\n  d: 16\n  l_sel: 32\n", 2, 3, "l (64) must not exceed l_sel (32)"),
    ("too few tokens for bytes", "model:\n  vocab_size: 255\n", 2, 3, "vocab_size (255) must be at least 256"),
    (
        "accumulation disagrees",
        "train:\n  batch_size: 8\n  micro_batch: 2\n  accumulate_grad_batches: 3\n",
        4,
        3,
        "accumulate_grad_batches (3) must be batch_size / micro_batch (4)",
    ),
    ("warm-up above steps", "train:\n  steps: 10\n  warmup_steps: 11\n", 3, 3, "warmup_steps (11) must not exceed steps (10)"),
    ("least rate above the rate", "train:\n  lr: 0.1\n  lr_min: 0.2\n", 3, 3, "lr_min (0.2) must not exceed lr (0.1)"),
]

# (override, expected message)
OVERRIDES = [
    ("model.dims=3", "override 'model.dims=3': unknown key 'dims' in 'model'; did you mean 'dim'?"),
    ("modle.dim=3", "override 'modle.dim=3': unknown section 'modle'; did you mean 'model'?"),
    ("model.dim", "override 'model.dim': must have the form section.key=value"),
    ("dim=3", "override 'dim=3': must have the form section.key=value"),
    ("train.lr=fast", "override 'train.lr=fast': train.lr must be a number, not 'fast'"),
    ("nsa.d=7", "nsa.d: d (7) must divide l"),
]
