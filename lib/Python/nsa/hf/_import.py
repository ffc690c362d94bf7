"""Models of transformers as checkpoints."""

import json
import os
import shutil
import tempfile

import numpy

from nsa import _safetensors
from nsa._arguments import path, shown, takes, texts
from nsa._files import open_file
from nsa._runtime import InputError, model_config, token_bytes, write_weights
from nsa.hf import _families
from nsa.hf._keys import Keys, read_json
from nsa.hf._origin import FOLDER, files_to_keep
from nsa.hf._parameters import compare_shapes, parameter_shapes


def _read_tokenizer(folder):
    path = os.path.join(folder, "tokenizer.json")
    if not os.path.lexists(path):
        return b""
    try:
        with open_file(path) as file:
            source = file.read()
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}") from error
    token_bytes(source, path)
    return source


def _exported(path, config, folder, settings):
    """(configuration, step, tensors, tokenizer) of what nsa-export wrote, trained further or not."""
    checkpoint = Keys(path, config).inner("checkpoint")
    if checkpoint is None:
        raise InputError(f"'{path}' has no checkpoint with config and step, which nsa-export writes")
    yaml, step = checkpoint.text("config"), checkpoint.whole("step", 0, 2**53)
    saved = json.loads(model_config(yaml, path, []))
    for section, values in saved.items():
        for key, value in (config.get(section) or {}).items() if isinstance(config.get(section), dict) else ():
            if values.get(key) != value:
                raise InputError(f"{section}.{key} in '{path}' is {json.dumps(value)}, but {json.dumps(values.get(key))} in "
                                 "checkpoint.config")
    files = _safetensors.find_files(folder)
    compare_shapes({name: file.shapes[name] for name, file in files.items()},
                   parameter_shapes(json.loads(model_config(yaml, path, settings))), folder)
    # That of bytes was made for transformers.
    is_byte = '\n  tokenizer: "byte"\n' in yaml
    tensors = {name: file.read(name) for name, file in files.items()}
    return yaml, step, tensors, b"" if is_byte else _read_tokenizer(folder)


def _check_tied_head(files):
    """A head beside the embedding's table, which it is."""
    if "lm_head.weight" in files and "model.embed_tokens.weight" in files:
        head, table = (files[name].read(name) for name in ("lm_head.weight", "model.embed_tokens.weight"))
        if not numpy.array_equal(head, table):
            raise InputError(f"'{files['lm_head.weight'].path}' has another lm_head.weight than model.embed_tokens.weight, "
                             "but tie_word_embeddings is true")


def _dense(path, config, folder, settings, attention, rotary, seq_len, seed):
    """The same of a dense model of transformers."""
    _families.check_settings(settings)
    family = _families.family_of(config, path)
    yaml = json.dumps(_families.read_config(config, path, attention, seq_len))
    own = json.loads(model_config(yaml, path, settings))
    if own["model"]["rope_scaling"] == "longrope" and any(each.split("=")[0].strip() == "train.seq_len" for each in settings):
        raise InputError("train.seq_len is set by --seq-len: it says which factors of longrope divide the angles")
    shapes, files = parameter_shapes(own), _safetensors.find_files(folder)
    names = _families.find_names(family, own, shapes)
    expected = {name: _families.joined_shape([shapes[each] for each in owns]) for name, owns in names.items()}
    found = {name: file.shapes[name] for name, file in files.items() if not name.endswith("rotary_emb.inv_freq")}
    if own["model"]["tied_embeddings"] and "lm_head.weight" in found:
        expected["lm_head.weight"] = expected["model.embed_tokens.weight"]
    compare_shapes(found, expected, folder)
    if own["model"]["tied_embeddings"]:
        _check_tied_head(files)
    tensors = _families.read_weights(names, own["model"], shapes, files, rotary)
    tensors |= _families.draw_gates(shapes, own["model"]["init_std"], numpy.random.default_rng(seed))
    return yaml, 0, tensors, _read_tokenizer(folder)


def _write(run, files, *arguments):
    """Writes the run directory, with {file: contents} beside the checkpoint, or nothing."""
    parent = os.path.dirname(os.path.abspath(run))
    try:
        os.makedirs(parent, exist_ok=True)
        scratch = tempfile.mkdtemp(dir=parent, prefix=os.path.basename(run) + ".")
    except OSError as error:
        raise InputError(f"cannot write '{run}': {error.strerror}") from error
    try:
        made = os.path.join(scratch, "run")
        checkpoint = write_weights(made, *arguments)
        for name, contents in files.items():
            os.makedirs(os.path.join(made, FOLDER), exist_ok=True)
            with open(os.path.join(made, FOLDER, name), "wb") as file:
                file.write(contents)
        os.rename(made, run)
    except OSError as error:
        raise InputError(f"cannot write '{run}': {error.strerror}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return os.path.join(run, os.path.relpath(checkpoint, made))


def _check_choice(name, value, choices):
    if value not in choices:
        raise InputError(f"{name} is {shown(value)}, expected {' or '.join(map(repr, choices))}")


@takes(folder=path, run=path, settings=texts)
def import_model(folder, run, *, attention="dense", rotary="halves", seq_len=None, seed=1, settings=()):
    """Writes a model of transformers as the checkpoint of a new run directory. Returns the checkpoint's folder.

    `folder` is what nsa-export wrote, whose weights come back bit for bit, or a dense model of a
    known type: see docs/hugging-face.md. Of the latter, `attention` is "dense" or "nsa", with
    keys and values that the branches share; `rotary` says which channels are a pair in its
    weights, "halves" (i and i + d/2, as transformers has them) or "pairs" (2 i and 2 i + 1);
    `settings` are "section.key=value" of the configuration; `seed` draws the gates' weights.
    Names and shapes of all parameters are compared with the configuration before anything is
    written; after an error there is no run directory.
    """
    _check_choice("attention", attention, ("dense", "nsa"))
    _check_choice("rotary", rotary, ("halves", "pairs"))
    for name, value in (("seed", seed), ("seq_len", 1 if seq_len is None else seq_len)):
        if type(value) is not int or value < 0:
            raise InputError(f"{name} is {shown(value)}, expected a whole number")
    if os.path.lexists(run):
        raise InputError(f"'{run}' exists already: a new folder is needed")
    path, settings, files = os.path.join(folder, "config.json"), list(settings), {}
    config = read_json(path)
    if config.get("model_type") == "nsa":
        yaml, step, tensors, tokenizer = _exported(path, config, folder, settings)
    else:
        yaml, step, tensors, tokenizer = _dense(path, config, folder, settings, attention, rotary, seq_len, seed)
        files["config.json"] = json.dumps(config, indent=2).encode()
    files |= files_to_keep(folder, tokenizer)
    return _write(run, files, yaml, path, step, tensors, tokenizer, settings)
