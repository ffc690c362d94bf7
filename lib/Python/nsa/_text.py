"""Text and the tokens of a checkpoint."""

import functools
import json
import os
import re

import numpy

from nsa._runtime import InputError, token_bytes, tokenizer_traits
from nsa.data._tokenizer import END_OF_TEXT, Tokenizer


class Text:
    """How the tokens of a checkpoint stand for text.

    `kind` is "byte", "tokenizer", or "none" where the training data were ids without text;
    `bytes` is what each id stands for, `end` the id that ends documents, or None, and `end_name` how
    the tokenizer calls it.
    """

    def __init__(self, checkpoint, config):
        path = os.path.join(checkpoint, "tokenizer.json")
        setting = re.search(r'^  tokenizer: *"?([^"\n]*)', config, re.M)
        vocab = re.search(r"^  vocab_size: *(\d+)", config, re.M)
        self.kind, self.source = "none", b""
        # The data say which token ends documents; else it is one of the tokenizer.
        self.end, self.end_name = _read_end(checkpoint), END_OF_TEXT[0]
        self._path, self._encoder = path, None
        if os.path.exists(path):
            with open(path, "rb") as file:
                self.source = file.read()
            self.kind = "tokenizer"
            self.end, self.end_name = _find_end(self.source, self.end)
        elif setting and setting[1] == "byte" and vocab and int(vocab[1]) >= 256:
            # nsa-data ends documents with the byte 0.
            self.kind, self.end = "byte", self.end or 0

    @functools.cached_property
    def bytes(self):
        if self.kind == "tokenizer":
            return token_bytes(self.source, self._path)
        return [bytes([value]) for value in range(256)] if self.kind == "byte" else []

    def silent(self, vocab):
        """Those of `vocab` ids that stand for no text and do not end documents: a text has none of them."""
        known = len(self.bytes)
        return [token for token in range(vocab) if token != self.end and not (token < known and self.bytes[token])]

    @functools.cached_property
    def _traits(self):
        return tokenizer_traits(self.source, self._path) if self.kind == "tokenizer" else (False, "")

    @property
    def changes(self):
        """How text is changed before it becomes tokens, which stand for what it is then; nothing if it is not."""
        return self._traits[1]

    @functools.cached_property
    def _blank(self):
        """For each id, whether it begins with a space which the tokenizer may have put there."""
        return numpy.array([self._traits[0] and value[:1] == b" " for value in self.bytes], bool)

    @functools.cached_property
    def _lengths(self):
        return numpy.array([len(value) for value in self.bytes], numpy.int64)

    def _tokenizer(self):
        if self._encoder is None:
            self._encoder = Tokenizer(self._path)
        return self._encoder

    def encode(self, texts):
        """The ids of each text, without special tokens, as rows of int32.

        Of a tokenizer.json, the package tokenizers makes them.
        """
        if self.kind == "none":
            raise InputError(f"'{os.path.dirname(self._path)}' has no tokenizer: its tokens stand for no text")
        if self.kind == "byte":
            return [numpy.frombuffer(text.encode(), numpy.uint8).astype(numpy.int32) for text in texts]
        return [row.astype(numpy.int32) for row in self._tokenizer().encode(texts)]

    def count_bytes(self, ids, first=()):
        """The bytes of text that ids stand for; 0 for those that are special, or unknown.

        `first` says where among them texts begin: a space that the tokenizer puts there is none of the text.
        """
        ids = numpy.asarray(ids)
        begin = ids[numpy.asarray(first, numpy.int64)]
        return int(self._lengths[ids[ids < len(self._lengths)]].sum() - self._blank[begin[begin < len(self._blank)]].sum())


def _read_end(checkpoint):
    """The id that the state of a checkpoint says; None in one of data without such an id."""
    with open(os.path.join(checkpoint, "state.json"), "rb") as file:
        return json.load(file).get("end_of_text")


def _read_ids(source):
    """{token: id} of a tokenizer.json."""
    settings = json.loads(source)
    vocabulary = settings["model"]["vocab"]
    ids = dict(vocabulary) if isinstance(vocabulary, dict) else {entry[0]: i for i, entry in enumerate(vocabulary)}
    ids.update((token["content"], token["id"]) for token in settings.get("added_tokens", []))
    return ids


def same_ids(one, other):
    """Whether two tokenizer.json, as bytes, give the same tokens the same ids."""
    return one == other or bool(one and other) and _read_ids(one) == _read_ids(other)


def _find_end(source, end):
    """The id and the name of the token that ends documents: `end`, or as nsa.data finds it; None if there is none."""
    ids = _read_ids(source)
    if end is not None:
        return end, next((name for name, own in ids.items() if own == end), "")
    return next(((ids[name], name) for name in END_OF_TEXT if name in ids), (None, ""))
