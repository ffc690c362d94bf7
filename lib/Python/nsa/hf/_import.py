"""Models of transformers as checkpoints."""

import json
import os

import numpy

from nsa import _safetensors
from nsa._files import open_file
from nsa._runtime import InputError, write_weights
from nsa.hf import _llama


def _read_config(folder):
    path = os.path.join(folder, "config.json")
    try:
        with open_file(path, "r", encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read '{path}': {getattr(error, 'strerror', None) or error}") from error
    if not isinstance(config, dict):
        raise InputError(f"'{path}' is a {type(config).__name__}, expected an object")
    return path, config


def _read_tokenizer(folder):
    path = os.path.join(folder, "tokenizer.json")
    if not os.path.exists(path):
        return b""
    with open_file(path) as file:
        return file.read()


def _exported(path, config, folder):
    """(configuration, step, tensors, tokenizer) of what nsa-export wrote, trained further or not."""
    checkpoint = config.get("checkpoint")
    found = [checkpoint.get(key) for key in ("config", "step")] if isinstance(checkpoint, dict) else [None, None]
    if not isinstance(found[0], str) or not isinstance(found[1], int):
        raise InputError(f"'{path}' has no checkpoint with config and step, which nsa-export writes")
    tensors = {name: file.read(name) for name, file in _safetensors.find_files(folder).items()}
    # That of bytes was made for transformers.
    is_byte = '\n  tokenizer: "byte"\n' in checkpoint["config"]
    return checkpoint["config"], checkpoint["step"], tensors, b"" if is_byte else _read_tokenizer(folder)


def import_model(folder, run, *, attention="dense", rotary="halves", seq_len=None, seed=1, settings=()):
    """Writes a model of transformers as the checkpoint of a new run directory. Returns the checkpoint's folder.

    `folder` is what nsa-export wrote, whose weights come back bit for bit, or a dense model of the
    Llama type: see docs/hugging-face.md. Of the latter, `attention` is "dense" or "nsa", with
    keys and values that the branches share; `rotary` says which channels are a pair in its
    weights, "halves" (i and i + d/2, as transformers has them) or "pairs" (2 i and 2 i + 1);
    `settings` are "section.key=value" of the configuration; `seed` draws the gates' weights.
    """
    folder, run = os.fsdecode(os.fspath(folder)), os.fsdecode(os.fspath(run))
    if os.path.exists(run):
        raise InputError(f"'{run}' exists already: a new folder is needed")
    path, config = _read_config(folder)
    if config.get("model_type") == "nsa":
        yaml, step, tensors, tokenizer = _exported(path, config, folder)
    else:
        _llama.check_settings(settings)
        tokenizer, step = _read_tokenizer(folder), 0
        yaml = json.dumps(_llama.read_config(config, path, attention, seq_len))
        tensors = _llama.read_weights(config, path, _safetensors.find_files(folder), rotary)
        if attention == "nsa":
            _llama.add_gates(tensors, config, numpy.random.default_rng(seed))
    return write_weights(run, yaml, path, step, tensors, tokenizer, list(settings))
