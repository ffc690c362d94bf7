"""A checkpoint as a folder for transformers."""

import json
import math
import os
import re
import shutil
import tempfile

from nsa import _safetensors
from nsa._arguments import path, takes, truth
from nsa._runtime import InputError, model_config, open_weights
from nsa._text import Text
from nsa.hf._families import describe_llama, family_of, find_names, joined_shape, read_config, write_weight
from nsa.hf._keys import read_json
from nsa.hf._origin import find_origin, has_other_card, origin_files, write_card
from nsa.hf._parameters import layer_kinds, parameter_shapes

_MODELING, _WEIGHTS = "modeling_nsa.py", "model.safetensors"

# Files of a model that another one is not left with.
_REPLACED = re.compile(r"modeling_nsa\.py|(tokenizer|tokenizer_config|special_tokens_map|added_tokens|generation_config)\.json|"
                       r"chat_template\.(jinja|json)|(pytorch_)?model(-\d+-of-\d+)?\.(safetensors|bin)(\.index\.json)?")


def _byte_tokenizer():
    """A tokenizer.json of 256 tokens, each a byte, but for 0, which ends documents and is in no text."""
    # The characters that stand for bytes in byte-level tokenizers, as GPT-2 has them.
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    characters = {byte: chr(byte) for byte in shown} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}
    characters[0] = "<|endoftext|>"
    special = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    special |= {"id": 0, "content": characters[0], "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return json.dumps({
        "version": "1.0",
        "added_tokens": [special],
        "pre_tokenizer": level,
        "decoder": level,
        "model": {"type": "BPE", "vocab": {characters[byte]: byte for byte in range(256)}, "merges": []}
    }).encode()


def _tokenizer_files(text, seq_len):
    """{file: contents}; nothing where the tokens stand for no text."""
    if text.kind == "none":
        return {}
    source = _byte_tokenizer() if text.kind == "byte" else text.source
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": seq_len,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False
    }
    if text.end_name:
        settings["eos_token"] = settings["pad_token"] = text.end_name
    return {"tokenizer.json": source, "tokenizer_config.json": json.dumps(settings, indent=2).encode()}


def _check_folder(folder, overwrite, names):
    """Refuses a folder whose files are not those of a model, or are reached through a link."""
    if os.path.islink(folder):
        raise InputError(f"'{folder}' is a symbolic link, which nothing is written through")
    if not os.path.lexists(folder):
        return
    found = os.listdir(folder)
    if found and not overwrite:
        raise InputError(f"'{folder}' is not empty (--overwrite replaces the files of a model in it)")
    if found and "config.json" not in found:
        raise InputError(f"'{folder}' has no config.json: it holds no model that --overwrite could replace")
    for name in found:
        path = os.path.join(folder, name)
        if (name in names or _REPLACED.fullmatch(name)) and os.path.isdir(path) and not os.path.islink(path):
            raise InputError(f"'{path}' is a folder, expected a file of a model")


def _write_files(folder, files, write_weights):
    """Writes {name: contents} and the weights, all or none, over a model's files: links are not followed."""
    is_new = not os.path.lexists(folder)
    os.makedirs(folder, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as scratch:
            write_weights(os.path.join(scratch, _WEIGHTS))
            for name, contents in files.items():
                with open(os.path.join(scratch, name), "wb") as file:
                    file.write(contents)
            names = [*files, _WEIGHTS]
            for name in names:
                os.replace(os.path.join(scratch, name), os.path.join(folder, name))
        for name in os.listdir(folder):
            if _REPLACED.fullmatch(name) and name not in names:
                os.unlink(os.path.join(folder, name))
    except BaseException:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _describe_model(weights, config, seq_len):
    """config.json of the model in modeling_nsa.py."""
    softcap = config["model"]["attention_softcap"]
    if softcap:
        raise InputError(f"model.attention_softcap of '{weights.path}' is {softcap:g}, but the exported model has none "
                         "(--original writes the model of transformers that it comes from)")
    return {
        "architectures": ["NSAForCausalLM"],
        "model_type": "nsa",
        "dtype": "float32",
        "auto_map": {
            "AutoConfig": "modeling_nsa.NSAConfig",
            "AutoModelForCausalLM": "modeling_nsa.NSAForCausalLM"
        },
        "model": config["model"],
        "nsa": config["nsa"],
        "layer_kinds": layer_kinds(config),
        "max_position_embeddings": seq_len,
        "checkpoint": {"config": weights.config, "step": weights.step}
    }


def _find_original(weights, config, origin, seq_len):
    """(config.json, {name: own names}) of the model of transformers that the weights were, or else of a Llama."""
    config["model"]["mlp_dim"] = config["model"]["mlp_dim"] or 4 * config["model"]["dim"]
    path = os.path.join(origin or "", "config.json")
    is_imported = origin is not None and os.path.exists(path)
    described = read_json(path) if is_imported else describe_llama(config["model"], seq_len)
    family = family_of(described, path)
    imported = json.loads(model_config(json.dumps(read_config(described, path, "dense", seq_len)), path, []))
    for key, value in imported["model"].items():
        if config["model"][key] != value:
            raise InputError(f"model.{key} of '{weights.path}' is {json.dumps(config['model'][key])}, but "
                             f"{json.dumps(value)} in " + (f"the model of '{path}'" if is_imported else "a Llama"))
    described = {**described, "dtype": "float32"}
    described.pop("torch_dtype", None)
    return described, find_names(family, config, parameter_shapes(config))


@takes(checkpoint=path, folder=path, overwrite=truth, original=truth)
def export(checkpoint, folder, *, overwrite=False, original=False):
    """Writes a checkpoint of nsa-train as a folder that transformers reads with trust_remote_code.

    The weights are those of the checkpoint, bit for bit, and keep their names. With `original`, they have the names
    of the model of transformers that nsa-import made the checkpoint of, else those of a Llama, and need no code. Files
    appear in the folder when all are written; those of a model that was there are replaced, links by files. Returns the
    number of parameters.
    """
    weights = open_weights(checkpoint)
    config, origin = json.loads(weights.model_config), find_origin(weights.path)
    text = Text(weights.path, weights.config)
    seq_len = int(re.search(r"^  seq_len: (\d+)$", weights.config, re.M)[1])
    shapes = {name: shape for name, (_, shape) in weights.tensors.items()}
    if original:
        described, names = _find_original(weights, config, origin, seq_len)
        files = {}
    else:
        described, names = _describe_model(weights, config, seq_len), {name: [name] for name in shapes}
        described |= {} if text.end is None else {"eos_token_id": text.end, "pad_token_id": text.end}
        with open(os.path.join(os.path.dirname(__file__), _MODELING), "rb") as file:
            files = {_MODELING: file.read()}
    files |= {"config.json": json.dumps(described, indent=2).encode(), **_tokenizer_files(text, seq_len)}
    files |= origin_files(origin, text.source)
    # Another's model card stays.
    if not has_other_card(folder):
        files["README.md"] = write_card(weights, described, files).encode()
    joined = {name: joined_shape([shapes[own] for own in owns]) for name, owns in names.items()}

    def read(name):
        return write_weight(names[name], config["model"], weights.read) if original else weights.read(name)

    try:
        # Without a slash at the end, with which a link would be followed.
        folder = os.path.abspath(folder)
        _check_folder(folder, overwrite, {*files, _WEIGHTS})
        _write_files(folder, files, lambda path: _safetensors.write(path, joined, read))
    except OSError as error:
        raise InputError(f"cannot write '{folder}': {error.strerror}") from error
    return sum(math.prod(shape) for shape in shapes.values())
