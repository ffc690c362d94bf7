"""A checkpoint as a folder for transformers."""

import json
import math
import os
import re
import shutil

from nsa import _safetensors
from nsa._runtime import InputError, open_weights
from nsa._text import Text

_MODELING = "modeling_nsa.py"


def _layer_kinds(config):
    """[kind, width of the window] of each layer, from model.layers as 'dense, nsa*10, window:256'."""
    model, width = config["model"], config["nsa"]["w"]
    if not model["layers"].strip():
        return [[model["attention"], width]] * model["n_layers"]
    kinds = []
    for part in model["layers"].split(","):
        kind, _, count = part.partition("*")
        name, _, own = kind.partition(":")
        kinds += [[name.strip(), int(own or width)]] * int(count or 1)
    return kinds


def _byte_tokenizer():
    """A tokenizer.json of 256 tokens, each a byte, but for 0, which ends documents and is in no text."""
    # The characters that stand for bytes in byte-level tokenizers, as GPT-2 has them.
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    characters = {byte: chr(byte) for byte in shown} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}
    characters[0] = "<|endoftext|>"
    special = {
        "id": 0,
        "content": characters[0],
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True
    }
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return json.dumps({
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [special],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {characters[byte]: byte for byte in range(256)},
            "merges": []
        }
    }).encode()


def _tokenizer_files(text, seq_len):
    """{file: contents}; nothing where the tokens stand for no text."""
    if text.kind == "none":
        return {}
    source = _byte_tokenizer() if text.kind == "byte" else text.source
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": seq_len,
        "clean_up_tokenization_spaces": False
    }
    if text.end_name:
        settings["eos_token"] = settings["pad_token"] = text.end_name
    return {"tokenizer.json": source, "tokenizer_config.json": json.dumps(settings, indent=2).encode()}


def _make_folder(folder, overwrite):
    if os.path.isdir(folder) and os.listdir(folder) and not overwrite:
        raise InputError(f"'{folder}' is not empty (--overwrite replaces the files of a model in it)")
    os.makedirs(folder, exist_ok=True)


def export(checkpoint, folder, *, overwrite=False):
    """Writes a checkpoint of nsa-train as a folder that transformers reads with trust_remote_code.

    The weights are those of the checkpoint, bit for bit, and keep their names. Returns the number
    of its parameters.
    """
    weights = open_weights(os.fsdecode(os.fspath(checkpoint)))
    config = json.loads(weights.model_config)
    text = Text(weights.path, weights.config)
    seq_len = int(re.search(r"^  seq_len: (\d+)$", weights.config, re.M)[1])
    end = {} if text.end is None else {"eos_token_id": text.end, "pad_token_id": text.end}
    described = {
        "architectures": ["NSAForCausalLM"],
        "model_type": "nsa",
        "dtype": "float32",
        "auto_map": {
            "AutoConfig": "modeling_nsa.NSAConfig",
            "AutoModelForCausalLM": "modeling_nsa.NSAForCausalLM"
        },
        "model": config["model"],
        "nsa": config["nsa"],
        "layer_kinds": _layer_kinds(config),
        "max_position_embeddings": seq_len,
        **end,
        "checkpoint": {"config": weights.config, "step": weights.step}
    }
    files = {"config.json": json.dumps(described, indent=2).encode(), **_tokenizer_files(text, seq_len)}
    shapes = {name: shape for name, (_, shape) in weights.tensors.items()}
    try:
        _make_folder(folder, overwrite)
        _safetensors.write(os.path.join(folder, "model.safetensors"), shapes, weights.read)
        shutil.copyfile(os.path.join(os.path.dirname(__file__), _MODELING), os.path.join(folder, _MODELING))
        for name, contents in files.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(contents)
    except OSError as error:
        raise InputError(f"cannot write '{folder}': {error.strerror}") from error
    return sum(math.prod(shape) for shape in shapes.values())
